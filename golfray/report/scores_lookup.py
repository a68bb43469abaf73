"""What a person means by one side of a claim or of a comparison: a trial, a file of scores, or a published row."""

from __future__ import annotations

import re
from pathlib import Path

from golfray.report.lookup import STUDIES, FoundStudy, FoundTrial, load_trial, trial_names
from golfray.sweep.scores import Scores
from golfray.sweep.scores_file import read_scores, reference_ids, reference_scores_of
from golfray.sweep.trial_scores import trial_scores

_ROW = re.compile(r"R\d+x?")


def names_row(text: str) -> bool:
    """Whether a text is the name of a published row, such as R40; no trial is called so."""
    return _ROW.fullmatch(text) is not None


def names_file(text: str) -> bool:
    """Whether a text is a file of scores; no trial is called so."""
    return text.endswith(".json")


def load_scores(text: str, evaluation: str, studies: Path = STUDIES) -> Scores:
    """The scores that ``muon/13``, ``scores.json`` or ``R40`` names; ``evaluation``: of a trial, which of its scores.

    Raises ``ConfigError`` where there are none, ``ClaimRefused`` where they cannot be what they say.
    """
    if names_row(text):
        return reference_scores_of(text)
    if names_file(text):
        return read_scores(Path(text))
    found = load_trial(text, studies)
    return trial_scores(found.study.record, found.trial, study=study_label(found.study, studies), evaluation=evaluation)


def study_label(study: FoundStudy, studies: Path = STUDIES) -> str:
    """How a study is typed: its name below ``studies``, else its folder."""
    return study.folder.name if study.folder.parent == studies else str(study.folder)


def trial_label(found: FoundTrial, studies: Path = STUDIES) -> str:
    """How a trial is typed."""
    return f"{study_label(found.study, studies)}/t{found.trial.number:03d}"


def scores_names(typed: str, studies: Path = STUDIES) -> list[str]:
    """What a shell may complete ``typed`` to: trials, studies, published rows, and files of scores."""
    rows = [row for row in reference_ids() if row.startswith(typed)]
    files = sorted(str(path) for path in Path().glob("*.json") if str(path).startswith(typed))
    return [*trial_names(typed, studies), *rows, *files]
