"""What a check says: one finding a fault, each with where it is, what was found and what to do.

Every floor but core offers checks that return findings; this module knows none of them, so that all may use it.
"""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Finding:
    """``code`` names the kind of fault for programs, ``where`` the file or part; ``remedy`` says what to do.

    ``severity`` is "ok" where nothing is wrong: ``what`` then says what was found, and ``remedy`` is empty.
    """

    severity: Literal["error", "warning", "ok"]
    code: str
    where: str
    what: str
    remedy: str

    def line(self) -> str:
        """All of it but the severity and the code, as one line."""
        faults = f"{self.what}; {self.remedy}" if self.remedy else self.what
        return f"{self.where}: {faults}" if self.where else faults


def error(code: str, where: object, what: str, remedy: str) -> Finding:
    """A fault with which a study cannot run, or would score something wrong."""
    return Finding("error", code, str(where), what, remedy)


def warning(code: str, where: object, what: str, remedy: str) -> Finding:
    """Something to know before a study is started or a score compared with another."""
    return Finding("warning", code, str(where), what, remedy)


def fine(code: str, where: object, what: str) -> Finding:
    """Something that was looked at and is in order."""
    return Finding("ok", code, str(where), what, "")
