"""Where MLflow keeps a study: its own SQLite file, another file, or a server; what may be named, and whether it works.

Nothing here imports MLflow, so a mistake is told before seconds are spent on that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import re
import shlex
import sqlite3
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from golfray.sweep.disk_room import free_bytes, nearest_folder

STORE_NAME = "mlflow.db"
ARTIFACTS_NAME = "mlartifacts"

FREE_BYTES = 4 * 1024 * 1024
"""Room that a local store must find at the start: an empty MLflow database is 1 MB, and as much again while written."""

LOCK_SECONDS = 5.0
ANSWER_SECONDS = 3.0

_ALLOWED = "http://HOST:PORT, https://HOST, or sqlite:///PATH"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TrackingUriError(Exception):
    """A ``--tracking-uri`` that cannot be meant; the message says why, and never repeats a password."""

    exit_code = 2


class TrackingError(Exception):
    """MLflow's store cannot be reached, read or written. ``what``: which and why; ``advice``: what to do, or ""."""

    exit_code = 4

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what}; {advice}" if advice else what)
        self.what = what
        self.advice = advice


@dataclasses.dataclass(frozen=True)
class Store:
    """One MLflow store as one study uses it. ``path`` is its file or folder; None for a server."""

    uri: str
    study_folder: Path
    path: Path | None

    @classmethod
    def of(cls, study_folder: Path, tracking_uri: str | None = None) -> Store:
        """The store that ``tracking_uri`` names; None is the study's own, ``<study_folder>/mlflow.db``.

        Raises ``TrackingUriError``. Looks at nothing on disk or network.
        """
        folder = study_folder.expanduser().absolute()
        if tracking_uri is None:
            return cls._sqlite(folder, folder / STORE_NAME)
        parts = _split(tracking_uri)
        if parts.scheme in ("http", "https"):
            return cls(_server_uri(tracking_uri, parts), folder, None)
        if tracking_uri.startswith("sqlite:///"):
            return cls._sqlite(folder, Path(tracking_uri.removeprefix("sqlite:///")))
        if parts.scheme == "file":
            return cls._files(folder, parts.path)
        hint = f"; did you mean sqlite:///{tracking_uri}?" if tracking_uri.endswith(".db") and not parts.scheme else ""
        raise TrackingUriError(f"--tracking-uri: must be {_ALLOWED}, got {redacted(tracking_uri)}{hint}")

    @classmethod
    def _sqlite(cls, study_folder: Path, path: Path) -> Store:
        path = path.absolute()
        if "?" in str(path):
            raise TrackingUriError(f"{path}: MLflow cannot keep a store below a name with a '?' in it; rename it")
        return cls(f"sqlite:///{path}", study_folder, path)

    @classmethod
    def _files(cls, study_folder: Path, path: str) -> Store:
        if os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() not in ("true", "1"):
            raise TrackingUriError(
                "--tracking-uri: MLflow refuses to keep runs as plain files (file:) unless the environment has "
                f"MLFLOW_ALLOW_FILE_STORE=true; use {_ALLOWED}"
            )
        folder = Path(urllib.request.url2pathname(path)).absolute()
        return cls(folder.as_uri(), study_folder, folder)

    @property
    def is_server(self) -> bool:
        """Whether something else than this process reads and writes it."""
        return self.path is None

    @property
    def is_sqlite(self) -> bool:
        """Whether it is one SQLite file."""
        return self.uri.startswith("sqlite:")

    @property
    def is_own(self) -> bool:
        """Whether it is the study's own and holds nothing else."""
        return self.path == self.study_folder / STORE_NAME

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.uri if self.path is None else str(self.path)

    @property
    def recorded_uri(self) -> str | None:
        """What a study's log keeps of it, so that the study goes on with it; None for the study's own file."""
        return None if self.is_own else self.uri

    @property
    def exists(self) -> bool:
        """Whether there is anything yet; a server is taken to be there."""
        return self.path is None or holds_bytes(self.path)

    @property
    def keeps_files_here(self) -> bool:
        """Whether a ``file:`` artifact location of this store is a folder of this machine."""
        return not self.is_server or _split(self.uri).hostname in _LOOPBACK

    @property
    def track_command(self) -> str:
        """The command that writes everything that the log has and the store lacks."""
        command = f"golfray track {shlex.quote(str(self.study_folder))}"
        return command if self.is_own else f"{command} --tracking-uri {shlex.quote(self.uri)}"

    def artifact_location(self, experiment: str) -> str | None:
        """Where a new experiment keeps its files; None leaves it to the server."""
        if self.path is None:
            return None
        if self.is_own:
            return (self.study_folder / ARTIFACTS_NAME).as_uri()
        # Without this MLflow would choose a folder below whatever the current one is.
        beside = self.path.parent if self.is_sqlite else self.path
        return (beside / ARTIFACTS_NAME / urllib.parse.quote(experiment, safe="")).as_uri()

    def check(self) -> str | None:
        """What a study must know of its store before it starts: None, or one line of warning.

        A server that does not answer and a file that somebody has locked are warnings: the records are written when
        they let us. Raises ``TrackingError`` where a local store cannot be written at all.
        """
        if self.path is None:
            return self._check_server()
        locked = None
        if self.is_sqlite and holds_bytes(self.path):
            self._refuse_folder(self.path)
            try:
                check_database(self.path)
            except sqlite3.Error as error:
                if "locked" not in str(error):
                    raise TrackingError(f"{self.path}: MLflow's store: {error}", self.advice(error)) from error
                locked = f"{self.path} is locked by another process; what MLflow lacks is written when it is free"
        self._check_room(self.path.parent if self.is_sqlite else self.path)
        return locked

    def foresee(self) -> str | None:
        """As :meth:`check`, but nothing is written, and the study's own folder need not be there yet."""
        if self.path is None:
            return self._check_server()
        folder = self.path.parent if self.is_sqlite else self.path
        place = folder if folder.exists() else nearest_folder(folder)
        if self.is_sqlite and not self.is_own and place != folder:
            raise self._unwritable(folder, "No such file or directory")
        if self.is_sqlite and holds_bytes(self.path):
            self._refuse_folder(self.path)
            place = self.path
        if not os.access(place, os.W_OK):
            raise self._unwritable(place, "it may only be read")
        self._refuse_lack(nearest_folder(folder))
        return None

    def advice(self, error: BaseException) -> str:
        """What to do about a store that fails with ``error``, or "". Nothing is ever deleted by golfray itself."""
        text = str(error).lower()
        if self.is_server:
            return ""
        if any(words in text for words in ("not a database", "malformed", "no such table", "no such column")):
            return "move the file away: it is made again from the study's log"
        if "schema" in text or "revision" in text:
            return (
                "another version of MLflow made it: move it away, and it is made again from the study's log, or keep a "
                f"copy and run `mlflow db upgrade {shlex.quote(self.uri)}`"
            )
        if "readonly" in text or "read-only" in text:
            return "make it writable"
        return "make room" if "full" in text or "no space" in text else ""

    def _check_server(self) -> str | None:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=ANSWER_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            # Anything below 500 was said by a server that works; whether it lets us in is seen at the first record.
            why = None if error.code < 500 else f"HTTP {error.code}"
        except (urllib.error.URLError, OSError) as error:
            cause = getattr(error, "reason", error)
            # Which certificates are trusted is set by MLflow's own variables, which urllib does not know.
            why = None if isinstance(cause, ssl.SSLError) else str(getattr(cause, "strerror", None) or cause)
        except http.client.HTTPException:
            why = "what listens there does not speak HTTP"
        if why is None:
            return None
        return (
            f"MLflow at {self.name} does not answer ({why}); trials run without it, and what it lacks is written "
            "when it answers"
        )

    def _check_room(self, folder: Path) -> None:
        """Raise ``TrackingError`` where no file can be made in ``folder``, or hardly any."""
        try:
            if not self.is_sqlite:
                folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise self._unwritable(folder, str(error.strerror)) from error
        self._refuse_lack(folder)

    def _unwritable(self, place: Path, why: str) -> TrackingError:
        return TrackingError(
            f"{self.name}: MLflow's store cannot be written: {place}: {why}",
            "mend that, or name another store with --tracking-uri",
        )

    def _refuse_folder(self, path: Path) -> None:
        if path.is_dir():
            raise TrackingError(f"{path}: MLflow's store is a file, and this is a folder", "move it away")

    def _refuse_lack(self, folder: Path) -> None:
        """Raise ``TrackingError`` where a disk has no room for a store."""
        free = free_bytes(folder)
        if free < FREE_BYTES:
            raise TrackingError(
                f"{self.name}: MLflow's store needs {FREE_BYTES:,} free bytes at least, {folder} has {free:,}",
                "make room, or name another store with --tracking-uri",
            )


def redacted(uri: str) -> str:
    """``uri`` without what may be a secret: everything before an ``@``, query and fragment."""
    return re.sub(r"[?#].*", "?***", re.sub(r"^([a-z][a-z0-9+.-]*:/*)?.*@", r"\1***@", uri, flags=re.IGNORECASE))


def holds_bytes(path: Path) -> bool:
    """Whether there is a database: SQLite leaves an empty file where it looked for one that is gone."""
    return path.exists() and (path.is_dir() or path.stat().st_size > 0)


def check_database(path: Path) -> None:
    """Raise ``sqlite3.Error`` where the file cannot be written now: MLflow itself would try for minutes."""
    with contextlib.closing(sqlite3.connect(path, timeout=LOCK_SECONDS)) as database:
        database.execute("BEGIN IMMEDIATE")
        # A lock alone is also given on a file that may only be read; this writes what is there, and takes it back.
        (version,) = database.execute("PRAGMA user_version").fetchone()
        database.execute(f"PRAGMA user_version = {version}")
        database.rollback()


def _split(uri: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(uri)
        _ = parts.port
    except ValueError:
        # The parser's own words may quote a part of a password.
        raise TrackingUriError(f"--tracking-uri: {redacted(uri)} is no address; must be {_ALLOWED}") from None
    return parts


def _server_uri(uri: str, parts: urllib.parse.SplitResult) -> str:
    if "@" in uri:
        raise TrackingUriError(
            f"--tracking-uri: no user or password in the address ({redacted(uri)}), where others would read them; put "
            "them into the environment: MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if not parts.hostname:
        raise TrackingUriError(f"--tracking-uri: names no host: {redacted(uri)}; must be {_ALLOWED}")
    if parts.query or parts.fragment:
        raise TrackingUriError(f"--tracking-uri: must end with the path, got {redacted(uri)}")
    return uri.rstrip("/")
