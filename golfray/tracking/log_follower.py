"""Reading an event log while it grows: the queue between a study and its tracker is the log itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golfray.sweep.events import EventLogError, decode_record


class LogFollower:
    """Yields each record of a log once and in order; ``seq`` is the last one yielded, -1 before the first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seq = -1
        self._offset = 0

    def new_events(self) -> Iterator[dict[str, Any]]:
        """The whole records written since the last call, read one at a time.

        A last line that is torn waits for the next call. Raises ``EventLogError`` where a line before the last is
        damaged or ``seq`` has a gap, ``OSError`` where the log cannot be read.
        """
        with self.path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                try:
                    event = decode_record(line)
                except ValueError as error:
                    if not log.read(1):
                        return
                    raise EventLogError(f"{self.path}: damaged record after seq {self.seq} ({error})") from None
                if event.get("seq") != self.seq + 1:
                    raise EventLogError(f"{self.path}: expected seq {self.seq + 1}, got {event.get('seq')!r}")
                self._offset += len(line)
                self.seq += 1
                yield event
