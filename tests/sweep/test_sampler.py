import math
import warnings
from collections.abc import Sequence

import numpy
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from golfray.sweep import sampler as sampler_module
from golfray.sweep.knobs import Choice, Condition, FloatRange, IntRange, Knob, parameters_of
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import StudySampler
from golfray.sweep.verdict import BYTES_OVER_CAP, DIVERGED, verdict_on

KNOBS = (
    Knob("rate", FloatRange(0.01, 0.1, log=True)),
    Knob("bits", IntRange(4, 8)),
    Knob("on", Choice((False, True))),
    Knob("share", FloatRange(0.0, 1.0, step=0.25)),
)
PARAMETERS = parameters_of(KNOBS)
# The last is searched where the first two are, and depends on one that stands after it.
CONDITIONAL = (
    Knob("decay", FloatRange(0.01, 0.1), or_zero=True, preset_value=0.0, when=(Condition("on", (True,)),)),
    Knob("clip", FloatRange(0.5, 1.0), preset_value=1.0, when=(Condition("bits", (4, 5)), Condition("on", (True,)))),
    *KNOBS,
    Knob("end", FloatRange(0.0, 1.0), preset_value=0.5, when=(Condition("decay", (0.0,)),)),
)
CAP, UNIFORM = 1000, 4.0


@pytest.fixture(autouse=True)
def _an_early_process(monkeypatch) -> None:
    """A Gaussian process takes over as soon as TPE has a model: what is tested here has two dozen trials."""
    monkeypatch.setattr(sampler_module, "GP_STARTUP_TRIALS", 8)


def sampler(kind: str = "tpe", seed: int = 1, knobs: Sequence[Knob] = KNOBS) -> StudySampler:
    return StudySampler(knobs, kind=kind, seed=seed, cap_bytes=CAP, uniform_bpb=UNIFORM)


def outcome_of(params: dict, number: int) -> Outcome:
    if number % 7 == 3:
        return Outcome(Kind.DIVERGED, "loss is not finite")
    if number % 7 == 5:
        return Outcome(Kind.CRASHED, "killed")
    if number % 11 == 6:
        return Outcome(Kind.STOPPED, "hopeless")
    bpb = 2 + math.log(params["rate"] / 0.03) ** 2 + (8 - params["bits"]) * 0.01
    total = 150.0 * params["bits"]
    kind = Kind.INFEASIBLE if total > CAP else Kind.SCORED
    return Outcome(kind, "", {"bpb/roundtrip": bpb, "bytes/total": total})


def event(kind: str, **fields: object) -> dict:
    return {"seq": 0, "time": 0.0, "event": kind, **fields}


class Lane:
    """A study of one lane without a study: asks, logs and tells."""

    def __init__(self, kind: str, seed: int = 1, knobs: Sequence[Knob] = KNOBS) -> None:
        self.sampler, self.record = sampler(kind, seed, knobs), StudyRecord()
        self.points: list[dict] = []

    def ask(self) -> dict:
        number = len(self.record.trials)
        params = self.sampler.suggest(number)
        self.points.append(params)
        self.record.apply(
            event(
                "trial_asked",
                trial=number,
                role="sampler",
                params=params,
                told=True,
                settings={},
                seed=1,
                replicate_of=None,
            )
        )
        self.record.apply(event("attempt_submitted", trial=number, attempt=1, job_id=str(number), folder="x"))
        return params

    def end(self, number: int) -> None:
        trial = self.record.trials[number]
        outcome = outcome_of(trial.params, number)
        for step in (1, 2):
            where = {"trial": number, "attempt": 1, "job_id": str(number)}
            self.record.apply(event("progress", **where, step=step, metrics={"train/loss": 5.0 / step}))
        self.record.apply(event("attempt_ended", **where, outcome=outcome.to_dict()))
        self.sampler.tell(number, outcome, trial.curve)


@pytest.mark.parametrize("kind", ["tpe", "gp", "random"])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("knobs", [KNOBS, CONDITIONAL], ids=["plain", "conditional"])
def test_a_rebuilt_sampler_suggests_what_the_old_one_would_have(kind: str, lanes: int, knobs: Sequence[Knob]) -> None:
    lane = Lane(kind, knobs=knobs)
    for number in range(20 if kind == "gp" else 26):
        rebuilt = sampler(kind, knobs=knobs)
        rebuilt.restore(lane.record)
        assert lane.ask() == rebuilt.suggest(number)
        assert [trial.state for trial in rebuilt.trials] == [trial.state for trial in lane.sampler.trials]
        assert [trial.constraints for trial in rebuilt.trials] == [trial.constraints for trial in lane.sampler.trials]
        if number >= lanes - 1:
            lane.end(number - lanes + 1)


@pytest.mark.parametrize(("kind", "lag"), [("tpe", 0), ("tpe", 2), ("tpe", 9), ("gp", 0), ("gp", 2)])
def test_a_model_forgets_what_is_old_and_a_rebuilt_one_forgets_the_same(monkeypatch, kind: str, lag: int) -> None:
    """Also trials that still run when they are forgotten, and points that were placed."""
    prefix = {"tpe": "", "gp": "GP_"}[kind]
    monkeypatch.setattr(sampler_module, f"{prefix}HISTORY", 8)
    monkeypatch.setattr(sampler_module, f"{prefix}HISTORY_BLOCK", 4)
    monkeypatch.setattr(sampler_module, "GP_STARTUP_TRIALS", 5)
    lane, known = Lane(kind), []
    for number in range(20 if kind == "gp" else 30):
        rebuilt = sampler(kind)
        rebuilt.restore(lane.record)
        assert lane.ask() == rebuilt.suggest(number)
        heard = [(trial.params, trial.state, trial.value, trial.constraints) for trial in lane.sampler.trials]
        assert heard == [(trial.params, trial.state, trial.value, trial.constraints) for trial in rebuilt.trials]
        assert [params for params, *_ in heard] == [trial.params for trial in lane.record.trials][-len(heard) :]
        known.append(len(heard))
        # One is looked at nine trials after it was asked, when the first of them are forgotten already.
        if number >= lag:
            lane.end(number - lag)
    assert max(known) == 8 + 4
    assert min(known[8:]) == 8 + 1


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_without_conditions_it_is_optuna_asked_for_all_parameters_at_once(kind: str) -> None:
    """What a study of an earlier golfray was told must lead to the same suggestions today."""
    lane, plain = Lane(kind, seed=7), optuna.create_study()
    distributions = {
        "rate": FloatDistribution(0.01, 0.1, log=True),
        "bits": IntDistribution(4, 8),
        "on": CategoricalDistribution((False, True)),
        "share": FloatDistribution(0.0, 1.0, step=0.25),
    }
    for number in range(20):
        seed = int(numpy.random.SeedSequence([7, number]).generate_state(1)[0])
        plain.sampler = (
            optuna.samplers.RandomSampler(seed)
            if kind == "random"
            else optuna.samplers.TPESampler(n_startup_trials=5, multivariate=True, constant_liar=True, seed=seed)
        )
        trial = plain.ask(distributions)
        assert lane.ask() == trial.params
        lane.end(number)
        told = lane.record.trials[number].outcome
        verdict = verdict_on(told, lane.record.trials[number].curve, cap_bytes=CAP, uniform_bpb=UNIFORM)
        for name, violation in verdict.constraints.items():
            trial.set_constraint(name, violation)
        for step, value in verdict.curve.items():
            trial.report(value, step)
        plain.tell(trial, verdict.value, state=verdict.state)


@pytest.mark.parametrize("kind", ["tpe", "gp", "random"])
def test_a_point_has_the_parameters_of_active_knobs_alone(kind: str) -> None:
    lane = Lane(kind, knobs=CONDITIONAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(30):
            params = lane.ask()
            expected = {"rate", "bits", "on", "share"}
            decay = 0.0
            if params["on"]:
                expected |= {"decay", "decay > 0"}
                decay = params["decay"] if params["decay > 0"] else 0.0
            expected |= {"clip"} if params["on"] and params["bits"] <= 5 else set()
            expected |= {"end"} if decay == 0.0 else set()
            assert params.keys() == expected
            lane.end(number)
    assert {len(params) for params in lane.points} >= {5, 6, 7}


def test_tpe_learns_a_parameter_that_only_some_trials_have() -> None:
    """The better half of the range of a conditional knob is found although half of the trials do not have it."""
    knobs = (Knob("on", Choice((False, True))), Knob("x", FloatRange(0, 1), when=(Condition("on", (True,)),)))

    def mean_of_last(kind: str) -> float:
        asked, drawn = sampler(kind, knobs=knobs), []
        for number in range(60):
            params = asked.suggest(number)
            drawn += [params["x"]] if params["on"] else []
            score = 2.0 - params.get("x", 0.5)
            asked.tell(number, Outcome(Kind.SCORED, "", {"bpb/roundtrip": score, "bytes/total": 1.0}), [])
        return sum(drawn[-15:]) / 15

    assert mean_of_last("tpe") > 0.8 > 0.6 > mean_of_last("random")


def test_a_conditional_point_is_placed_with_its_own_parameters_only() -> None:
    asked = sampler(knobs=CONDITIONAL)
    off = {"rate": 0.02, "bits": 4, "on": False, "share": 0.5, "end": 0.25}
    asked.place(0, off)
    assert asked.trials[0].params == off
    with pytest.raises(ValueError, match="params must name"):
        asked.place(1, {**off, "clip": 0.7})
    with pytest.raises(ValueError, match="params must name"):
        asked.place(1, {**off, "on": True})


def test_seeds_matter_and_ask_numbers_matter() -> None:
    assert sampler(seed=1).suggest(0) != sampler(seed=2).suggest(0)
    assert sampler(seed=1).suggest(0) != sampler(seed=1).suggest(1)


@settings(max_examples=20)
@given(st.integers(0, 2**63 - 1), st.integers(0, 10_000))
def test_suggestions_lie_in_the_space(seed: int, number: int) -> None:
    params = sampler("random", seed).suggest(number)
    assert all(PARAMETERS[name].contains(value) for name, value in params.items())


def test_what_the_sampler_is_told() -> None:
    told = {
        0: Outcome(Kind.SCORED, "", {"bpb/roundtrip": 2.1, "bytes/total": 900.0}),
        1: Outcome(Kind.INFEASIBLE, "", {"bpb/roundtrip": 2.0, "bytes/total": 1100.0}),
        2: Outcome(Kind.DIVERGED, "nan"),
        3: Outcome(Kind.STOPPED, "hopeless"),
        4: Outcome(Kind.CRASHED, "killed"),
        5: Outcome(Kind.PREEMPTED, "node gone"),
        6: Outcome(Kind.CANCELLED, "ctrl-c"),
    }
    asked = sampler()
    for number, outcome in told.items():
        asked.suggest(number)
        asked.tell(number, outcome, [(1, {"train/loss": 5.0}), (4, {"train/loss": 3.0}), (6, {"train/loss": math.nan})])
    trials = asked.trials
    complete, failed = TrialState.COMPLETE, TrialState.FAIL
    assert [t.state for t in trials] == [complete] * 3 + [TrialState.PRUNED] + [failed] * 3
    assert [t.value for t in trials[:3]] == [2.1, 2.0, UNIFORM]
    assert trials[0].constraints == {BYTES_OVER_CAP: -100.0, DIVERGED: 0.0}
    assert trials[1].constraints == {BYTES_OVER_CAP: 100.0, DIVERGED: 0.0}
    assert trials[2].constraints == {DIVERGED: CAP}
    assert trials[3].intermediate_values == {1: 5.0, 4: 3.0}


def test_a_score_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite bpb/roundtrip"):
        verdict_on(Outcome(Kind.SCORED, "", {"bytes/total": 1.0}), [], cap_bytes=CAP, uniform_bpb=UNIFORM)


def test_placed_points_are_told_as_they_are() -> None:
    asked = sampler()
    point = {"rate": 0.02, "bits": 8, "on": False, "share": 0.75}
    asked.place(0, point)
    assert asked.trials[0].params == point
    with pytest.raises(ValueError, match=r"rate=0\.5 is outside"):
        asked.place(1, {**point, "rate": 0.5})
    with pytest.raises(ValueError, match="params must name"):
        asked.place(1, {"rate": 0.02})
    assert len(asked.trials) == 1


@pytest.mark.parametrize(("kind", "trials"), [("tpe", 60), ("gp", 30)])
def test_the_constraint_steers_a_model_towards_what_fits(kind: str, trials: int) -> None:
    """Bits above 6 are over the cap and score better; a sampler that heard only of scores would go there."""

    def infeasible_of_last(count: int, told: bool) -> int:
        asked = sampler(kind)
        over = []
        for number in range(trials):
            params = asked.suggest(number)
            total = 150.0 * params["bits"]
            over.append(total > CAP)
            heard = total if told else 0.0
            ended = Kind.INFEASIBLE if heard > CAP else Kind.SCORED
            score = 2 + 0.2 * (8 - params["bits"]) + math.log(params["rate"] / 0.03) ** 2
            asked.tell(number, Outcome(ended, "", {"bpb/roundtrip": score, "bytes/total": heard}), [])
        return sum(over[-count:])

    last = trials * 2 // 3
    assert infeasible_of_last(last, told=True) < infeasible_of_last(last, told=False) / 2
