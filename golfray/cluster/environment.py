"""One Ray session for one study: its variables, its token, its folders, its beginning and its end.

Everything that must be set before Ray is imported is set here and nowhere else. A study has its own local cluster
unless an address is given; it never joins a cluster that merely happens to run on this machine.

Below the study's directory:

- ``ray/auth_token``  the token of the study's own cluster (mode 0600)
- ``ray/driver.log``  what Ray says in the driver's process
- ``ray/logs``        Ray's session logs: a link while the cluster runs, the files themselves after it ended
- ``ray/scratch``     Tune's and Train's own directories; never read
"""

from __future__ import annotations

import dataclasses
import logging
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from golfray.cluster.preflight import EnvironmentProblem

# Train's controller looks at its ranks this often: a dead rank is noticed, and a finished lane ends, this late. Reports
# go to the broker and do not wait for it, while every look costs the ranks time that they should train.
_POLL_SECONDS = "1.0"

_VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": _POLL_SECONDS,
    # Otherwise a worker's prints appear twice in its log.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # The rest of a cluster should take as little of the ranks' CPU as it can: no statistics that nobody reads.
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    # Ranks stay in the driver's current folder, so that relative data paths mean the same everywhere.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # What remains of Ray's chatter on the driver's console (a rank that died) is in its logs and in the outcome.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Tune's older reporter is silent at verbosity 0; the newer one still prints a configuration box.
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}

# Jobs and results are a few kilobytes, so Ray need not claim its usual third of the memory.
_OBJECT_STORE_BYTES = 128 * 1024 * 1024

_LAST_MOMENTS_SECONDS = 10.0

# A socket path holds 107 bytes, of which Ray appends up to about 65 (session name, sockets/plasma_store).
_LONGEST_TEMP_FOLDER = 40


@dataclasses.dataclass
class Session:
    """A running Ray session. ``temp_folder`` is None where the cluster is somebody else's."""

    folder: Path
    address: str
    dashboard_url: str
    temp_folder: Path | None
    _saved_environment: dict[str, str | None]
    _saved_handlers: list[logging.Handler]
    _log_handler: logging.Handler

    def describe(self) -> list[str]:
        """Lines that say which cluster this is and where its files are."""
        if self.temp_folder is None:
            return [f"Ray cluster at {self.address}"]
        return [
            f"own Ray cluster, dashboard {self.dashboard_url} (token in {self.folder / 'auth_token'})",
            f"Ray's temporary files in {self.temp_folder}, its logs in {self.folder / 'logs'}",
        ]


def start_session(study_folder: Path, address: str | None = None, cpus: int | None = None) -> Session:
    """Start a local cluster for this study, or connect to the cluster at ``address`` where one is given.

    ``cpus`` limits what a local cluster offers (None: all that this process may use). The token of a local cluster is
    made here; that of a given cluster is taken from RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH as its owner set them.
    Raises :class:`EnvironmentProblem` where Ray runs in this process already, cannot start, or cannot be reached.
    """
    folder = study_folder.resolve() / "ray"
    folder.mkdir(parents=True, exist_ok=True)
    variables = dict(_VARIABLES)
    removed: tuple[str, ...] = ()
    if address is None:
        variables["RAY_AUTH_TOKEN_PATH"] = str(_write_token(folder / "auth_token"))
        # The switch is named after the systems where it is the default: every server listens on loopback only.
        variables["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        removed = ("RAY_AUTH_TOKEN",)  # it would win over the file
        if "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER" not in os.environ:
            variables["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"  # nobody takes this machine away
    elif not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
        raise EnvironmentProblem(
            f"the Ray cluster at {address} needs its token: set RAY_AUTH_TOKEN_PATH to the file that holds it"
        )
    saved = {name: os.environ.get(name) for name in (*variables, *removed)}
    os.environ.update(variables)
    for name in removed:
        os.environ.pop(name, None)

    import ray
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]  # a compiled module

    if address is None and ray_constants.ENABLE_RAY_CLUSTER:
        _restore_environment(saved)
        raise EnvironmentProblem("Ray was imported before golfray could set its variables; import it later")
    if ray.is_initialized():
        _restore_environment(saved)
        raise EnvironmentProblem("Ray is running in this process already; close that session first")
    # Ray keeps the first token it ever read in this process; a second study has another one.
    AuthenticationTokenLoader.instance().reset_cache()
    handler = logging.FileHandler(folder / "driver.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ray_logger = logging.getLogger("ray")
    saved_handlers, ray_logger.handlers = ray_logger.handlers, [handler]
    temp_folder = None
    session = Session(folder, address or "", "", None, saved, saved_handlers, handler)
    try:
        if address is None:
            temp_folder = Path(tempfile.mkdtemp(prefix="golfray-", dir=_short_temp_folder()))
            session.temp_folder = temp_folder
            context = ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=True,
                dashboard_host="127.0.0.1",
                object_store_memory=_OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.INFO,
                _temp_dir=str(_ray_folder(temp_folder)),
            )
            _link_logs(folder / "logs", temp_folder)
        else:
            context = ray.init(address=address, log_to_driver=False, logging_level=logging.INFO)
    except (RuntimeError, ValueError, OSError, TimeoutError, ray.exceptions.RayError) as error:
        stop_session(session)
        what = "no local Ray cluster could be started" if address is None else f"no Ray cluster answers at {address}"
        raise EnvironmentProblem(f"{what}: {type(error).__name__}: {error} (see {folder / 'driver.log'})") from error
    except BaseException:  # an interruption must not leave half a cluster behind
        stop_session(session)
        raise
    session.address = context.address_info["address"]
    session.dashboard_url = f"http://{context.dashboard_url}" if context.dashboard_url else ""
    return session


def stop_session(session: Session) -> None:
    """Leave the cluster; a local one ends, its logs move into the study's directory and its temporary files go."""
    import ray

    processes = _cluster_processes(session.temp_folder) if session.temp_folder is not None else []
    ray.shutdown()
    _wait_until_gone(processes)
    ray_logger = logging.getLogger("ray")
    ray_logger.handlers = session._saved_handlers
    _restore_environment(session._saved_environment)
    try:
        session._log_handler.close()
        if session.temp_folder is not None and session.temp_folder.exists():
            _keep_logs(session.folder / "logs", session.temp_folder)
    except OSError as error:  # the disk is full: the study must still end as itself
        print(f"Ray's logs could not be kept in {session.folder}: {error}", file=sys.stderr)
    finally:
        if session.temp_folder is not None:
            shutil.rmtree(session.temp_folder, ignore_errors=True)


def _cluster_processes(temp_folder: Path) -> list[Any]:
    """The servers that ``ray.init`` started for this session, known by the folder they use, and their children."""
    import psutil  # type: ignore[import-untyped]  # Ray brings it along

    found = []
    for child in psutil.Process().children():
        try:
            if any(str(temp_folder) in part for part in child.cmdline()):
                found += [child, *child.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
    return found


def _wait_until_gone(processes: list[Any]) -> None:
    """Ray's workers see a moment late that their server has ended; what does not see it at all is killed."""
    import psutil

    _, alive = psutil.wait_procs(processes, timeout=_LAST_MOMENTS_SECONDS)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue  # it ended by itself meanwhile
    psutil.wait_procs(alive, timeout=_LAST_MOMENTS_SECONDS)


def _write_token(path: Path) -> Path:
    """A new token for every session, readable by its owner only."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path


def _ray_folder(temp_folder: Path) -> Path:
    """Ray opens its folder to everybody; one level up is the folder that only its owner may enter."""
    return temp_folder / "r"


def _short_temp_folder() -> str:
    """The system's temporary folder if Ray's socket paths fit below it, else /tmp."""
    usual = tempfile.gettempdir()
    return usual if len(usual) + len("/golfray-12345678/r") <= _LONGEST_TEMP_FOLDER else "/tmp"


def _link_logs(link: Path, temp_folder: Path) -> None:
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)
    link.symlink_to(_ray_folder(temp_folder) / "session_latest" / "logs")


def _keep_logs(kept: Path, temp_folder: Path) -> None:
    if not kept.is_symlink():
        return
    source = kept.resolve()
    kept.unlink()
    if source.is_dir():
        shutil.copytree(source, kept, symlinks=True, ignore_dangling_symlinks=True)


def _restore_environment(saved: dict[str, str | None]) -> None:
    for name, value in saved.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
