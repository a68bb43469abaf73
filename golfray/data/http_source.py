"""Published data over http: any base address, and the dataset repositories of the Hub.

Plain http is for this machine itself only. The Hub's token goes to the Hub's own endpoint and nowhere else: a redirect
to another origin drops it, and no message shows it or the address that a redirect leads to.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import ipaddress
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import IO

import golfray
from golfray.data.errors import DataError
from golfray.data.fetch_errors import FetchError, MissingError, TransientError
from golfray.data.http_pace import PacedHandler, PacedSecureHandler
from golfray.data.sources import Stream, joined

HUB_ENDPOINT = "https://huggingface.co"
# As the Hub's own client reads them.
ENDPOINT_VARIABLE, TOKEN_VARIABLE = "HF_ENDPOINT", "HF_TOKEN"

TIMEOUT_S = 30.0
MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAY_PASS = frozenset({408, 425, 429, 500, 502, 503, 504})

SHA256 = re.compile(r"[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
# 18 digits are an exabyte: what is longer is no size.
CONTENT_LENGTH = re.compile(r"[0-9]{1,18}")
CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
MAX_TOLD_CHARACTERS = 120


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects come back as errors: where they lead is checked before anything is sent there."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> None:
        return None

    # Each of them would else take the address apart first, and some cannot be.
    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _RangeRefusedError(FetchError):
    """The file has no such bytes."""


class HttpSource:
    """Files below an address. Raises ``DataError`` where the address is not one that may be used."""

    def __init__(self, base: str, root: str, token: str | None = None, given_as: str = "") -> None:
        problem = _problem_of(base) or ("must have no '?' and no '#' in it" if set(base) & {"?", "#"} else "")
        if problem:
            raise DataError(f"{given_as}{_without_secrets(base)}: {problem}")
        self.base = base.rstrip("/")
        self.root = root
        self.name = joined(self.base, root)
        self._token = token
        self._reached = False

    @property
    def commit(self) -> str | None:
        """None: an address says nothing of commits."""
        return None

    def where(self, path: str) -> str:
        """The address of a file."""
        return f"{self.base}/{urllib.parse.quote(joined(self.root, path))}"

    @contextlib.contextmanager
    def open(self, path: str, offset: int = 0, count: int | None = None) -> Iterator[Stream]:
        """See ``Source``; a file's identity is the Hub's, or its ETag, or the time of its last change."""
        where = self.where(path)
        wanted = f"bytes={offset}-{'' if count is None else offset + count - 1}"
        try:
            response, told = self._follow(where, {"Range": wanted} if offset or count else {})
        except _RangeRefusedError:  # an empty file, or one that has become shorter: its whole answer says which
            response, told = self._follow(where, {})
        with response:
            self.note(told)
            start, size = _extent(where, response, offset)
            promised = (told.get("X-Linked-ETag") or "").strip('"')
            identity = promised or response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
            sha256 = promised if SHA256.fullmatch(promised) else None
            yield Stream(start, size, identity, sha256, lambda wanted: self._read(where, response, wanted))

    def note(self, told: Mapping[str, str]) -> None:
        """Take in what the answers to a request told besides the file."""

    def _follow(self, where: str, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, dict[str, str]]:
        """The answer at the end of the redirects, and what the answers on the way told in headers of the Hub."""
        common = {"User-Agent": f"golfray/{golfray.__version__}", "Accept-Encoding": "identity", **headers}
        url, token, told = where, self._token, dict[str, str]()
        for _ in range(MAX_REDIRECTS + 1):
            request = urllib.request.Request(url, headers=common)
            if token:
                request.add_unredirected_header("Authorization", f"Bearer {token}")
            answer = self._ask(where, request)
            told = {**_hub_headers(answer.headers), **told}
            if not isinstance(answer, urllib.error.HTTPError):
                return answer, told
            with answer:
                target = answer.headers.get("Location")
                if answer.code not in REDIRECTS or not target:
                    raise _explain(where, answer.code, answer.headers)
            following = _joined_address(url, target)
            if problem := _problem_of(following):
                raise FetchError(f"{where}: redirects to an address that is not followed: {problem}")
            if _origin(following) != _origin(url):
                token = None
            url = following
        raise FetchError(f"{where}: redirected more than {MAX_REDIRECTS} times")

    def _ask(self, where: str, request: urllib.request.Request) -> http.client.HTTPResponse | urllib.error.HTTPError:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), PacedHandler(), PacedSecureHandler()]
        if _is_loopback(urllib.parse.urlsplit(request.full_url).hostname):
            handlers.append(urllib.request.ProxyHandler({}))
        try:
            answer = urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            answer = error
        except UnicodeError as error:
            raise FetchError(f"{where}: not the name of a host: {_describe(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._no_answer(where, error) from error
        self._reached = True
        return answer

    def _no_answer(self, where: str, error: Exception) -> FetchError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return FetchError(
                f"{where}: the certificate of the server is not trusted: {printable(reason.verify_message)}"
            )
        text = f"{where}: no answer: {_describe(reason)}"
        if not self._reached and isinstance(reason, socket.gaierror | ConnectionRefusedError):
            return FetchError(f"{text}; is there a network here, and is the address right?")
        return TransientError(text)

    def _read(self, where: str, response: http.client.HTTPResponse, size: int) -> bytes:
        try:
            return response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{where}: the connection broke: {_describe(error)}") from error


class HubSource(HttpSource):
    """A dataset repository of the Hub at a revision; its endpoint and token are those of the Hub's own client.

    The first answer names the commit that the revision stands for, and every file after it is read from that commit: a
    repository that changes meanwhile cannot give a mixture.
    """

    def __init__(self, repository: str, revision: str, root: str, environment: Mapping[str, str]) -> None:
        endpoint = environment.get(ENDPOINT_VARIABLE) or HUB_ENDPOINT
        super().__init__(endpoint, root, environment.get(TOKEN_VARIABLE) or None, f"{ENDPOINT_VARIABLE}=")
        self.repository, self.revision = repository, revision
        self.name = joined(f"{repository}@{revision}", root)
        self._commit: str | None = None

    @property
    def commit(self) -> str | None:
        """The commit that the revision stood for at the first answer."""
        return self._commit

    def where(self, path: str) -> str:
        """The download address of a file."""
        revision = urllib.parse.quote(self._commit or self.revision, safe="")
        path = urllib.parse.quote(joined(self.root, path))
        return f"{self.base}/datasets/{self.repository}/resolve/{revision}/{path}"

    def note(self, told: Mapping[str, str]) -> None:
        """Keep the commit that the first answer names."""
        commit = told.get("X-Repo-Commit", "")
        if self._commit is None and COMMIT.fullmatch(commit):
            self._commit = commit


def _hub_headers(headers: Message) -> dict[str, str]:
    return {name: headers[name] for name in ("X-Linked-ETag", "X-Repo-Commit") if headers[name]}


def _extent(where: str, response: http.client.HTTPResponse, offset: int) -> tuple[int, int]:
    """Where an answer begins in the file, and how large the file is."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise FetchError(f"{where}: sent with the content encoding {printable(encoding)}, which was not asked for")
    if response.status == http.client.PARTIAL_CONTENT:
        text = response.headers.get("Content-Range", "")
        found = CONTENT_RANGE.fullmatch(text)
        if found is None or int(found[1]) != offset:
            raise FetchError(
                f"{where}: asked for bytes from {offset} on, answered with Content-Range {printable(text)!r}"
            )
        return offset, int(found[3])
    length = response.headers.get("Content-Length", "")
    if not CONTENT_LENGTH.fullmatch(length):
        raise FetchError(f"{where}: the server does not say how long the file is")
    return 0, int(length)


def _explain(where: str, code: int, headers: Message) -> DataError:
    said = f"{code} {http.client.responses.get(code, '')}".strip()
    if code in (http.client.NOT_FOUND, http.client.GONE):
        return MissingError(f"{where}: not there ({said})")
    if code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return FetchError(
            f"{where}: refused ({said}): the name may be wrong, or the repository private or gated; for one of the Hub "
            f"{TOKEN_VARIABLE} must then be set to a token that may read it"
        )
    if code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
        return _RangeRefusedError(f"{where}: the server answers {said}")
    if code in MAY_PASS:
        return TransientError(f"{where}: the server answers {said}", _retry_after_s(headers.get("Retry-After", "")))
    return FetchError(f"{where}: the server answers {said}")


def _retry_after_s(text: str) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or as a date."""
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return None


def _describe(error: object) -> str:
    return printable((error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__)


def printable(text: str) -> str:
    """What a server said, fit for one line of a terminal: what is not printable as its escape, and not without end."""
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return line if len(line) <= MAX_TOLD_CHARACTERS else f"{line[:MAX_TOLD_CHARACTERS]}..."


def _joined_address(url: str, target: str) -> str:
    """Where a redirect leads; one that is no address is left as it is, for what is wrong with it to be said."""
    try:
        return urllib.parse.urljoin(url, target)
    except ValueError:
        return target


def _problem_of(url: str) -> str:
    """Why an address may not be used; empty where it may."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # a bad one is found only when it is read
    except ValueError as error:
        return f"not an address: {printable(str(error))}"
    if not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        return "not an address such as https://host/folder"
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        return f"must begin with https:// (plain http is for this machine itself), got {parts.scheme}://"
    if parts.username or parts.password:
        return "must have no user and no password in it"
    return ""


def _without_secrets(url: str) -> str:
    """An address for a message: what could be a password or a signature is left out."""
    return re.sub(r"[?#].*", "?...", re.sub(r"//[^/]*@", "//...@", url))


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
