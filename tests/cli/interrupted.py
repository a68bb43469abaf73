"""Run by test_interrupts.py: waits under Interrupts as `golfray tune` does, and says what was asked of the study.

It ends when the study was stopped and "end" is on standard input; its exit code is the one that follows.
"""

import sys
import threading

from golfray.cli.interrupts import Interrupts
from golfray.cli.output import Output


class Study:
    """Says what it is asked, as a study that has one trial running."""

    def drain(self, reason: str) -> None:
        self._say(f"drain: {reason}")

    def stop(self, reason: str) -> None:
        self._say(f"stop: {reason}")

    def leave(self, error: BaseException) -> None:
        raise error

    def running_words(self) -> str:
        return "the running trial needs about 12 s more"

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def main() -> int:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    try:
        with Interrupts(Study(), Output()) as interrupts:
            print("waiting", flush=True)
            while not ended.wait(0.05):
                # Writing all the time, so that signals come in the middle of a write as well.
                sys.stdout.write("." * 2000 + "\n")
                sys.stdout.flush()
    except KeyboardInterrupt as left:
        print(f"left: {type(left).__name__}", file=sys.stderr, flush=True)
        return 99
    return interrupts.exit_code or 0


if __name__ == "__main__":
    sys.exit(main())
