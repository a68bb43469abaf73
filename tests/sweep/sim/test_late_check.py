"""Studies in which hopeless trials are stopped late: which ones, what the sampler hears, what a lost driver leaves."""

import dataclasses
import itertools
from pathlib import Path

import pytest
from optuna.trial import TrialState

from golfray.cli.output import JSON_SCHEMA
from golfray.report.documents import study_document
from golfray.report.lookup import load_trial
from golfray.report.status import StudyStatus
from golfray.report.trial_page import trial_document, trial_lines
from golfray.sweep import stopping
from golfray.sweep.choosing import best_feasible
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.regret import stopped_trials
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.trial_record import SAMPLER
from tests.cli.documented import read_tables
from tests.sweep.sim.conftest import SPACE

ALONE = Simulation(scale="laptop")
OFF = SPACE.replace("{trials: 10}", "{trials: 30}").replace("log_points: 3", "log_points: 20") + "sampler: random\n"
ON = f"{OFF}stopping: late_check\n"

# Records that have something of stopping in them.
CHANGED = ("trial_asked", "late_check")


@pytest.fixture
def stopped(simulated, tmp_path):
    """A study in which trials were stopped."""
    return simulated(ALONE, ON, tmp_path / "on")


def test_what_is_stopped_is_the_sampler_s_late_and_no_winner(stopped, simulated, tmp_path):
    record, without = stopped.run(), simulated(ALONE, OFF, tmp_path / "off").run()
    assert record.counts["stopped"] >= 3
    assert "stopped" not in without.counts
    # Points at random are the same either way, and so is what is not stopped.
    whole = {repr(trial.params): trial for trial in without.trials if not trial.too_large and not trial.repeats}
    for trial in record.trials:
        if trial.too_large or trial.repeats:
            continue
        other = whole[repr(trial.params)]
        if trial.outcome.kind is not Kind.STOPPED:
            assert trial.outcome == other.outcome
            continue
        check = trial.attempt.late_check
        assert trial.role == SAMPLER
        assert trial.bpb is None
        assert trial.outcome.reason == check.reason
        assert not check.audited
        assert check.chance < stopping.CHANCE
        assert check.known >= stopping.KNOWN
        assert stopping.CHECK_AT <= check.share < 1
        assert check.share == trial.attempt.curve[-1][0] / 120
        # It ended when it was next heard of.
        assert trial.outcome.phases["train"] == pytest.approx(check.share * other.outcome.phases["train"], rel=0.01)
    assert best_feasible(record).bpb == best_feasible(without).bpb
    assert record.driven_seconds < without.driven_seconds
    done = stopped_trials(record)
    assert done.stopped == record.counts["stopped"]
    assert done.saved_s == pytest.approx(without.driven_seconds - record.driven_seconds, rel=0.1)


def test_the_sampler_hears_pruned_with_the_curve(stopped):
    record = stopped.run()
    told = [trial for trial in record.trials if trial.told]
    for trial, heard in zip(told, stopped._agenda._sampler.trials, strict=True):
        assert (heard.state is TrialState.PRUNED) is (trial.outcome.kind is Kind.STOPPED)
        if trial.outcome.kind is Kind.STOPPED:
            assert heard.intermediate_values == {step: values["train/loss"] for step, values in trial.curve}


def test_the_audited_run_on_and_say_what_stopping_would_have_cost(stopped, monkeypatch):
    monkeypatch.setattr(stopping, "AUDIT_SHARE", 1.0)
    record = stopped.run()
    assert "stopped" not in record.counts
    audited = [trial for trial in record.trials if trial.attempt.late_check is not None]
    assert len(audited) >= 3
    assert all(trial.attempt.late_check.audited and trial.bpb is not None for trial in audited)
    done = stopped_trials(record)
    candidates = {trial.number for trial in record.candidates}
    gains = [max(t.attempt.late_check.bar - t.bpb, 0.0) if t.number in candidates else 0.0 for t in audited]
    assert (done.stopped, done.audited, done.saved_s) == (0, len(audited), 0.0)
    assert done.wrong == sum(gain > 0 for gain in gains)
    assert done.regret == pytest.approx(sum(gains) / len(gains))


def test_about_one_in_twenty_is_audited_and_always_the_same():
    chosen = [number for number in range(10_000) if stopping.is_audited(7, number)]
    assert 400 < len(chosen) < 600
    assert chosen == [number for number in range(10_000) if stopping.is_audited(7, number)]
    assert chosen != [number for number in range(10_000) if stopping.is_audited(8, number)]


class DriverLost(BaseException):
    """What ends a driver here as a signal would."""


@pytest.mark.parametrize("after", ["late_check", "progress"])
@pytest.mark.parametrize("loss", [DriverLost, KeyboardInterrupt])
def test_a_decision_stands_in_the_log(stopped, simulated, watcher_class, tmp_path: Path, after, loss):
    """The driver goes between the decision and the end that follows from it, or just before the decision."""
    whole = stopped.run()
    events = list(read_events(tmp_path / "on" / LOG_NAME))
    at = next(one["seq"] for one, then in itertools.pairwise(events) if then["event"] == "late_check")
    at += after == "late_check"

    def go(event):
        if event["seq"] == at:
            raise loss

    lost = simulated(ALONE, ON, tmp_path / "lost", observers=[watcher_class(act=go)])
    with pytest.raises(loss):
        lost.run()
    resumed = simulated(ALONE, ON, tmp_path / "lost", start=1.1e9)
    record = resumed.resume()
    assert [(t.params, t.outcome.kind, t.bpb, t.curve) for t in record.trials] == [
        (t.params, t.outcome.kind, t.bpb, t.curve) for t in whole.trials
    ]
    trial = record.trials[events[at]["trial"]]
    assert trial.outcome.kind is Kind.STOPPED
    assert len(trial.attempts) == (1 if after == "late_check" else 2)
    assert [repr(t.attempt.late_check) for t in record.trials] == [repr(t.attempt.late_check) for t in whole.trials]
    assert repr(StudyRecord.load(tmp_path / "lost").trials) == repr(record.trials)


def test_what_has_ended_by_itself_keeps_its_score(stopped):
    record = stopped.run()
    trial = next(trial for trial in record.trials if trial.bpb is not None and trial.role == SAMPLER)
    check = next(t.attempt.late_check for t in record.trials if t.attempt.late_check is not None)
    attempt = dataclasses.replace(trial.attempt, late_check=check)
    assert stopping.as_stopped(attempt, trial.outcome) is trial.outcome
    crashed = dataclasses.replace(trial.outcome, kind=Kind.CRASHED)
    assert stopping.as_stopped(attempt, crashed) is crashed


def test_its_log_and_its_documents_are_as_the_page_says(stopped, tmp_path):
    record, tables = stopped.run(), read_tables()
    written = [event for event in read_events(tmp_path / "on" / LOG_NAME) if event["event"] in CHANGED]
    events = [{"schema": JSON_SCHEMA, "kind": "event", **event} for event in written]
    assert {event["event"] for event in events} == set(CHANGED)
    number = next(trial.number for trial in record.trials if trial.outcome.kind is Kind.STOPPED)
    found = load_trial(f"{tmp_path}/on/{number}")
    documents = [
        {"schema": JSON_SCHEMA, "kind": "study", **study_document(record, tmp_path / "on"), "exit_code": 0},
        {"schema": JSON_SCHEMA, "kind": "trial", **trial_document(found)},
    ]
    assert [mistake for document in [*events, *documents] for mistake in tables.mistakes(document)] == []
    assert StudyStatus.of(found.study, record.last_event).lines().count(stopped_trials(record).words()) == 1
    assert documents[0]["stopping"]["stopped"] == record.counts["stopped"]
    assert documents[1]["attempts"][0]["late_check"]["reason"] in "\n".join(trial_lines(found))


@pytest.mark.parametrize("lanes", [2, 5])
def test_on_several_lanes_and_with_mishaps(simulated, lanes):
    record = simulated(Simulation(scale="laptop", lanes=lanes, crash=0.05, preempt=0.1, hang=0.02), ON).run()
    assert record.complete
    assert record.counts["stopped"] >= 1
    for trial in record.trials:
        assert (trial.outcome.kind is Kind.STOPPED) <= (trial.attempt.late_check is not None)
        assert not any(attempt.is_stopped for attempt in trial.attempts[:-1])
