"""Writes a study once more, as a driver does: an attempt's files, then its record, here in two halves.

Usage: run_again.py WHOLE FOLDER PAUSE_S. WHOLE is the folder of the study, FOLDER one that does not exist yet; between
the halves of a record pass PAUSE_S seconds.
"""

import json
import pathlib
import shutil
import sys
import time


def run_again(whole: pathlib.Path, folder: pathlib.Path, pause_s: float) -> None:
    folder.mkdir(parents=True)
    with (folder / "events.jsonl").open("ab", buffering=0) as log:
        for line in (whole / "events.jsonl").read_bytes().splitlines(keepends=True):
            event = json.loads(line)
            attempt = f"trials/{event.get('trial', 0):04d}/attempt-{event.get('attempt', 0)}"
            if event["event"] == "attempt_ended" and (whole / attempt).is_dir():
                shutil.copytree(whole / attempt, folder / attempt)
            log.write(line[: len(line) // 2])
            time.sleep(pause_s)
            log.write(line[len(line) // 2 :])


if __name__ == "__main__":
    run_again(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3]))
