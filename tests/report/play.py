"""Run in a terminal by test_terminal.py: plays a scripted study, with a pause before one of its events.

``play.py SCRIPT FIRST GO``: the events up to number FIRST are shown, the others when GO, a file descriptor, is closed
at its other end. The clock is that of the events. PLAY_TALKERS in the environment: so many threads print meanwhile, as
interruptions and MLflow do.
"""

import os
import sys
import threading
import time

import scripted  # beside this file, which is run as a script

from golfray.cli.output import Output
from golfray.report.console import ConsoleObserver

LINES_A_TALKER = 100


def talk(name: int) -> None:
    for number in range(LINES_A_TALKER):
        Output().result(f"talker {name} says {number}")
        time.sleep(0.003)


def main(name: str, first: int, go: int) -> None:
    events = list(getattr(scripted, name)())
    now = [0.0]
    observer = ConsoleObserver(Output().console(), clock=lambda: now[0])
    talkers = [threading.Thread(target=talk, args=(name,)) for name in range(int(os.environ.get("PLAY_TALKERS", 0)))]
    for number, event in enumerate(events):
        if number == first:
            os.read(go, 1)
        now[0] = event["time"]
        observer.on_event(event)
        if number == 0:
            for talker in talkers:
                talker.start()
    for talker in talkers:
        talker.join()
    if first == len(events):
        os.read(go, 1)
    observer.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
