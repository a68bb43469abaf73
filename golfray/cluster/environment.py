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
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golfray.cluster.preflight import EnvironmentProblem
from golfray.cluster.servers import FarServers, OwnServers, Servers, why_closed
from golfray.cluster.session_processes import MARK, end_processes, processes_of
from golfray.cluster.temp_folder import TempFolder, sweep_dead_folders
from golfray.cluster.watchdog import Watchdog

# Train's controller looks at its ranks this often: a dead rank is noticed, and a finished lane ends, this late. Reports
# go to the broker and do not wait for it, while every look costs the ranks time that they should train.
_POLL_SECONDS = "1.0"

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": _POLL_SECONDS,
    # Otherwise a worker's prints appear twice in its log.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # Whoever asks Ray for something once the session is over must not start another cluster by that.
    "RAY_ENABLE_AUTO_CONNECT": "0",
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

_LAST_MOMENTS_SECONDS = 5.0
_SHUTDOWN_SECONDS = 15.0

# A cold start takes 5 s on a quiet machine and 30 s on a busy one.
START_LIMIT_SECONDS = 180.0

_LOG_TAIL_LINES = 5


@dataclasses.dataclass
class Session:
    """A running Ray session. ``temp_folder`` and ``watchdog`` are None where the cluster is somebody else's.

    ``servers`` is None until it has started; ``over`` is set when it has ended.
    """

    folder: Path
    address: str
    dashboard_url: str
    _saved_environment: dict[str, str | None]
    _saved_handlers: list[logging.Handler]
    _log_handler: logging.Handler
    temp_folder: TempFolder | None = None
    watchdog: Watchdog | None = None
    servers: Servers | None = None
    over: threading.Event = dataclasses.field(default_factory=threading.Event)

    def describe(self) -> list[str]:
        """Lines that say which cluster this is and where its files are."""
        if self.temp_folder is None:
            return [f"Ray cluster at {self.address}"]
        return [
            f"own Ray cluster, dashboard {self.dashboard_url} (token in {self.folder / 'auth_token'})",
            f"Ray's temporary files in {self.temp_folder.path}, its logs in {self.folder / 'logs'}",
        ]


def start_session(
    study_folder: Path,
    address: str | None = None,
    cpus: int | None = None,
    start_limit_s: float = START_LIMIT_SECONDS,
) -> Session:
    """Start a local cluster for this study, or connect to the cluster at ``address`` where one is given.

    ``cpus`` limits what a local cluster offers (None: all that this process may use). The token of a local cluster is
    made here; that of a given cluster is taken from RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH as its owner set them.
    Raises :class:`EnvironmentProblem` where Ray runs in this process already, cannot start or be reached, or is not up
    within ``start_limit_s`` seconds.
    """
    folder = study_folder.resolve() / "ray"
    folder.mkdir(parents=True, exist_ok=True)
    variables = dict(VARIABLES)
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
    elif address != "auto" and (closed := why_closed(address)) is not None:  # Ray itself would try for minutes
        raise EnvironmentProblem(f"no Ray cluster answers at {address}: {closed}")
    saved = {name: os.environ.get(name) for name in (*variables, *removed, MARK)}
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
    session = Session(folder, address or "", "", saved, saved_handlers, handler)
    try:
        if address is None:
            context = _start_cluster(session, cpus, start_limit_s)
        else:
            context = _bounded(
                lambda: ray.init(address=address, log_to_driver=False, logging_level=logging.INFO),
                start_limit_s,
                session,
            )
    except Exception as error:  # Ray raises plain ones too, such as where a node times out during startup
        what = "no local Ray cluster could be started" if address is None else f"no Ray cluster answers at {address}"
        said = _last_words(session)
        stop_session(session, broken=True)
        raise EnvironmentProblem(f"{what}: {type(error).__name__}: {error}{said}") from error
    except BaseException:  # an interruption must not leave half a cluster behind
        stop_session(session, broken=True)
        raise
    session.address = context.address_info["address"]
    session.servers = session.servers or FarServers(context.address_info["gcs_address"])
    session.dashboard_url = f"http://{context.dashboard_url}" if context.dashboard_url else ""
    return session


def stop_session(session: Session, broken: bool = False) -> None:
    """Leave the cluster; a local one ends, its logs move into the study's directory and its temporary files go.

    ``broken``: its processes are killed first, for it may not answer any more.
    """
    import ray

    local = session.temp_folder
    spared = {os.getpid(), session.watchdog.pid if session.watchdog else 0}
    if local is None:
        ray.shutdown()
    else:
        if broken:
            end_processes(local.path, spared, _LAST_MOMENTS_SECONDS)
        # Ray waits without limit for servers that hang.
        force = threading.Timer(_SHUTDOWN_SECONDS, end_processes, (local.path, spared, _LAST_MOMENTS_SECONDS))
        force.daemon = True
        force.start()
        ray.shutdown()
        force.cancel()
        _wait_until_gone(local.path, spared)
    session.over.set()
    logging.getLogger("ray").handlers = session._saved_handlers
    _restore_environment(session._saved_environment)
    try:
        session._log_handler.close()
        if local is not None:
            local.discard()
    except OSError as error:  # the disk is full: the study must still end as itself
        print(f"Ray's logs could not be kept in {session.folder}: {error}", file=sys.stderr)
    finally:
        if session.watchdog is not None:
            session.watchdog.dismiss()


def _start_cluster(session: Session, cpus: int | None, limit_s: float) -> Any:
    """A cluster of our own; its parts are put into the session as they come, so that they can be taken down."""
    import ray

    sweep_dead_folders()
    folder = session.temp_folder = TempFolder(session.folder / "logs")
    os.environ[MARK] = str(folder.path)
    session.watchdog = Watchdog(folder.path)

    def start() -> Any:
        return ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=True,
            dashboard_host="127.0.0.1",
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.INFO,
            _temp_dir=str(folder.ray_folder),
        )

    context = _bounded(start, limit_s, session)
    session.servers = OwnServers(session.folder / "logs")
    return context


def _bounded(start: Callable[[], Any], limit_s: float, session: Session) -> Any:
    """What ``start`` returns or raises. Raises ``TimeoutError`` after ``limit_s`` seconds.

    Ray waits for its servers in native code, where no signal is answered; here the main thread stays free for them.
    Ray's servers end with the thread that started them, so that thread lives until the session has ended. They inherit
    its mask: a terminal that is closed tells every process on it so, and the driver alone shall end a study for that.
    """
    ended = threading.Event()
    results: list[Any] = []
    errors: list[BaseException] = []

    def call() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            results.append(start())
        except BaseException as error:  # noqa: BLE001  raised again in the thread that waits
            errors.append(error)
        ended.set()
        session.over.wait()

    threading.Thread(target=call, name="ray.init", daemon=True).start()
    if not ended.wait(limit_s):
        raise TimeoutError(f"it was not up within {limit_s:g} s")
    if errors:
        raise errors[0]
    return results[0]


def _last_words(session: Session) -> str:
    """The end of the log that was written last, for an error message."""
    logs = [path for path in (session.folder / "logs").glob("*.out") if path.stat().st_size]
    logs += [path for path in (session.folder / "logs").glob("*.err") if path.stat().st_size]
    last = max(logs, key=lambda path: path.stat().st_mtime, default=session.folder / "driver.log")
    lines = last.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return f"\n{last} ends with:\n" + "\n".join(lines)


def _wait_until_gone(temp_folder: Path, spared: set[int]) -> None:
    """Ray's processes see a moment late that their server has ended; what does not see it at all is killed."""
    import psutil  # type: ignore[import-untyped]

    psutil.wait_procs(processes_of(temp_folder, spared), timeout=_LAST_MOMENTS_SECONDS)
    end_processes(temp_folder, spared, _LAST_MOMENTS_SECONDS)


def _write_token(path: Path) -> Path:
    """A new token for every session, readable by its owner only."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path


def _restore_environment(saved: dict[str, str | None]) -> None:
    for name, value in saved.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
