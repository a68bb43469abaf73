"""What goes wrong with data and a person can mend."""

from __future__ import annotations

from golfray.findings import Finding


class DataError(ValueError):
    """A corpus that is missing, changed, damaged or not fit for its use.

    ``what`` is wrong, ``where`` (a file or a part of one) and ``remedy`` (what to do); the text is all three, those
    that are not given left out.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: object = "", remedy: str = "") -> None:
        self.what = what
        self.where = str(where)
        self.remedy = remedy
        super().__init__(f"{self.where}: {self.faults}" if self.where else self.faults)

    @classmethod
    def of(cls, finding: Finding) -> DataError:
        """A fault that was found, as what is raised where nothing can go on with it."""
        return cls(finding.what, where=finding.where, remedy=finding.remedy)

    @property
    def faults(self) -> str:
        """The text without ``where``, for whoever knows the thing by another name."""
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


class CannotWriteError(DataError):
    """A folder of data that could not be written: a full or read-only disk, a folder of somebody else."""

    exit_code = 4
