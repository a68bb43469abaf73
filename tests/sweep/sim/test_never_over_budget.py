"""A thousand simulated studies on a dollar each, with whatever goes wrong: no prefix of a log has booked more."""

import dataclasses
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from golfray.sweep.budget import CLOSE_S, BudgetTooSmall, StudyBudget, hard_limit_s
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.prices import Price
from golfray.sweep.sim.clock import FakeClock
from golfray.sweep.sim.executor import SimulatedExecutor
from golfray.sweep.sim.law import LAPTOP
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.space import Space, load_space
from golfray.sweep.study import Study
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
    def of(cls, base: Space, number: int) -> "Case":
        draw = random.Random(f"case {number}")
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
        # Money for a part of a trial up to several of them.
        held_s = CLOSE_S + draw.choice([0.5, 1.1, 2.0, 3.0, 5.0, 8.0]) * limit_s * draw.uniform(0.9, 1.1)
        space = dataclasses.replace(
            base,
            seed=number,
            limits=limits,
            replicates=draw.choice([1, 3]),
            budget=StudyBudget(usd=USD, trials=draw.choice([None, 30]), confirmations=draw.choice([None, None, 2])),
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
def base(tmp_path_factory) -> Space:
    file = tmp_path_factory.mktemp("space") / "space.yaml"
    file.write_text(SPACE.replace("stop.steps: 120", "stop.steps: 6000") + "sampler: random\n")
    return load_space(file, has_gpu=False)


def play(case: Case, folder: Path) -> float:
    """Drive it to its end, its driver lost on the way or not; the most that it has booked at any time."""
    try:
        record = case.study(folder, START).run()
    except BudgetTooSmall:
        assert list(read_events(folder / LOG_NAME)) == []
        return 0.0
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
def test_a_dollar_is_never_overspent(base, tmp_path, number):
    play(Case.of(base, number), tmp_path / "study")


@pytest.mark.slow
def test_no_dollar_of_a_thousand_is_overspent_and_most_are_spent(base, tmp_path):
    spent = [play(Case.of(base, number), tmp_path / str(number)) for number in range(1000)]
    assert max(spent) <= USD
    assert sum(most > 0.7 for most in spent) > 250
