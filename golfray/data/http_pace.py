"""Connections of http that cannot be held for ever: a server that sends next to nothing has not answered."""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.request
from collections.abc import Callable

# So much must come within so much time of waiting, whatever the time between two bytes.
PACE_BYTES, PACE_S = 1024, 120.0
# Status line and headers, those of all "100 Continue" before them included.
MAX_HEAD_BYTES = 1 << 20


class PacedReader(io.RawIOBase):
    """What ``raw`` gives, as long as it comes: raises ``TimeoutError`` where less than 1,024 bytes came in 120 s.

    Only the time spent waiting counts; ``clock`` gives seconds. At most ``limit`` bytes are let through where that is
    not None (``http.client.HTTPException`` beyond it).
    """

    def __init__(self, raw: io.RawIOBase, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: int | None = None
        self._raw, self._clock = raw, clock
        self._waited_s, self._came = 0.0, 0

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        """See ``io.RawIOBase``."""
        asked = self._clock()
        count = self._raw.readinto(buffer)
        self._waited_s += self._clock() - asked
        self._came += count or 0
        if count and self.limit is not None:
            self.limit -= count
            if self.limit < 0:
                raise http.client.HTTPException(f"headers of more than {MAX_HEAD_BYTES:,} bytes")
        if count and self._came < PACE_BYTES and self._waited_s > PACE_S:
            raise TimeoutError(f"only {self._came:,} bytes came in {self._waited_s:.0f} s")
        if self._came >= PACE_BYTES:
            self._waited_s, self._came = 0.0, 0
        return count

    def close(self) -> None:
        """Close what is read from."""
        self._raw.close()
        super().close()


class _PacedResponse(http.client.HTTPResponse):
    """An answer whose bytes keep the pace, and whose headers end."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp.close()
        self._paced = PacedReader(sock.makefile("rb", buffering=0))
        self.fp = io.BufferedReader(self._paced)

    def begin(self) -> None:
        """Read status and headers."""
        self._paced.limit = MAX_HEAD_BYTES
        super().begin()
        self._paced.limit = None


class _PacedConnection(http.client.HTTPConnection):
    response_class = _PacedResponse


class _PacedSecureConnection(http.client.HTTPSConnection):
    response_class = _PacedResponse


class PacedHandler(urllib.request.HTTPHandler):
    """Opens http addresses."""

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """See ``urllib.request.HTTPHandler``."""
        return self.do_open(_PacedConnection, request)


class PacedSecureHandler(urllib.request.HTTPSHandler):
    """Opens https addresses; certificates are verified as by default."""

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """See ``urllib.request.HTTPSHandler``."""
        return self.do_open(_PacedSecureConnection, request)
