"""The one exception for what a person wrote wrongly: where, what, and what would be right."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any

_SHOWN_CHARACTERS = 80


class ConfigError(Exception):
    """A file, an override or a combination of values that golfray refuses before anything starts.

    ``file`` names the source as the reader knows it (a file, or ``--set``); ``line`` and ``column`` count from 1;
    ``path`` is the dotted path of the value. Parts that are unknown are None and are left out of the text.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.file = file
        self.line = line
        self.column = column

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        subject = " ".join(part for part in (place, self.path) if part)
        return f"{subject}: {self.message}" if subject else self.message


def shown(value: Any) -> str:
    """``value`` as it would be written in YAML flow style, cut to one readable length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = repr(value)
    except ValueError:
        # Python refuses to write out integers of thousands of digits.
        text = "an integer too long to show"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was most likely meant to be, or None where none is close.

    Dotted names are compared part by part: a right last part finds its home from any section; within a section that
    exists only the last part is compared, since the rest, being equal, would make any two names look alike.
    """
    candidates = sorted(known)
    section, _, last = name.rpartition(".")
    by_last = {candidate.rpartition(".")[2]: candidate for candidate in candidates}
    siblings = {
        candidate.rpartition(".")[2]: candidate for candidate in candidates if candidate.rpartition(".")[0] == section
    }
    same_last = {candidate: candidate for candidate in candidates if candidate.rpartition(".")[2] == last}
    whole = {} if siblings and section else {candidate: candidate for candidate in candidates}
    for written, names, cutoff in (
        (name, same_last, 0.0),
        (last, siblings, 0.55),
        (name, whole, 0.6),
        (last, by_last, 0.75),
    ):
        close = difflib.get_close_matches(written, names, n=1, cutoff=cutoff)
        if close:
            return names[close[0]]
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End of a message about an unknown name: the nearest known one, or all of them where none is near."""
    names = sorted(known)
    guess = nearest(name, names)
    return f"did you mean {guess}?" if guess is not None else f"known: {', '.join(names)}"
