import dataclasses
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golfray.core.settings import StopSettings
from golfray.sweep.budget import BudgetTooSmall, Price, booked
from golfray.sweep.costs import Costs
from golfray.sweep.disk_room import study_disk
from golfray.sweep.executor import Holding
from golfray.sweep.paid_work import paid_work
from golfray.sweep.plan import POINTS_SHOWN, CorpusFacts, check_budget, plan_study
from golfray.sweep.records import StudyRecord
from golfray.sweep.size_foresight import SizeForesight, TrainedSizes
from golfray.sweep.space import load_space
from golfray.sweep.study import Study
from golfray.sweep.trial_record import REPLICATE, SAMPLER
from golfray.sweep.work_left import work_left

CORPUS = CorpusFacts("tiny", train_tokens=115_000, val_tokens=10_000, unseen=(3, 4), built=True)
COSTS = Costs(
    open_s=10.0,
    lanes_s=15.0,
    phases={"data": 0.0, "compile": 1.0, "train": 15.0, "validate": 2.0, "export": 0.5, "score": 2.0},
    compile_first_s=7.0,
    handover_s=0.5,
    close_s=6.0,
    steps=150,
    sources=(),
)
TINY = """\
  model.num_layers: 2
  model.model_dim: 32
  model.num_heads: 2
  model.num_kv_heads: 1
  model.mlp_mult: 2.0
  model.vocab_size: 320
"""
SPACE = """\
name: planned
preset: parameter-golf
scale: laptop
budget: {budget}
seed: {seed}
sampler: {sampler}
replicates: {replicates}
fixed:
{tiny}knobs:
  optimizer.matrix_lr: {{low: 0.02, high: 0.16, log: true}}
  muon.weight_decay: {{low: 0.005, high: 0.15, log: true, or_zero: true}}
{more}"""


def space_of(
    budget: str = "{trials: 6}",
    seed: int = 1,
    sampler: str = "tpe",
    replicates: int = 2,
    more: str = "",
    tiny: str = TINY,
):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "space.yaml"
        path.write_text(
            SPACE.format(budget=budget, seed=seed, sampler=sampler, replicates=replicates, more=more, tiny=tiny)
        )
        return load_space(path, has_gpu=False)


def plan_of(space, lanes: int = 1, costs: Costs = COSTS, price: Price | None = None, earlier=None):
    holding = Holding(1, 0)
    left = paid_work(work_left(space, StudyRecord()), StudyRecord(), space, price, holding, 0.0, slots=lanes)
    disk = study_disk(space, left, lanes, own_store=True)
    return plan_study(
        space,
        CORPUS,
        costs,
        disk,
        lanes=lanes,
        bytes_code=40_000,
        holding=holding,
        price=price,
        earlier=earlier,
    )


def run(space, executor, **kwargs):
    """The record of a study that really runs the space on a synthetic executor."""
    with tempfile.TemporaryDirectory() as folder:
        data = {"folder": "", "name": "synthetic", "reference": {"uniform": 4.0}, "warning": None}
        study = Study(space, executor, Path(folder), bytes_code=40_000, uniform_bpb=4.0, data=data, **kwargs)
        return study.run()


BITS = "  export.bits_mlp: {low: 4, high: 8}\n"
CONDITION = (
    "  muon.ns_steps: {low: 4, high: 6}\n  optimizer.scalar_lr: {low: 0.01, high: 0.1, when: {muon.ns_steps: [4, 6]}}\n"
)
FIRST_POINTS = "first_points:\n" + "".join(f"  - {{optimizer.matrix_lr: 0.0{rate}}}\n" for rate in range(3, 10))


@given(
    trials=st.integers(1, 14),
    replicates=st.integers(1, 4),
    lanes=st.integers(1, 4),
    bits=st.booleans(),
    condition=st.booleans(),
    first_points=st.integers(0, 7),
    seed=st.integers(0, 2**32),
    sampler=st.sampled_from(["tpe", "random"]),
    order=st.integers(1, 50),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_plan_is_what_the_study_then_does(
    synthetic, trials, replicates, lanes, bits, condition, first_points, seed, sampler, order
) -> None:
    points = "".join(FIRST_POINTS.splitlines(keepends=True)[: first_points + 1]) if first_points else ""
    more = (BITS if bits else "") + (CONDITION if condition else "") + points
    space = space_of(f"{{trials: {trials}}}", seed, sampler, replicates, more)
    plan = plan_of(space, lanes)
    executor = synthetic(slots=lanes, finish_order=lambda job_id: sum(map(ord, job_id)) * order % 7)
    record = run(space, executor)
    assert list(plan.roles) == [trial.role for trial in record.trials]
    assert plan.lanes == record.header["slots"]
    assert executor.most_at_once == min(lanes, len(plan.roles))
    assert plan.time.rounds == math.ceil(len(record.trials) / lanes)
    assert not plan.time.limited
    assert [point.number for point in plan.points] == list(range(min(POINTS_SHOWN, len(record.trials))))
    for point, trial in zip(plan.points, record.trials, strict=False):
        assert point.role == trial.role
        assert point.params["optimizer.matrix_lr"] == trial.settings["optimizer"]["matrix_lr"]
        assert point.params["muon.weight_decay"] == trial.settings["muon"]["weight_decay"]
        if condition:
            assert point.params["optimizer.scalar_lr"] == trial.settings["optimizer"]["scalar_lr"]
        if bits:
            assert point.params["export.bits_mlp"] == trial.settings["export"]["bits_mlp"]


@given(minutes=st.floats(0.6, 12.0), lanes=st.integers(1, 3), trials=st.one_of(st.none(), st.integers(1, 30)))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_minutes_end_the_asking_where_the_plan_says(synthetic, minutes, lanes, trials) -> None:
    budget = f"{{minutes: {minutes!r}}}" if trials is None else f"{{minutes: {minutes!r}, trials: {trials}}}"
    space = space_of(budget)
    plan = plan_of(space, lanes)
    now, ended = [0.0], [0]

    class Clock:
        """Lanes come up, then each round takes as long as the plan says."""

        def on_event(self, event) -> None:
            if event["event"] == "attempt_ended":
                ended[0] += 1
                rounds = -(-ended[0] // lanes)
                now[0] = COSTS.lanes_s + COSTS.first_extra_s + rounds * COSTS.trial_s

        def close(self) -> None:
            pass

    record = run(space, synthetic(slots=lanes), observers=[Clock()], clock=lambda: now[0])
    assert list(plan.roles) == [trial.role for trial in record.trials]
    assert plan.time.limited == (trials is None or len(record.trials) < trials + 1)
    # Trials take longer than their own training, so no study has more of them than its disk need allows for.
    assert plan.disk.bounded
    assert plan.disk.trials >= len(record.trials)


# At a dollar a second: 90 for closing, 150 for all that a trial of 21 s may take.
DOLLARS = "limits: {start: 10, data: 10, compile: 10, train: 20, validate: 10, export: 10, score: 20}\n"


@pytest.mark.parametrize(("usd", "lanes", "trials"), [(400, 1, 7), (600, 2, 32), (1000, 3, None)])
def test_dollars_end_the_study_where_the_plan_says(synthetic, usd, lanes, trials) -> None:
    budget = f"{{usd: {usd}}}" if trials is None else f"{{usd: {usd}, trials: {trials}}}"
    space, price = space_of(budget, more=DOLLARS), Price(3600.0, "the test")
    plan = plan_of(space, lanes, price=price)
    start, ended = 5000.0, [0]
    now = [start]

    class Clock:
        def on_event(self, event) -> None:
            if event["event"] == "attempt_ended":
                ended[0] += 1
                now[0] = start + COSTS.lanes_s + COSTS.first_extra_s + -(-ended[0] // lanes) * COSTS.trial_s

        def close(self) -> None:
            pass

    def clock() -> float:
        return now[0]

    more = {"clock": clock, "now": clock, "price": price, "held_since": start - COSTS.open_s}
    record = run(space, synthetic(slots=lanes), observers=[Clock()], **more)
    assert list(plan.roles) == [trial.role for trial in record.trials]
    assert record.end_reason.startswith(f"budget spent: {usd} USD hold these nodes")
    assert plan.time.limited
    assert plan.forecast.p50_usd <= plan.forecast.p90_usd <= usd
    assert plan.forecast.p50_usd == pytest.approx(booked(record).usd, abs=1)
    with pytest.raises(BudgetTooSmall, match="240 USD hold these nodes for 140 s more, and a trial may take 150 s"):
        plan_of(space_of("{usd: 240}", more=DOLLARS), price=price)


def test_what_is_kept_back_for_confirmations_is_by_the_lanes_there_are() -> None:
    # 600 s, of which 90 s close the search; kept back are 60 s to boot, 90 s to close and 150 s a round.
    space, price = space_of("{usd: 600, confirmations: 2}", more=DOLLARS), Price(3600.0, "the test")
    assert len(plan_of(space, 2, price=price).roles) >= 1
    with pytest.raises(BudgetTooSmall, match="beside 450 s kept back for confirmations"):
        plan_of(space, 1, price=price)


def test_a_forecast_knows_what_an_earlier_study_took(synthetic) -> None:
    space = space_of("{trials: 6}", replicates=1)
    guessed = plan_of(space).forecast
    assert guessed.p50_s == pytest.approx(10 + 15 + (7 - 1) + 6 * 21, rel=0.01)
    assert guessed.p90_usd is None
    now = [5000.0]

    class Clock:
        def on_event(self, event) -> None:
            now[0] += 50.0 * (event["event"] == "attempt_started")

        def close(self) -> None:
            pass

    record = run(space, synthetic(), observers=[Clock()], now=lambda: now[0])
    known = plan_of(space, earlier=record).forecast
    assert (known.known, known.p50_s) == (6, 10 + 15 + (7 - 1) + 6 * 50)
    # One that stops trials, or has short ones, says nothing of one that does not, nor the other way round.
    other = dataclasses.replace(space, stopping="late_check")
    assert plan_of(other, earlier=record).forecast == plan_of(other).forecast


def test_time_is_the_sum_of_its_parts() -> None:
    plan = plan_of(space_of("{trials: 6}", replicates=3), lanes=3)
    assert len(plan.roles) == 8
    assert plan.time.rounds == 3
    a_trial = 0.0 + 1.0 + 15.0 + 2.0 + 0.5 + 2.0 + 0.5
    assert plan.time.total_s == pytest.approx(10 + 15 + 3 * a_trial + (7 - 1) + 6)


def test_passes_over_the_data() -> None:
    space = space_of()
    plan = plan_of(space)
    assert plan.passes == pytest.approx(150 * space.base.config.batch.tokens / 115_000)


def test_sizes_follow_the_bits_and_the_cap() -> None:
    space = space_of(more=BITS + "first_points:\n  - {export.bits_mlp: 4}\n", replicates=1)
    preset, eight, four = plan_of(space).points[:3]
    assert (preset.params["export.bits_mlp"], eight.params["export.bits_mlp"], four.params["export.bits_mlp"]) == (
        6,
        8,
        4,
    )
    assert four.bytes_total < preset.bytes_total < eight.bytes_total
    for point in (preset, eight, four):
        assert point.margin == space.base.config.cap_bytes - point.bytes_total
        assert 0 < point.error < point.bytes_total


def test_under_a_search_no_size_is_foreseen_and_no_point_is_refused_for_it() -> None:
    fixed = TINY + "  export.format: flat\n  export.search: 20\n  cap_bytes: 41000\n"
    space = space_of(tiny=fixed)
    for point in plan_of(space).points:
        assert (point.bytes_total, point.refused, point.too_large) == (None, None, False)
    # Any number of bits would be over this cap; the search itself tells.
    searched = space.base.config.to_run_settings(40_000)
    assert SizeForesight(0.95, 40_000, TrainedSizes()).fit(searched, StudyRecord()) is None
    plain = dataclasses.replace(searched, export=dataclasses.replace(searched.export, search=None))
    timeless = dataclasses.replace(plain, stop=StopSettings(steps=20, seconds=None))
    fit = SizeForesight(0.95, 40_000, TrainedSizes()).fit(timeless, StudyRecord())
    assert fit is not None
    assert fit.is_certain_not_to


def test_a_refused_point_is_named() -> None:
    # Four kv heads for two heads: seeds are tried until the sampler draws that.
    more = "  model.num_heads: {choices: [2, 4]}\n  model.num_kv_heads: {choices: [1, 4]}\n"
    tiny = TINY.replace("  model.num_heads: 2\n", "").replace("  model.num_kv_heads: 1\n", "")
    for seed in range(20):
        space = space_of("{trials: 4}", seed=seed, replicates=1, more=more, tiny=tiny)
        refused = [point for point in plan_of(space).points if point.refused is not None]
        if refused:
            break
    assert refused
    assert {point.role for point in refused} == {SAMPLER}
    assert "num_kv_heads must divide num_heads (2), got 4" in refused[0].refused
    assert refused[0].bytes_total is None


def test_the_number_of_first_points_is_one_that_no_outcome_can_change() -> None:
    # One more, and the sampler may have a model that depends on how trials ended.
    plan = plan_of(space_of("{trials: 12}", replicates=1))
    assert len(plan.points) == POINTS_SHOWN == 5


def test_minutes_below_one_trial_are_refused_with_value_and_remedy() -> None:
    space = space_of("{minutes: 0.4}")
    with pytest.raises(BudgetTooSmall) as caught:
        check_budget(space)
    assert caught.value.exit_code == 3
    message = str(caught.value)
    assert "budget.minutes is 0.4, which is 24 s" in message
    assert "trains for 15 s (stop.seconds)" in message
    assert "give at least 0.5 minutes" in message
    with pytest.raises(BudgetTooSmall):
        plan_of(space)


@pytest.mark.parametrize("budget", ["{minutes: 0.5}", "{trials: 1}", "{trials: 3, minutes: 5}"])
def test_budgets_that_hold_a_trial_are_not(budget) -> None:
    check_budget(space_of(budget))


def test_nothing_is_known_of_trials_that_end_by_steps() -> None:
    check_budget(space_of("{minutes: 0.01}", tiny=TINY + "  stop.seconds: null\n  stop.steps: 5\n"))


def test_replicates_come_after_what_the_budget_cut() -> None:
    plan = plan_of(space_of("{trials: 1}", replicates=3, more=BITS))
    assert plan.roles == ("preset", REPLICATE, REPLICATE)


def test_more_lanes_than_trials_are_one_round() -> None:
    plan = plan_of(space_of("{trials: 2}", replicates=1), lanes=4)
    assert (plan.time.rounds, len(plan.roles)) == (1, 2)
    longer = dataclasses.replace(COSTS, handover_s=COSTS.handover_s + 100)
    assert plan_of(space_of(), costs=longer).time.total_s > plan_of(space_of()).time.total_s + 100
