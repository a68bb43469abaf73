import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from golfray.sweep.knobs import Choice, FloatRange, IntRange
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import BYTES_OVER_CAP, DIVERGED, StudySampler, verdict_on

PARAMETERS = {
    "rate": FloatRange(0.01, 0.1, log=True),
    "bits": IntRange(4, 8),
    "on": Choice((False, True)),
    "share": FloatRange(0.0, 1.0, step=0.25),
}
CAP, UNIFORM = 1000, 4.0


def sampler(kind: str = "tpe", seed: int = 1) -> StudySampler:
    return StudySampler(PARAMETERS, kind=kind, seed=seed, cap_bytes=CAP, uniform_bpb=UNIFORM)


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

    def __init__(self, kind: str, seed: int = 1) -> None:
        self.sampler, self.record = sampler(kind, seed), StudyRecord()
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


@pytest.mark.parametrize("kind", ["tpe", "random"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_rebuilt_sampler_suggests_what_the_old_one_would_have(kind: str, lanes: int) -> None:
    lane = Lane(kind)
    for number in range(26):
        rebuilt = sampler(kind)
        rebuilt.restore(lane.record)
        assert lane.ask() == rebuilt.suggest(number)
        assert [trial.state for trial in rebuilt.trials] == [trial.state for trial in lane.sampler.trials]
        assert [trial.constraints for trial in rebuilt.trials] == [trial.constraints for trial in lane.sampler.trials]
        if number >= lanes - 1:
            lane.end(number - lanes + 1)


def test_seeds_matter_and_ask_numbers_matter() -> None:
    assert sampler(seed=1).suggest(0) != sampler(seed=2).suggest(0)
    assert sampler(seed=1).suggest(0) != sampler(seed=1).suggest(1)


@settings(max_examples=20, deadline=None)
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


def test_the_constraint_steers_tpe_towards_what_fits() -> None:
    """Bits above 6 are over the cap and score better; a sampler that heard only of scores would go there."""

    def infeasible_of_last(count: int, told: bool) -> int:
        asked = sampler()
        over = []
        for number in range(60):
            params = asked.suggest(number)
            total = 150.0 * params["bits"]
            over.append(total > CAP)
            heard = total if told else 0.0
            kind = Kind.INFEASIBLE if heard > CAP else Kind.SCORED
            score = 2 + 0.2 * (8 - params["bits"]) + math.log(params["rate"] / 0.03) ** 2
            asked.tell(number, Outcome(kind, "", {"bpb/roundtrip": score, "bytes/total": heard}), [])
        return sum(over[-count:])

    assert infeasible_of_last(40, told=True) < infeasible_of_last(40, told=False) / 2
