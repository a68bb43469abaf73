"""What the tests of real lanes share: one executor of stand-in trials, and what became of every job."""

import collections
import json
import os
import pathlib

import pytest

from golfray.sweep.executor import Finished, Job

PATIENCE_SECONDS = 240
HERE = pathlib.Path(__file__).parent


class Lanes:
    """Drives one executor and remembers how often each job ended."""

    def __init__(self, folder, workers=2, **options):
        from golfray.cluster.executor import RayExecutor

        self.folder = folder
        defaults = {"device": "cpu", "cpus": 2, "run": "lane_standin:run", "cancel_grace_s": 2.0}
        self.executor = RayExecutor(folder, workers, **{**defaults, **options})
        self.ends = collections.Counter()
        self.submitted = []

    def submit(self, task, seed=0, **sections):
        job_id = f"job-{len(self.submitted)}"
        self.submitted.append(job_id)
        settings = {"data": {"folder": task}, "runtime": {"seed": seed}, **sections}
        self.executor.submit(Job(job_id, settings, f"attempts/{job_id}"))
        return job_id

    def events_until(self, wanted, job_id):
        events = []
        for _ in range(PATIENCE_SECONDS):
            for event in self.executor.events(1.0):
                events.append(event)
                self.ends[event.job_id] += isinstance(event, Finished)
            if any(isinstance(event, wanted) and event.job_id == job_id for event in events):
                return events
        raise AssertionError(f"no {wanted.__name__} of {job_id} within {PATIENCE_SECONDS} s")

    def outcome(self, job_id):
        events = self.events_until(Finished, job_id)
        (end,) = [event for event in events if isinstance(event, Finished) and event.job_id == job_id]
        return end.outcome

    def attempt(self, job_id):
        """The folder of a job."""
        return self.folder / "attempts" / job_id

    def notes(self, job_id, rank):
        """What a rank wrote: one line for every time it ran the job."""
        path = self.attempt(job_id) / f"rank-{rank}.json"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def pid(self, job_id, rank):
        """The process of a rank that ran the job."""
        return self.notes(job_id, rank)[0]["pid"]


@pytest.fixture(scope="module")
def start_lanes(tmp_path_factory):
    """Start an executor in a new folder; it is closed after the module's tests."""
    started = []
    with pytest.MonkeyPatch.context() as patch:
        # Ranks find the stand-in where this process finds it.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[1])]))
        patch.syspath_prepend(str(HERE))

        def start(workers=2, **options):
            started.append(Lanes(tmp_path_factory.mktemp("study"), workers, **options))
            return started[-1]

        yield start
        for lanes in started:
            lanes.executor.close()
