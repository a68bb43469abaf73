"""What a check of data says: one finding a fault, each with where it is, what was found and what to do."""

from __future__ import annotations

import dataclasses
from typing import Literal

from golfray.data.errors import DataError


@dataclasses.dataclass(frozen=True)
class Finding:
    """``code`` names the kind of fault for programs, ``where`` the file or part; ``remedy`` says what to do."""

    severity: Literal["error", "warning"]
    code: str
    where: str
    what: str
    remedy: str

    def line(self) -> str:
        """All of it but the severity and the code, as one line."""
        return str(self.to_error())

    def to_error(self) -> DataError:
        """The fault as what is raised where nothing can go on with it."""
        return DataError(self.what, where=self.where, remedy=self.remedy)


def error(code: str, where: object, what: str, remedy: str) -> Finding:
    """A fault that makes a score on the data wrong or impossible."""
    return Finding("error", code, str(where), what, remedy)


def warning(code: str, where: object, what: str, remedy: str) -> Finding:
    """Something to know before a score on the data is compared with another."""
    return Finding("warning", code, str(where), what, remedy)
