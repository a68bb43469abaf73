"""Which study and which trial a person means by a few characters."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from golfray.config.errors import ConfigError, nearest
from golfray.sweep.events import LOG_NAME, EventLogError, read_events
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import TrialRecord

STUDIES = Path("studies")

_NUMBER = re.compile(r"t?(\d{1,9})")


@dataclasses.dataclass(frozen=True)
class FoundStudy:
    """A study's folder and what its log says."""

    folder: Path
    record: StudyRecord


@dataclasses.dataclass(frozen=True)
class FoundTrial:
    """A trial and the study that it belongs to."""

    study: FoundStudy
    trial: TrialRecord


def study_names(studies: Path = STUDIES) -> list[str]:
    """Names of the studies below ``studies``, the most recently written one first."""
    logs = [(log.stat().st_mtime_ns, log.parent.name) for log in studies.glob(f"*/{LOG_NAME}")]
    return [name for _, name in sorted(logs, reverse=True)]


def find_study(name: str | None, studies: Path = STUDIES) -> Path:
    """The folder of a study: ``name`` is a folder, or a name below ``studies``; None means the latest one there.

    Raises ``ConfigError`` where there is no such study.
    """
    names = study_names(studies)
    if name is None:
        if not names:
            raise ConfigError(f"no study in {studies}/ here; name the folder of one, or start one with `golfray tune`")
        return studies / names[0]
    places = (Path(name), studies / name)
    for folder in places:
        if (folder / LOG_NAME).is_file():
            return folder
    for folder in places:
        if os.path.lexists(folder / LOG_NAME):
            raise ConfigError(f"its {LOG_NAME} is no regular file; restore it from a copy", file=str(folder))
    guess = nearest(name, names)
    if guess is not None:
        hint = f"did you mean {guess}?"
    elif names:
        hint = f"{studies}/ has {', '.join(sorted(names))}"
    else:
        hint = f"there is none in {studies}/ either"
    raise ConfigError(f"no study here ({LOG_NAME} is missing); {hint}", file=name)


def load_study(name: str | None, studies: Path = STUDIES) -> FoundStudy:
    """A study as its log tells it, while it is being written or after; raises as :func:`find_study`.

    Raises ``EventLogError`` where the log is damaged, ``ConfigError`` where nothing is in it yet.
    """
    folder = find_study(name, studies)
    record = StudyRecord.from_events(read_events(folder / LOG_NAME))
    if not record.header:
        raise ConfigError("its log has no whole record yet: the study is only starting", file=str(folder))
    return FoundStudy(folder, record)


def load_trial(text: str, studies: Path = STUDIES) -> FoundTrial:
    """The trial that ``3``, ``t003``, ``muon/3`` or ``studies/muon/t003`` names; alone, of the latest study.

    Raises ``ConfigError`` where the text names no trial, or none that the study has.
    """
    study_name, slash, last = text.rstrip("/").rpartition("/")
    match = _NUMBER.fullmatch(last)
    if match is None or (slash and not study_name):
        raise ConfigError("names no trial; write 3, t003, muon/3 or studies/muon/t003", file=text)
    # A trial's own folder names it as well as its study's does.
    study = load_study(study_name.removesuffix("/trials") or None, studies)
    trials = study.record.trials
    number = int(match[1])
    if number >= len(trials):
        has = {0: "none yet", 1: "only t000"}.get(len(trials), f"t000 to t{len(trials) - 1:03d}")
        raise ConfigError(f"no trial {number} in {study.folder}: it has {has}", file=text)
    return FoundTrial(study, trials[number])


def trial_names(typed: str, studies: Path = STUDIES) -> list[str]:
    """What a shell may complete ``typed`` to: trials of a study that it names, else of the latest one, and studies."""
    study_name, slash, last = typed.rpartition("/")
    try:
        trials = load_study(study_name or None, studies).record.trials
    except (ConfigError, EventLogError):
        trials = []
    found = [f"{study_name}{slash}t{trial.number:03d}" for trial in trials]
    if not slash:
        found += [f"{name}/" for name in study_names(studies)]
    return [name for name in found if name.startswith(f"{study_name}{slash}{last}")]
