from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.sweep.choosing import best_feasible, choose
from golfray.sweep.events import LOG_NAME, EventLog, EventLogError
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.statistics import claim
from golfray.sweep.trial_record import REPLICATE, SAMPLER

CAP = 1000
HEADER = {
    "study": "a",
    "preset": "p",
    "scale": "laptop",
    "workers": 2,
    "slots": 1,
    "cap_bytes": CAP,
    "budget": {"trials": 8, "minutes": None},
    "space": {"fixed": {}, "implied": {}, "knobs": {}},
    "data": {},
    "describe": [],
}
CPU = {"device": "cpu", "workers": 2, "stop": "15 s"}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"seq": 0, "time": 1.0, "event": kind, **fields}


def study(*outcomes: Outcome | None, replicates: tuple[int, ...] = ()) -> StudyRecord:
    """A study whose trials ended so; ``replicates`` are numbers of trials that repeat trial 0."""
    events = [event("study_started", **HEADER)]
    for number, outcome in enumerate(outcomes):
        again = number in replicates
        role = REPLICATE if again else SAMPLER
        where = {"trial": number, "attempt": 1, "job_id": str(number)}
        asked = {"params": {}, "told": True, "settings": {}, "seed": number, "replicate_of": 0 if again else None}
        events.append(event("trial_asked", trial=number, role=role, **asked))
        events.append(event("attempt_submitted", **where, folder=f"trials/{number}"))
        if outcome is not None:
            events.append(event("attempt_ended", **where, outcome=outcome.to_dict()))
    return StudyRecord.from_events(events)


def scored(bpb: float, total: float = 900, kind: Kind = Kind.SCORED, **fidelity: Any) -> Outcome:
    return Outcome(kind, "", {"bpb/roundtrip": bpb, "bytes/total": total}, fidelity={**CPU, **fidelity})


outcomes = st.lists(
    st.none()
    | st.builds(
        scored,
        st.floats(1, 3) | st.just(float("nan")),
        st.integers(800, 1200),
        st.sampled_from([Kind.SCORED, Kind.INFEASIBLE]),
        device=st.sampled_from(["cpu", "cuda"]),
    )
    | st.builds(Outcome, st.sampled_from([Kind.DIVERGED, Kind.CRASHED, Kind.STOPPED]), st.just("x")),
    max_size=12,
)


@given(outcomes, st.sets(st.integers(1, 11)))
def test_best_feasible_fits_is_comparable_and_is_no_replicate(ended: list[Outcome | None], again: set[int]) -> None:
    record = study(*ended, replicates=tuple(again))
    best = best_feasible(record)
    rivals = [
        trial
        for trial in record.trials
        if trial.outcome is not None
        and trial.outcome.kind is Kind.SCORED
        and trial.bpb is not None
        and trial.outcome.metrics["bytes/total"] <= CAP
        and trial.number not in again
        and record.is_comparable(trial)
    ]
    if best is None:
        assert not rivals
    else:
        assert best.outcome.kind is Kind.SCORED
        assert best.bytes_total <= CAP
        assert best.role != REPLICATE
        assert choose(record).lowest.bpb == min(trial.bpb for trial in rivals)


def test_infeasible_is_never_best_even_alone_or_mislabelled() -> None:
    assert best_feasible(study(scored(1.0, 1001, Kind.INFEASIBLE))) is None
    assert best_feasible(study(scored(1.0, 1001, Kind.SCORED))) is None
    assert best_feasible(study(scored(2.0), scored(1.0, 1001), scored(1.5, 1000))).number == 2


def test_a_lucky_replicate_is_not_best() -> None:
    record = study(scored(2.0), scored(1.2), scored(1.99), scored(1.1), scored(2.01), replicates=(2, 3, 4))
    assert best_feasible(record).number == 1
    assert record.trials[3].bpb < best_feasible(record).bpb


def test_other_fidelities_are_not_ranked() -> None:
    record = study(scored(2.0), scored(1.0, device="cuda"), scored(1.9))
    assert best_feasible(record).number == 2
    assert [record.is_comparable(trial) for trial in record.trials] == [True, False, True]


def test_a_tie_goes_to_the_earlier_trial() -> None:
    assert best_feasible(study(scored(2.0), scored(1.5), scored(1.5))).number == 1


def test_counts() -> None:
    record = study(scored(2.0), Outcome(Kind.DIVERGED, "x"), Outcome(Kind.CRASHED, "x"), None, scored(3.0))
    assert record.counts == {"scored": 2, "diverged": 1, "crashed": 1, "running": 1}


def test_claim() -> None:
    record = study(scored(2.0), scored(2.1), scored(1.9), scored(1.8), scored(1.7, 1001), replicates=(1, 2))
    made = claim(record)
    assert made.best.number == 3
    assert made.reference_bpb == pytest.approx(2.0)
    assert made.difference == pytest.approx(-0.2)
    assert made.noise.sd == pytest.approx(0.1)
    assert made.in_noise_units == pytest.approx(-2.0)
    assert made.candidates == 2
    assert made.expected_luck == pytest.approx(0.1 * 0.56419, abs=1e-6)


def test_claim_without_replicates_says_noise_unknown() -> None:
    made = claim(study(scored(2.0), scored(1.8)))
    assert made.difference == pytest.approx(-0.2)
    assert str(made.noise) == "noise unknown"
    assert made.in_noise_units is None
    assert made.expected_luck is None


def test_claim_of_an_empty_study() -> None:
    made = claim(study(Outcome(Kind.CRASHED, "x")))
    assert made.best is None
    assert made.difference is None


def test_claim_when_seeds_agree_to_the_last_digit_divides_by_nothing() -> None:
    made = claim(study(scored(2.0), scored(2.0), scored(1.8), replicates=(1,)))
    assert made.noise.sd == 0
    assert made.in_noise_units is None


def test_events_that_a_newer_version_wrote_are_passed_over() -> None:
    record = StudyRecord.from_events([event("study_started", **HEADER), event("rung_reached", trial=99)])
    assert record.name == "a"


def test_a_trial_between_its_attempts_runs_until_the_study_ends() -> None:
    where = {"trial": 0, "attempt": 1, "job_id": "0"}
    record = study(None)
    record.apply(event("attempt_ended", **where, outcome=Outcome(Kind.CRASHED, "x").to_dict(), final=False))
    assert (record.trials[0].outcome, record.trials[0].unfinished) == (None, True)
    assert record.counts == {"running": 1}
    record.apply(event("study_ended", reason="interrupted", complete=False))
    assert (record.trials[0].outcome.kind, record.trials[0].unfinished) == (Kind.CRASHED, True)
    record.apply(event("study_resumed", generation=2, host="b", changes=["seed"], left_space=[], reopened=[]))
    assert (record.trials[0].outcome, record.end_reason) == (None, None)
    record.apply(event("attempt_submitted", **{**where, "attempt": 2}, folder="y"))
    record.apply(event("phase", **{**where, "attempt": 2}, phase="train"))
    assert record.trials[0].attempt.phase == "train"
    record.apply(event("attempt_ended", **{**where, "attempt": 2}, outcome=scored(2.0).to_dict(), final=True))
    assert (record.trials[0].bpb, record.trials[0].unfinished) == (2.0, False)
    assert record.changes == ["seed"]
    assert [(driver.number, driver.host) for driver in record.generations] == [(1, None), (2, "b")]


def test_the_first_end_of_an_attempt_is_its_end() -> None:
    record = study(scored(2.0))
    where = {"trial": 0, "attempt": 1, "job_id": "0"}
    record.apply(event("attempt_ended", **where, outcome=Outcome(Kind.CANCELLED, "x").to_dict(), final=False))
    assert record.trials[0].bpb == 2.0


def test_seconds_of_drivers_leave_the_gaps_out() -> None:
    times = [("study_started", 100.0), ("x", 160.0), ("study_resumed", 1000.0), ("x", 1030.0), ("study_resumed", 900.0)]
    more = {**HEADER, "generation": 1, "left_space": [], "reopened": []}
    record = StudyRecord.from_events({"seq": 0, "time": time, "event": kind, **more} for kind, time in times)
    assert record.driven_seconds == 90


def test_events_of_unknown_trials_are_refused() -> None:
    with pytest.raises(EventLogError, match="never asked"):
        study().apply(event("attempt_submitted", trial=0, attempt=1, job_id="x", folder="y"))
    with pytest.raises(EventLogError, match="never submitted"):
        study(None).apply(event("progress", trial=0, attempt=2, job_id="x", step=1, metrics={}))


def test_load_names_a_folder_without_a_study(tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="no study here"):
        StudyRecord.load(tmp_path)
    with EventLog(tmp_path / LOG_NAME) as log:
        log.append("study_started", **HEADER)
    assert StudyRecord.load(tmp_path).name == "a"
