"""What a Gaussian process does with runs that failed, were stopped, were short, are running, or are few."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from golfray.sweep import sampler as sampler_module
from golfray.sweep.knobs import Choice, Condition, FloatRange, IntRange, Knob
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.sampler import StudySampler

CAP, UNIFORM = 1000, 4.0
KNOBS = (
    Knob("rate", FloatRange(0.001, 1.0, log=True)),
    Knob("share", FloatRange(0.0, 1.0)),
    Knob("bits", IntRange(4, 8)),
    Knob("on", Choice((False, True))),
)


@pytest.fixture(autouse=True)
def _an_early_process(monkeypatch) -> None:
    monkeypatch.setattr(sampler_module, "GP_STARTUP_TRIALS", 8)


def scored(params: dict[str, Any]) -> Outcome:
    """Best at rate .03, share .7 and 6 bits, switched on."""
    bpb = 2 + 0.1 * math.log(params["rate"] / 0.03) ** 2 + (params["share"] - 0.7) ** 2
    bpb += 0.05 * abs(params["bits"] - 6) + 0.1 * (not params["on"])
    return Outcome(Kind.SCORED, "", {"bpb/roundtrip": bpb, "bytes/total": 1.0})


def studied(kind: str, outcome_of: Callable[[dict[str, Any]], Outcome], trials: int, seed: int = 1, **told: Any):
    sampler = StudySampler(KNOBS, kind=kind, seed=seed, cap_bytes=CAP, uniform_bpb=UNIFORM)
    points = []
    for number in range(trials):
        points.append(sampler.suggest(number))
        outcome = outcome_of(points[-1])
        sampler.tell(number, outcome, [(1, {"train/loss": 3.0})], **told)
    return sampler, points


def best_of(points: list[dict[str, Any]]) -> float:
    return min(scored(point).metrics["bpb/roundtrip"] for point in points)


def test_it_comes_closer_to_the_best_than_tpe_does() -> None:
    process, tpe = (sum(best_of(studied(kind, scored, 24, seed)[1]) - 2 for seed in (0, 1)) for kind in ("gp", "tpe"))
    assert process < tpe / 3


def test_until_it_takes_over_it_is_tpe() -> None:
    process, tpe = (studied(kind, scored, 12)[1] for kind in ("gp", "tpe"))
    assert process[:8] == tpe[:8]
    assert process[8] != tpe[8]


@pytest.mark.parametrize("kind", [Kind.DIVERGED, Kind.CRASHED])
def test_it_keeps_away_from_where_runs_fail(kind: Kind) -> None:
    """Scores alone would lead it there: the best rate is .03, and above .05 nothing ends with one."""

    def outcome_of(params: dict[str, Any]) -> Outcome:
        return Outcome(kind, "") if params["rate"] > 0.02 else scored(params)

    _, points = studied("gp", outcome_of, 24)
    failed = [point["rate"] > 0.02 for point in points]
    assert sum(failed[-12:]) < sum(failed[:12]) / 2
    assert best_of([point for point in points if point["rate"] <= 0.02]) < 2.1


def test_where_nothing_has_a_score_it_goes_on() -> None:
    _, points = studied("gp", lambda params: Outcome(Kind.DIVERGED, ""), 12)
    assert len({tuple(point.values()) for point in points}) == 12


def test_a_refused_point_says_nothing_of_scores_and_its_size_counts() -> None:
    """What has more than 5 bits is refused, however good it would have been."""

    def outcome_of(params: dict[str, Any]) -> Outcome:
        if params["bits"] <= 5:
            return scored(params)
        return Outcome(Kind.INFEASIBLE, "refused", {"bytes/foreseen_margin": 100.0 * (5 - params["bits"])})

    _, points = studied("gp", outcome_of, 24)
    assert sum(point["bits"] > 5 for point in points[-10:]) <= 2
    assert best_of([point for point in points if point["bits"] <= 5]) < 2.08


def test_a_stopped_run_is_one_of_the_worst() -> None:
    def outcome_of(params: dict[str, Any]) -> Outcome:
        return Outcome(Kind.STOPPED, "hopeless") if params["share"] < 0.6 else scored(params)

    _, points = studied("gp", outcome_of, 24)
    assert sum(point["share"] < 0.6 for point in points[:8]) >= 4
    assert sum(point["share"] < 0.6 for point in points[-10:]) <= 3


def test_short_runs_are_compared_with_each_other_until_there_are_whole_ones() -> None:
    """Short ones are best at a share of 0, whole ones at .7: whoever mixes them finds neither."""
    sampler = StudySampler(KNOBS, kind="gp", seed=1, cap_bytes=CAP, uniform_bpb=UNIFORM)

    def run(number: int, share: float) -> float:
        params = sampler.suggest(number)
        bpb = 1.0 + params["share"] ** 2 if share < 1 else scored(params).metrics["bpb/roundtrip"]
        sampler.tell(number, Outcome(Kind.SCORED, "", {"bpb/roundtrip": bpb, "bytes/total": 1.0}), [], share=share)
        return params["share"]

    short = [run(number, 0.25) for number in range(16)]
    assert min(short[8:]) < 0.05
    whole = [run(number, 1.0) for number in range(16, 32)]
    assert sum(whole[-6:]) / 6 > 0.45


def test_lanes_do_not_run_the_same_point() -> None:
    sampler, _ = studied("gp", scored, 8)
    together = [sampler.suggest(8 + lane) for lane in range(4)]
    places = [(math.log(point["rate"]), point["share"], point["bits"], point["on"]) for point in together]
    assert min(math.dist(one, other) for i, one in enumerate(places) for other in places[:i]) > 0.01


def test_a_parameter_that_only_some_trials_have_is_learnt() -> None:
    knobs = (Knob("on", Choice((False, True))), Knob("x", FloatRange(0, 1), when=(Condition("on", (True,)),)))
    sampler = StudySampler(knobs, kind="gp", seed=1, cap_bytes=CAP, uniform_bpb=UNIFORM)
    found = []
    for number in range(20):
        params = sampler.suggest(number)
        apart = abs(params.get("x", 0.0) - 0.83)
        found += [apart] if params["on"] else []
        sampler.tell(number, Outcome(Kind.SCORED, "", {"bpb/roundtrip": 2 + apart, "bytes/total": 1.0}), [])
    assert min(found) < 0.01
