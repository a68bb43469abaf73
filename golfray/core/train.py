"""One trial from the command line, alone or under torchrun: ``-m golfray.core.train SETTINGS.json [FOLDER]``."""

import json
import os
import pathlib
import sys
from collections.abc import Callable

from golfray.core.gang import join_gang, leave_gang
from golfray.core.settings import settings_from_dict
from golfray.core.trial import run_trial


def print_point(point: dict[str, float]) -> None:
    """One line of the curve on standard output, as name:value words."""
    print(" ".join(f"{name}:{value:.6g}" for name, value in point.items()), flush=True)


def run_from_text(settings_text: str, folder: str, run: Callable[..., dict]) -> int:
    """Join the gang that the environment describes, ``run`` the trial the settings describe, print how it ended."""
    settings = settings_from_dict(json.loads(settings_text))
    gang = join_gang(settings.runtime.device)
    try:
        result = run(settings, gang, pathlib.Path(folder), print_point)
        # Nobody leaves while rank 0 still writes.
        gang.broadcast_floats([0.0])
    finally:
        leave_gang()
    if gang.rank == 0:
        print(json.dumps({"kind": result["kind"], "reason": result["reason"], **result["metrics"]}), flush=True)
    return 0


def main(arguments: list[str], run: Callable[..., dict]) -> int:
    """Entry point: a settings file, and the folder to write into (default: the current one). Returns the exit code."""
    if not 1 <= len(arguments) <= 2:
        print(f"usage: {sys.argv[0]} SETTINGS.json [FOLDER]", file=sys.stderr)
        return 2
    text = pathlib.Path(arguments[0]).read_text(encoding="utf-8")
    return run_from_text(text, arguments[1] if len(arguments) == 2 else os.getcwd(), run)


def leave_process(code: int) -> None:
    """End this process with ``code`` once everything is written, without the interpreter's own teardown.

    Native threads of torch can outlive the process group; about one rank in forty died of them during teardown, by
    SIGABRT ("terminate called without an active exception"), after all its work was done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave_process(main(sys.argv[1:], run_trial))
