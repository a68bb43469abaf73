"""Tune beside the study: its searcher asks for what the study queued, its trials carry jobs to the lanes.

The study decides what to try; Tune schedules it. Tune's directory is scratch: never read, never restored.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayActorError
from ray.tune.search import Searcher

from golfray.cluster.broker import NO_MORE_JOBS
from golfray.cluster.errors import describe_error

# While no trial is live, Tune has nothing else to do, so its searcher may wait for the study. Should it have to
# answer "nothing", Tune itself sleeps for a second before it asks again.
_IDLE_WAIT_SECONDS = 60.0

# While trials are live Tune asks at every turn of its loop, of which there are many a second.
_PAUSE_SECONDS = 0.2

# The study submits as many jobs as there are lanes. With no limit at all Tune would start its trials one by one.
_MOST_TRIALS = 10_000


class StudySearcher(Searcher):
    """Hands out the names of queued jobs; nothing while the queue is empty, finished when the broker is closed."""

    def __init__(self, broker: Any) -> None:
        super().__init__()
        self._broker = broker
        self._live: dict[str, str] = {}
        self._asked = 0.0

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next queued job; waits for one only while no trial is live."""
        if self._live and time.monotonic() < self._asked + _PAUSE_SECONDS:
            return None
        self._asked = time.monotonic()
        job_id = ray.get(self._broker.take.remote(0.0 if self._live else _IDLE_WAIT_SECONDS))
        if job_id is None:
            return None
        if job_id == NO_MORE_JOBS:
            return Searcher.FINISHED
        self._live[trial_id] = job_id
        return {"job_id": job_id}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Forget the trial; where Tune lost it before it passed its job on, the job ends by that."""
        job_id = self._live.pop(trial_id)
        if error:
            ray.get(self._broker.abandon.remote(job_id, "Tune's trial ended by an error before a lane had the job"))

    def save(self, checkpoint_path: str) -> None:
        """Tune insists on a file; the event log is what a study is rebuilt from."""
        Path(checkpoint_path).write_text("not restorable\n", encoding="utf-8")


def carry_job(config: dict[str, Any], broker: Any) -> dict[str, Any]:
    """The trainable: pass the job on, wait for its outcome, and tell Tune its kind and numbers."""
    outcome = ray.get(broker.pass_on.remote(config["job_id"]))
    return {"outcome": outcome["kind"], **outcome["metrics"]}


class TuneBridge:
    """Runs ``Tuner.fit`` in a thread of the host until the broker is closed."""

    def __init__(self, broker: Any, scratch: Path) -> None:
        trainable = tune.with_resources(
            tune.with_parameters(carry_job, broker=broker),
            # A whole CPU would be taken from the lanes, and none is refused; this also pins trials to the head node.
            {"node:__internal_head__": 0.001},
        )
        self._tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=StudySearcher(broker),
                num_samples=-1,
                max_concurrent_trials=_MOST_TRIALS,
                reuse_actors=True,
                trial_dirname_creator=_trial_folder,
            ),
            run_config=tune.RunConfig(name="tune", storage_path=str(scratch), verbose=0),
        )
        self._thread = threading.Thread(target=self._fit, name="tune", daemon=True)
        self._error: str | None = None

    @property
    def failure(self) -> str | None:
        """Why Tune ended, where it did so by an error."""
        return self._error

    def start(self) -> None:
        """Begin in the background; returns at once."""
        self._thread.start()

    def join(self, timeout: float | None) -> None:
        """Wait for Tune's end, ``timeout`` seconds at most."""
        self._thread.join(timeout)

    def _fit(self) -> None:
        try:
            self._tuner.fit()
        except RayActorError as error:
            self._error = f"the broker died: {describe_error(error)}"
        except Exception as error:  # noqa: BLE001  whatever ends Tune is the reason the study is told
            self._error = describe_error(error)


def _trial_folder(trial: Any) -> str:
    return str(trial.trial_id)
