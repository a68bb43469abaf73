"""What can go wrong on the way from a source of published data, and the exit code of each."""

from golfray.data.errors import DataError


class MissingError(DataError):
    """The source has no such file."""


class FetchError(DataError):
    """The network or the server failed; what was fetched stays, and the same command continues there."""

    exit_code = 4


class TransientError(FetchError):
    """A failure that may pass: the same request is worth another try, ``retry_after_s`` from now where that is said."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class FetchLockedError(DataError):
    """Another process fetches into the same folder."""

    exit_code = 5
