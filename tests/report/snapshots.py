"""Comparing what was printed with what is kept in tests/report/snapshots/."""

import difflib
import os
import pathlib

FOLDER = pathlib.Path(__file__).parent / "snapshots"

# GOLFRAY_UPDATE_SNAPSHOTS=1 keeps what is printed instead of comparing it: read the diff before it is committed.
UPDATING = bool(os.environ.get("GOLFRAY_UPDATE_SNAPSHOTS"))


def check(name: str, text: str) -> None:
    """Fail where ``text`` is not the kept one."""
    path = FOLDER / name
    if UPDATING:
        path.write_text(text, encoding="utf-8")
    kept = path.read_text(encoding="utf-8")
    difference = difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "printed", lineterm="")
    assert text == kept, "\n" + "\n".join(difference)
