"""A study's folder as a machine that ran it leaves it: the files that its log names, and what is that machine's own."""

import dataclasses
import hashlib
import json
import pathlib
import random
from typing import Any

from golfray.sweep.events import encode_record
from tests.report.scripted import Script, write_study

OWN = (
    "driver.json",
    "mlflow.db",
    "mlflow.db-wal",
    "mlartifacts/1/a",
    "ray/auth_token",
    "trials/0000/settings.json.part",
)


def files_of(event: dict[str, Any]) -> dict[str, bytes]:
    """What an attempt has written by its end, by the path in the study's folder; its outcome is made to say so."""
    outcome = event["outcome"]
    if outcome["artifact"] is None:
        return {}
    folder = f"trials/{event['trial']:04d}/attempt-{event['attempt']}"
    content = random.Random(event["seq"]).randbytes(int(outcome["metrics"]["bytes/model"]))
    outcome["artifact_sha256"] = hashlib.sha256(content).hexdigest()
    checkpoint = random.Random(-1 - event["seq"]).randbytes(1000)
    return {f"{folder}/{outcome['artifact']}": content, f"{folder}/checkpoint.pt": checkpoint}


@dataclasses.dataclass(repr=False)
class FarStudy:
    """``lines`` of its log, and before each line the ``files`` that must be there before it is written."""

    folder: pathlib.Path
    lines: list[bytes]
    files: list[dict[str, bytes]]

    @classmethod
    def of(cls, script: Script, folder: pathlib.Path) -> "FarStudy":
        """The study of a script; nothing of it is in the folder yet."""
        write_study(folder, script)
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
        (folder / "events.jsonl").unlink()
        files = [files_of(event) if event["event"] == "attempt_ended" else {} for event in events]
        return cls(folder, [encode_record(event).encode() + b"\n" for event in events], files)

    def write(self, upto: int | None = None, torn: int = 0) -> "FarStudy":
        """The first lines and their files, and the first ``torn`` bytes of the next line."""
        for files in self.files[:upto]:
            for name, content in files.items():
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    path.write_bytes(content)
        upto = len(self.lines) if upto is None else upto
        rest = self.lines[upto][:torn] if torn else b""
        (self.folder / "events.jsonl").write_bytes(b"".join(self.lines[:upto]) + rest)
        return self

    def leave(self) -> None:
        """What only that machine needs."""
        for name in OWN:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text("its own")

    def there(self) -> dict[str, bytes]:
        """All that a copy has: the log and what it names."""
        named = {name: content for files in self.files for name, content in files.items()}
        return {"events.jsonl": b"".join(self.lines), **named}


def found(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
