"""A thousand simulated studies on a dollar each, whatever goes wrong or is stopped: no prefix of a log booked more."""

import collections
import dataclasses
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from golfray.sweep.budget import CLOSE_S, BudgetTooSmall, StudyBudget, hard_limit_s
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.outcome import Kind
from golfray.sweep.prices import Price
from golfray.sweep.sim.clock import FakeClock
from golfray.sweep.sim.executor import SimulatedExecutor
from golfray.sweep.sim.law import LAPTOP
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.space import Space, load_space
from golfray.sweep.stopping import LATE_CHECK, OFF, RUNGS
from golfray.sweep.study import Study
from golfray.sweep.trial_record import EXTRA_SEED, RUNG
from tests.sweep.conftest import BYTES_CODE, DATA, UNIFORM_BPB
from tests.sweep.sim.conftest import SPACE, START

USD = 1.0


@dataclasses.dataclass
class Case:
    """One study on a machine of its own; everything follows from its number."""

    space: Space
    machine: Simulation
    price: Price
    limit_s: float
    draw: random.Random

    @classmethod
    def of(cls, spaces: Sequence[Space], number: int) -> "Case":
        draw = random.Random(f"case {number}")
        base = draw.choice(spaces)
        lanes = draw.choice([1, 1, 2, 3])
        machine = Simulation(
            scale="laptop",
            lanes=lanes,
            seed=number,
            broken=draw.choice([0.0, 0.1]),
            crash=draw.choice([0.0, 0.1, 0.2]),
            preempt=draw.choice([0.0, 0.2, 0.4]),
            hang=draw.choice([0.0, 0.1, 0.2]),
            slow=draw.choice([0.0, 0.3]),
            slow_factor=1.5,
            diverge_ratio=6.0,
        )
        # A trial trains for about 550 s: some limits leave no room, and attempts end at them.
        limits = PhaseLimits(
            start=1.0,
            data=1.0,
            compile=3.0,
            train=draw.choice([560.0, 700.0, 1500.0]),
            progress=draw.choice([60.0, 1000.0]),
            validate=4.0,
            export=2.0,
            score=4.0,
        )
        limit_s = hard_limit_s(dataclasses.asdict(base.base.config.to_run_settings(BYTES_CODE)), limits)
        # Money for a part of a trial up to so many that the late check knows enough.
        held_s = CLOSE_S + draw.choice([0.5, 1.1, 2.0, 3.0, 5.0, 8.0, 20.0]) * limit_s * draw.uniform(0.9, 1.1)
        trials = draw.choice([None, 2, 30])
        extra_seeds = draw.choice([None, 4]) if trials is not None else None
        space = dataclasses.replace(
            base,
            seed=number,
            limits=limits,
            replicates=draw.choice([1, 3]) if extra_seeds is None else 3,
            stopping=draw.choice([OFF, LATE_CHECK, RUNGS]),
            budget=StudyBudget(
                usd=USD,
                trials=trials,
                confirmations=draw.choice([None, None, 2]),
                extra_seeds=extra_seeds,
            ),
        )
        return cls(space, machine, Price(3600 * USD / (held_s * lanes), "the test"), limit_s, draw)

    @property
    def rate(self) -> float:
        """USD a second."""
        return self.machine.lanes * self.price.usd_per_hour / 3600

    def study(self, folder: Path, start: float) -> Study:
        clock = FakeClock(start)
        executor = SimulatedExecutor(self.machine, clock, workers=2, limits=self.space.limits)
        folder.mkdir(exist_ok=True)
        # The nodes were held before the first record.
        held_since = start - self.draw.uniform(0.0, 20.0)
        return Study(
            self.space,
            executor,
            folder,
            bytes_code=BYTES_CODE,
            uniform_bpb=UNIFORM_BPB,
            data=DATA,
            clock=clock.now,
            now=clock.now,
            simulation=self.machine.to_record(),
            sizes=SimulatedSizes(LAPTOP),
            price=self.price,
            held_since=held_since,
        )


def booked_by(events: Iterable[dict[str, Any]]) -> list[float]:
    """USD booked by every prefix of a log, reckoned from its records alone."""
    before = since = rate = last = 0.0
    found: list[float] = []
    for event in events:
        if event["event"] in ("study_started", "study_resumed"):
            # The driver before closed behind its last record.
            before += (last - since + CLOSE_S) * rate if found else 0.0
            since, rate = event["held_since"], event["holding"]["nodes"] * event["price"]["usd_per_hour"] / 3600
        last = event["time"]
        found.append(before + (last - since + CLOSE_S) * rate)
    return found


@pytest.fixture(scope="module")
def spaces(tmp_path_factory) -> list[Space]:
    """One in which most is different, and one of neighbours that all fit, which noise does not set apart."""
    wide = SPACE.replace("stop.steps: 120", "stop.steps: 6000") + "sampler: random\n"
    near = wide.replace("cap_bytes: 320000", "cap_bytes: 500000")
    for there, here in (
        ("0.02, high: 0.4", "0.05, high: 0.051"),
        ("0.8, high: 0.99", "0.9, high: 0.901"),
        ("4,", "7,"),
    ):
        near = near.replace(f"{{low: {there}", f"{{low: {here}")
    file = tmp_path_factory.mktemp("space") / "space.yaml"
    found = []
    for text in (wide, near):
        file.write_text(text)
        found.append(load_space(file, has_gpu=False))
    return found


def play(case: Case, folder: Path, seen: collections.Counter[str]) -> float:
    """Drive it to its end, its driver lost on the way or not; the most that it has booked at any time.

    ``seen`` counts how attempts ended, and the roles of trials.
    """
    try:
        record = case.study(folder, START).run()
    except BudgetTooSmall:
        assert list(read_events(folder / LOG_NAME)) == []
        return 0.0
    seen.update(attempt.outcome.kind for trial in record.trials for attempt in trial.attempts if attempt.outcome)
    seen.update(trial.role for trial in record.trials)
    spent = booked_by(read_events(folder / LOG_NAME))
    assert max(spent) <= USD
    if record.end_reason.endswith("the limits of its phases together") and case.space.budget.confirmations is None:
        assert spent[-1] + case.limit_s * case.rate > USD, "it stopped although another trial was paid for"
    if case.draw.random() < 0.5:
        return max(spent)
    lines = (folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    cut = folder.with_name(f"{folder.name}-cut")
    cut.mkdir()
    (cut / LOG_NAME).write_bytes(b"".join(lines[: case.draw.randrange(1, len(lines) + 1)]))
    *_, last = read_events(cut / LOG_NAME)
    try:
        case.study(cut, last["time"] + case.draw.choice([0.0, 30.0, 5000.0])).resume()
    except BudgetTooSmall:
        assert (cut / LOG_NAME).read_bytes().count(b"\n") <= len(lines)
    again = booked_by(read_events(cut / LOG_NAME))
    assert max(again) <= USD
    return max(*spent, *again)


@pytest.mark.parametrize("number", range(24))
def test_a_dollar_is_never_overspent(spaces, tmp_path, number):
    play(Case.of(spaces, number), tmp_path / "study", collections.Counter())


@pytest.mark.slow
def test_no_dollar_of_a_thousand_is_overspent_and_most_are_spent(spaces, tmp_path):
    seen: collections.Counter[str] = collections.Counter()
    spent = [play(Case.of(spaces, number), tmp_path / str(number), seen) for number in range(1000)]
    assert max(spent) <= USD
    assert sum(most > 0.7 for most in spent) > 250
    # Everything that may happen did, often.
    wanted = [*Kind, RUNG, EXTRA_SEED]
    assert {what: seen[what] for what in wanted if what != Kind.CANCELLED and seen[what] < 20} == {}
