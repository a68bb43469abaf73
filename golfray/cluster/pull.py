"""Bringing a study home from the machine that runs it, while it runs or after, as often as one likes.

The log comes first and is put in place before anything else: it is small, it is what cannot be made again, and all that
it names is on the other machine by then. Then come the files of the size of an artifact, then what is larger
(checkpoints): whoever has only minutes left has the study, if not all of its weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from golfray.cluster.far_folder import PARTIAL, CannotPull, FarFolder, NotThere, Tell
from golfray.config.errors import ConfigError
from golfray.data.durable import write_whole
from golfray.findings import Finding
from golfray.sweep.events import LOG_NAME, events_in, without_torn
from golfray.sweep.home_copy import Artifact, artifacts_of, check_goes_on, log_at_home, why_not_whole
from golfray.sweep.records import StudyRecord
from golfray.sweep.study_folder import DRIVER_NAME, PULL, StudyFolderError, no_driver_in

# What an artifact may have: the cap of the challenge.
_SMALL_BYTES = 16_000_000

# Of one machine or one moment: who drives it, Ray's session with its token, what is only half written.
_LEFT_THERE = (f"/{LOG_NAME}", f"/{DRIVER_NAME}", "/ray/", "*.part", ".*.unfinished", f"{PARTIAL}/")


@dataclasses.dataclass(frozen=True)
class Pulled:
    """What one pull came to. ``record``: what the log says that is at home now.

    ``records``: in that log, ``new_records`` of which were not at home before. ``files`` and ``size`` (bytes): what
    came besides the log. ``artifacts``: how many the log names; ``lacking``: those that are not there as it says.
    """

    record: StudyRecord
    records: int
    new_records: int
    files: int
    size: int
    artifacts: int
    lacking: list[Finding]


class Pull:
    """Keeps ``folder`` at home a copy of the study in ``source``.

    ``left_there``: rsync's patterns of further files that do not come: what can be made again from the log.
    """

    def __init__(self, source: FarFolder, folder: Path, left_there: Sequence[str] = ()) -> None:
        self.source = source
        self.folder = folder
        self._excluded = (*_LEFT_THERE, *left_there)
        self._done: bytes | None = None
        self._whole: set[Artifact] = set()

    def once(self, tell: Tell = lambda size: None) -> Pulled | None:
        """Bring home what is new; None where the log has not grown since this was done last.

        ``tell`` hears of the size of every file that comes. Raises ``NotThere`` where there is no study, ``CannotPull``
        where the other machine or this disk fails, ``ConfigError`` where what is at home is no beginning of it,
        ``StudyLocked`` where a golfray is at work at home, ``EventLogError`` where the log is damaged there.
        """
        far = self._read_log()
        whole = without_torn(far)
        if whole == self._done:
            return None
        events = list(events_in(whole, f"{self.source}/{LOG_NAME}"))
        record = StudyRecord.from_events(events)
        if not events:
            raise ConfigError("its log has no whole record yet: the study is only starting", file=str(self.source))
        log_at_home(self.folder)
        self._make_folder()
        with no_driver_in(self.folder, PULL):
            home = log_at_home(self.folder)
            check_goes_on(home, far, self.folder, str(self.source))
            if home != whole:
                self._put(whole)
            sizes = self._fetch(tell)
            lacking = self._look(artifacts := artifacts_of(record, self.folder))
        self._done = whole
        return Pulled(
            record, len(events), len(events) - home.count(b"\n"), len(sizes), sum(sizes), len(artifacts), lacking
        )

    def _read_log(self) -> bytes:
        try:
            return self.source.read(LOG_NAME, self.folder)
        except NotThere:
            raise self._no_study() from None

    def _no_study(self) -> NotThere:
        """What is there instead, where it is a folder with studies."""
        try:
            names = self.source.folders_with(LOG_NAME)
        except NotThere:
            return NotThere("there is no such folder", file=str(self.source))
        has = f"; it has the studies {', '.join(sorted(names))}: name one" if names else ""
        return NotThere(f"no study there ({LOG_NAME} is missing){has}", file=str(self.source))

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyFolderError(
                f"{self.folder}: cannot be made: {error.strerror}; choose another with --study-dir"
            ) from error

    def _put(self, log: bytes) -> None:
        try:
            write_whole(self.folder / LOG_NAME, log)
        except OSError as error:
            raise CannotPull(f"{self.folder / LOG_NAME}: cannot be written: {error.strerror}") from error

    def _fetch(self, tell: Tell) -> list[int]:
        sizes: list[int] = []

        def came(size: int) -> None:
            sizes.append(size)
            tell(size)

        self.source.fetch(self.folder, self._excluded, came, largest=_SMALL_BYTES)
        self.source.fetch(self.folder, self._excluded, came)
        return sizes

    def _look(self, artifacts: list[Artifact]) -> list[Finding]:
        """What is not there as the log has it; what was there once is not read again."""
        found = {artifact: why_not_whole(artifact) for artifact in artifacts if artifact not in self._whole}
        self._whole.update(artifact for artifact, wrong in found.items() if wrong is None)
        return [wrong for wrong in found.values() if wrong is not None]
