"""A study without Ray: real jobs go in, outcomes of a synthetic law come out, lane by lane and in a fixed order."""

from __future__ import annotations

import math
import textwrap
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golfray.sweep.executor import Entered, Finished, Holding, Job, JobEvent, Progress, Started
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.space import Space, load_space
from golfray.sweep.study import Study
from golfray.sweep.study_folder import create_study_folder

UNIFORM_BPB = 4.0
BYTES_CODE = 50_000
DATA = {"folder": "", "name": "synthetic", "reference": {"uniform": UNIFORM_BPB}, "warning": None}
FIDELITY = {"device": "cpu", "dtype": "float32", "compiled": False, "workers": 2, "stop": "15 s"}

Law = Callable[[dict[str, Any]], Outcome]


def synthetic_law(settings: dict[str, Any]) -> Outcome:
    """A valley in the learning rate and the momentum, a price for few bits, bytes by bits, noise by seed."""
    rate, bits = settings["optimizer"]["matrix_lr"], settings["export"]
    bpb = 2.0 + 0.05 * math.log(rate / 0.06) ** 2 + 2.0 * abs(settings["muon"]["momentum_end"] - 0.93)
    bpb += sum(0.3 * 2.0 ** -bits[f"bits_{part}"] for part in ("attention", "mlp", "embedding"))
    bpb += 0.006 * math.sin(7919.0 * settings["runtime"]["seed"])
    model = 12_000 * (bits["bits_attention"] + bits["bits_mlp"] + bits["bits_embedding"])
    total = model + settings["bytes_code"]
    over = total > settings["cap_bytes"]
    return Outcome(
        kind=Kind.INFEASIBLE if over else Kind.SCORED,
        reason=f"{total} bytes against a cap of {settings['cap_bytes']}",
        metrics={"bpb/roundtrip": bpb, "bytes/total": total, "bytes/margin": settings["cap_bytes"] - total},
        phases={"train": 15.0},
        fidelity=FIDELITY,
    )


class SyntheticExecutor:
    """Runs jobs in ``slots`` lanes; each call of ``events`` moves every lane on by one step of started, curve, end."""

    def __init__(
        self, law: Law = synthetic_law, slots: int = 1, finish_order: Callable[[str], int] | None = None
    ) -> None:
        self._law = law
        self._slots = slots
        self._finish_order = finish_order
        self._queue: deque[Job] = deque()
        self._lanes: dict[str, Job | None] = {f"lane-{index}": None for index in range(slots)}
        self._age: dict[str, int] = {}
        self.cancelled: dict[str, str] = {}
        self.submitted: list[Job] = []
        self.most_at_once = 0
        self.held_until: float | None = None

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def holding(self) -> Holding:
        return Holding(nodes=1, gpus=0)

    def news(self) -> list[str]:
        return []

    def hold_until(self, moment: float) -> None:
        self.held_until = moment

    def describe(self) -> list[str]:
        return [f"{self._slots} synthetic lanes"]

    def submit(self, job: Job) -> None:
        assert Path(job.folder).is_dir()
        self._queue.append(job)
        self.submitted.append(job)
        running = len(self._queue) + sum(job is not None for job in self._lanes.values())
        self.most_at_once = max(self.most_at_once, running)

    def events(self, timeout: float) -> list[JobEvent]:
        found: list[JobEvent] = []
        for lane, job in self._lanes.items():
            if job is None:
                if self._queue:
                    taken = self._lanes[lane] = self._queue.popleft()
                    self._age[taken.job_id] = 0
                    found += [Started(taken.job_id, lane), Entered(taken.job_id, "train")]
                continue
            self._age[job.job_id] += 1
            found.extend(self._advance(lane, job))
        return found

    def cancel(self, job_id: str, reason: str) -> None:
        self.cancelled[job_id] = reason

    def close(self) -> None:
        self._queue.clear()

    def _advance(self, lane: str, job: Job) -> list[JobEvent]:
        if job.job_id in self.cancelled:
            outcome = Outcome(Kind.CANCELLED, self.cancelled[job.job_id])
        elif self._age[job.job_id] <= (self._finish_order(job.job_id) if self._finish_order else 1):
            return [Progress(job.job_id, self._age[job.job_id], {"train/loss": 5.0 / self._age[job.job_id]})]
        else:
            outcome = self._law(job.settings)
        self._lanes[lane] = None
        return [Finished(job.job_id, outcome)]


SMALL_SPACE = """\
name: small
preset: parameter-golf
scale: laptop
budget: {trials: 12}
seed: 3
fixed: {cap_bytes: 290000}
knobs:
  optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}
  muon.momentum_end: {low: 0.8, high: 0.99, log: true, complement: true}
  muon.momentum_start: {low: 0.6, high: 0.95, at_most: muon.momentum_end}
  muon.weight_decay: {low: 0.005, high: 0.15, log: true, or_zero: true}
  export.bits_attention: {low: 5, high: 8}
  export.bits_mlp: {low: 4, high: 8}
  export.bits_embedding: {low: 6, high: 8}
"""


@pytest.fixture
def space_at(tmp_path: Path) -> Callable[..., Space]:
    """Writes a space file and loads it; ``more`` is appended to the text."""

    def load(text: str = SMALL_SPACE, more: str = "", has_gpu: bool = False, **kwargs: Any) -> Space:
        path = tmp_path / "space.yaml"
        path.write_text(textwrap.dedent(text) + textwrap.dedent(more))
        return load_space(path, has_gpu=has_gpu, **kwargs)

    return load


_SPACES: dict[str, Space] = {}


@pytest.fixture
def make(space_at: Callable[..., Space], tmp_path: Path) -> Callable[..., Study]:
    """Builds a study of the small space (or of ``text``) on a synthetic executor, in a folder that holds none.

    A given ``folder`` may hold one.
    """

    def build(text: str = SMALL_SPACE, more: str = "", executor: Any = None, **kwargs: Any) -> Study:
        # To read and check a file takes longer than to run the whole study.
        if text + more not in _SPACES:
            _SPACES[text + more] = space_at(text, more)
        space = _SPACES[text + more]
        folder = kwargs.pop("folder", None) or create_study_folder(tmp_path / "studies" / space.name)
        kwargs = {"bytes_code": BYTES_CODE, "uniform_bpb": UNIFORM_BPB, "data": DATA, **kwargs}
        return Study(space, executor or SyntheticExecutor(), folder, **kwargs)

    return build


class Watcher:
    """Remembers what it is told; can be made to fail at one event, or to act on one."""

    def __init__(self, fail_at: str | None = None, act: Any = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.closed = False
        self._fail_at, self._act = fail_at, act

    def on_event(self, event: dict[str, Any]) -> None:
        if event["event"] == self._fail_at:
            raise OSError("database is gone")
        self.events.append(event)
        if self._act is not None:
            self._act(event)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def watcher_class() -> type[Watcher]:
    return Watcher


@pytest.fixture
def synthetic() -> type[SyntheticExecutor]:
    return SyntheticExecutor


@pytest.fixture
def law() -> Law:
    return synthetic_law


@pytest.fixture
def small() -> str:
    """The text of the small space."""
    return SMALL_SPACE


@pytest.fixture
def rough(law):
    """The synthetic law, but some learning rates crash, diverge or are preempted: always, so on every attempt."""

    def outcome(settings: dict[str, Any]) -> Outcome:
        part = settings["optimizer"]["matrix_lr"] * 1e4 % 10
        if 5 <= part < 6:
            return Outcome(Kind.CRASHED, "out of memory", error="OutOfMemoryError at model.py:3")
        if 2 <= part < 3:
            return Outcome(Kind.DIVERGED, "loss is not finite", metrics={"train/loss": math.nan})
        if 6.5 <= part < 7:
            return Outcome(Kind.PREEMPTED, "node gone")
        return law(settings)

    return outcome


@pytest.fixture
def make_in(make, tmp_path):
    """Like ``make``, but of a study whose folder may hold one already."""

    def build(text: str, executor, folder: Path = tmp_path / "studies" / "one", **kwargs):
        folder.mkdir(parents=True, exist_ok=True)
        return make(text, executor=executor, folder=folder, **kwargs)

    return build
