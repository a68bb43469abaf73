"""MLflow itself: imported late, quietly, with limits on every call, and its errors in our words."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golfray.tracking.store import LOCK_SECONDS, Store, TrackingError, check_database, holds_bytes

REQUEST_SECONDS = 30
"""How long a server may take to answer; no trial waits for it, so a slow one is given time."""

# Whoever wants them otherwise sets them first; MLflow reads them at every call.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(REQUEST_SECONDS),
    # Standard output is ours, and with --json for documents alone.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A request that was only late is carried out twice if it is sent twice: whoever failed looks at the store first.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    # A pooled connection goes on with a file that was deleted or replaced; a new one costs 3 ms.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
}

_REASON_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class Mlflow:
    """What golfray uses of MLflow. ``errors`` is what a store that fails may raise."""

    client: Any
    entities: Any
    errors: tuple[type[Exception], ...]


def set_environment() -> None:
    """Set what MLflow reads from the environment. Call it before threads run that may read the environment too."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def load_mlflow() -> Mlflow:
    """Import MLflow: seconds of work.

    What it and alembic log stays off the console: progress is nobody's concern, and what goes wrong is logged with a
    traceback before it is raised.
    """
    set_environment()
    tracking, entities = importlib.import_module("mlflow.tracking"), importlib.import_module("mlflow.entities")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    errors = (
        importlib.import_module("mlflow.exceptions").MlflowException,
        importlib.import_module("sqlalchemy.exc").SQLAlchemyError,
        importlib.import_module("alembic.util.exc").CommandError,
        # JSON of another service.
        importlib.import_module("google.protobuf.json_format").ParseError,
        sqlite3.Error,
        OSError,
    )
    return Mlflow(tracking.MlflowClient, entities, errors)


def open_store(mlflow: Mlflow, store: Store) -> Any:
    """An ``MlflowClient`` of the store; a missing SQLite file is made. Raises ``TrackingError``."""
    with explained(mlflow, store):
        if store.is_sqlite and store.path is not None:
            if holds_bytes(store.path):
                check_database(store.path)
            else:
                _make_database(mlflow, store.path)
        return mlflow.client(tracking_uri=store.uri, registry_uri=store.uri)


@contextlib.contextmanager
def explained(mlflow: Mlflow, store: Store) -> Iterator[None]:
    """Turn what the store raises into ``TrackingError``."""
    try:
        yield
    except mlflow.errors as error:
        raise TrackingError(f"MLflow at {store.name}: {reason_of(error)}", store.advice(error)) from error


def reason_of(error: BaseException) -> str:
    """Why a call failed, on one line: the innermost cause, since MLflow wraps it in addresses and SQL."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    texts = [str(link) for link in chain]
    if any("timed out" in text for text in texts):
        seconds = os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]
        return f"no answer within {seconds} s (MLFLOW_HTTP_REQUEST_TIMEOUT)"
    for link in reversed(chain):
        if isinstance(link, OSError) and link.errno is not None and link.strerror:
            return link.strerror if link.filename is None else f"{link.filename}: {link.strerror}"
        if isinstance(link, sqlite3.Error):
            locked = f" (waited {LOCK_SECONDS:g} s)" if "locked" in str(link) else ""
            return f"{link}{locked}"
    first = (texts[0].strip() or type(error).__name__).splitlines()[0]
    return first if len(first) <= _REASON_CHARACTERS else f"{first[:_REASON_CHARACTERS]} ..."


def _make_database(mlflow: Mlflow, path: Path) -> None:
    """Make MLflow's tables in a new file, which gets its name at the end: a kill in between leaves no half of them."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        unfinished = Path(folder) / path.name
        uri = f"sqlite:///{unfinished}"
        mlflow.client(tracking_uri=uri, registry_uri=uri).search_experiments(max_results=1)
        unfinished.replace(path)
