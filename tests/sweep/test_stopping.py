"""What is expected of a running trial: from runs like it, at the same share of the time, by the schedule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.stopping import CHECK_AT, KNOWN, Curve, look
from golfray.sweep.trial_record import PRESET, SAMPLER, AttemptRecord, TrialRecord

STEPS = 100
CAP = 1000
FIDELITY = {"device": "cpu"}


def curve_of(final: float, warmdown: float, upto: int = STEPS, clock: str = "steps") -> list[tuple[int, dict]]:
    """A loss that falls from 9 to final + 1 while the rate is whole, and by 1 more as it falls."""
    points = []
    for step in range(5, upto + 1, 5):
        multiplier = min(1.0, (1 - step / STEPS) / warmdown)
        loss = final + multiplier + 8 * (1 - step / STEPS)
        points.append((step, {"train/loss": loss, "train/lr_multiplier": multiplier, "elapsed_s": 6.0 * step / STEPS}))
    return points


def trial_of(number: int, final: float, warmdown: float, upto: int = STEPS, *, role: str = SAMPLER, stop=None):
    attempt = AttemptRecord(1, f"job-{number}", 1, curve=curve_of(final, warmdown, upto))
    if upto == STEPS:
        metrics = {"bpb/prequant": final, "bpb/roundtrip": final + 0.01, "bytes/total": CAP - 1.0}
        attempt.outcome = Outcome(Kind.SCORED, "fits", metrics, fidelity=FIDELITY)
    stop = stop or {"steps": STEPS, "seconds": None}
    return TrialRecord(number, role, {}, {"stop": stop}, 0, None, attempts=[attempt])


def study_of(*finals: float, warmdowns=(0.2, 0.5, 0.9)) -> StudyRecord:
    record = StudyRecord()
    record.header = {"preset": "p", "scale": "full", "cap_bytes": CAP, "space": {}}
    record.trials = [trial_of(n, final, warmdowns[n % len(warmdowns)]) for n, final in enumerate(finals)]
    return record


def seen(record: StudyRecord, final: float, warmdown: float, upto: int, **more):
    trial = trial_of(len(record.trials), final, warmdown, upto, **more)
    record.trials.append(trial)
    return look(record, trial)


KNOWN_FINALS = [1.3, 1.5, 1.4, 1.2, 1.25, 1.45, 1.35, 1.55, 1.6]


@given(final=st.floats(1.0, 2.0), warmdown=st.floats(0.1, 1.0))
@settings(max_examples=30, deadline=None)
def test_what_is_still_to_come_is_known_from_the_schedule(final, warmdown):
    found = seen(study_of(*KNOWN_FINALS), final, warmdown, 60)
    assert found.expected == pytest.approx(final + 0.01, abs=1e-6)
    assert found.hopeless is (found.expected > 1.21 + 1e-6) or abs(final - 1.2) < 1e-6


def test_a_rate_that_has_not_fallen_is_no_reason_to_stop():
    """Its loss is the highest of all at that moment, and it is about to become the best."""
    record = study_of(*KNOWN_FINALS, warmdowns=(0.9, 1.0, 0.95, 0.8, 0.85, 0.2, 0.9, 0.8, 0.3))
    trial = trial_of(9, 1.19, 0.1, 60)
    losses = [curve_of(final, 0.9, 60)[-1][1]["train/loss"] for final in (1.3, 1.2, 1.25)]
    assert trial.curve[-1][1]["train/loss"] > max(losses)
    record.trials.append(trial)
    assert not look(record, trial).hopeless


@pytest.mark.parametrize("upto", [5, 30, 50, 55, 65, 95])
def test_there_is_one_look_and_no_early_one(upto):
    assert seen(study_of(*KNOWN_FINALS), 3.0, 0.5, upto) is None
    assert CHECK_AT >= 0.5


def test_there_must_be_enough_to_learn_from():
    assert seen(study_of(*KNOWN_FINALS[: KNOWN - 1]), 3.0, 0.5, 60) is None
    assert seen(study_of(*KNOWN_FINALS[:KNOWN]), 3.0, 0.5, 60).known == KNOWN


def test_what_the_sampler_did_not_suggest_is_not_looked_at():
    assert seen(study_of(*KNOWN_FINALS), 3.0, 0.5, 60, role=PRESET) is None


def test_a_clock_decides_the_share_where_it_ends_the_run():
    # 3.6 of 4.8 seconds: three quarters; the point before was over the bar already.
    stop = {"steps": None, "seconds": 4.8}
    assert seen(study_of(*KNOWN_FINALS), 3.0, 0.5, 60, stop=stop) is None
    found = seen(study_of(*KNOWN_FINALS), 3.0, 0.5, 50, stop=stop)
    assert found.share == pytest.approx(3.0 / 4.8)


def test_runs_of_another_fidelity_are_nothing_to_learn_from():
    record = study_of(*KNOWN_FINALS)
    for trial in record.trials[2:4]:
        object.__setattr__(trial.attempt.outcome, "fidelity", {"device": "cuda"})
    assert seen(record, 3.0, 0.5, 60) is None


def test_equal_schedules_leave_only_the_loss():
    found = seen(study_of(*KNOWN_FINALS, warmdowns=(0.5,)), 1.4, 0.5, 60)
    assert found.expected == pytest.approx(1.41, abs=1e-6)


def test_a_report_that_is_no_number_is_no_curve():
    trial = trial_of(0, 1.4, 0.5)
    trial.curve[3][1]["train/loss"] = float("nan")
    assert Curve.of(trial) is None
