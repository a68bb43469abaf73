"""A study on a simulated machine: an ordinary log in simulated time, and never to be taken for a real one."""

import json
from pathlib import Path

import pytest

from golfray.config.errors import ConfigError
from golfray.report.summary import resume_command
from golfray.sweep.choosing import best_feasible
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.outcome import Kind
from golfray.sweep.past_studies import recorded_costs
from golfray.sweep.records import StudyRecord
from golfray.sweep.sim.law import LAPTOP
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.space_diff import allowed_changes, changes_since
from tests.sweep.conftest import BYTES_CODE, DATA
from tests.sweep.sim.conftest import SPACE, START
from tests.sweep.small_studies import what_came_of

MACHINE = Simulation(scale="laptop", lanes=2)

# With one attempt at a time, whatever a size is foreseen from has ended before, with or without an interruption.
ALONE = Simulation(scale="laptop", lanes=1)


def test_a_study_runs_as_any_other_and_its_log_is_in_simulated_time(simulated):
    study = simulated(MACHINE)
    record = study.run()
    assert record.complete
    # What is refused for its size takes no time and no budget.
    ran = [trial for trial in record.trials if not trial.too_large]
    assert len(ran) == 11
    assert len(record.trials) > 11
    assert best_feasible(record) is not None
    assert {trial.outcome.kind for trial in record.trials} >= {Kind.SCORED, Kind.INFEASIBLE}
    times = [event["time"] for event in read_events(study.folder / LOG_NAME)]
    assert times[0] == START
    assert times == sorted(times)
    # Eleven trials of about 16 s, two at a time.
    assert 60 < record.driven_seconds < 130
    for trial in ran:
        lasted = trial.attempt.ended - trial.attempt.started
        assert lasted == pytest.approx(sum(trial.outcome.phases.values()))


def test_a_budget_in_minutes_is_spent_in_simulated_ones(simulated):
    record = simulated(MACHINE, SPACE.replace("{trials: 10}", "{minutes: 3}")).run()
    assert record.end_reason == "budget spent: 3 minutes"
    assert 180 <= record.driven_seconds < 200
    assert all(trial.attempt.submitted < START + 180 for trial in record.trials if not trial.too_large)


def test_crashes_preemptions_and_hangs_are_run_again_as_ever(simulated):
    record = simulated(Simulation(scale="laptop", lanes=2, crash=0.1, preempt=0.2, hang=0.05)).run()
    ran = [trial for trial in record.trials if not trial.too_large]
    attempts = [attempt for trial in ran for attempt in trial.attempts]
    kinds = {attempt.outcome.kind for attempt in attempts}
    assert kinds >= {Kind.CRASHED, Kind.PREEMPTED, Kind.SCORED}
    assert len(attempts) > len(ran)


def test_the_same_seed_is_the_same_study(simulated, tmp_path):
    records = [simulated(MACHINE, folder=tmp_path / name).run() for name in ("one", "two")]
    assert what_came_of(records[0]) == what_came_of(records[1])
    logs = [(tmp_path / name / LOG_NAME).read_text() for name in ("one", "two")]
    assert logs[0] == logs[1]


def test_a_simulated_study_is_never_compared_with_a_real_one(simulated, make_in, synthetic, tmp_path):
    text = SPACE.replace("name: played", "name: other")
    record = simulated(MACHINE).run()
    real = make_in(text, synthetic(), folder=tmp_path / "studies" / "other", sizes=SimulatedSizes(LAPTOP)).run()
    assert record.simulation == MACHINE.to_record()
    assert real.simulation is None
    assert {record.fidelity_of(trial) for trial in record.trials if not trial.too_large} == {record.fidelity}
    assert json.loads(record.fidelity[0])["device"] == "simulated"
    assert json.loads(real.fidelity[0])["device"] != "simulated"


@pytest.mark.parametrize("allow", [False, True])
def test_neither_goes_on_as_the_other(simulated, space_at, allow):
    study = simulated(MACHINE)
    record = study.run()
    space = space_at(SPACE)
    found = changes_since(record, space, bytes_code=BYTES_CODE, data=DATA)
    assert [change.path for change in found] == ["simulation"]
    with pytest.raises(ConfigError, match="holds another study than this"):
        allowed_changes(found, study.folder, allow=allow)
    del record.header["simulation"]
    found = changes_since(record, space, bytes_code=BYTES_CODE, data=DATA, simulation=MACHINE.to_record())
    with pytest.raises(ConfigError, match="holds another study than this"):
        allowed_changes(found, study.folder, allow=allow)


def test_it_goes_on_only_on_the_machine_that_it_began_on(simulated, space_at):
    study = simulated(MACHINE)
    record = study.run()
    own = {"bytes_code": BYTES_CODE, "data": DATA}
    assert changes_since(record, space_at(SPACE), **own, simulation=MACHINE.to_record()) == []
    other = Simulation(scale="laptop", lanes=3, seed=2).to_record()
    changes = changes_since(record, space_at(SPACE), **own, simulation=other)
    assert {str(change) for change in changes} == {"simulation.lanes: 2 -> 3", "simulation.seed: 0 -> 2"}
    assert not any(change.may_be for change in changes)


def test_nothing_is_foreseen_from_a_simulated_study(simulated, space_at, tmp_path):
    from golfray.sweep.costs import work_of

    simulated(MACHINE).run()
    work, _ = work_of(space_at(SPACE), "cpu", 1000, 1)
    assert recorded_costs(tmp_path / "studies", work, 2) is None


def test_a_study_that_was_left_goes_on_in_its_own_time(simulated, watcher_class):
    def leave(event):
        if event["event"] == "progress" and event["trial"] == 4:
            raise KeyboardInterrupt

    whole = what_came_of(simulated(ALONE, folder=None).run())
    study = simulated(ALONE)
    (study.folder / LOG_NAME).unlink()
    study = simulated(ALONE, observers=[watcher_class(act=leave)])
    with pytest.raises(KeyboardInterrupt):
        study.run()
    resumed = simulated(ALONE, start=study.record.last_event).resume()
    assert what_came_of(resumed) == whole
    assert resumed.simulation == ALONE.to_record()
    assert StudyRecord.load(study.folder).generation == 2


def test_what_is_printed_to_go_on_goes_on_in_the_simulator(simulated, tmp_path):
    record = simulated(Simulation(scale="laptop"), SPACE, tmp_path / "study").run()
    assert resume_command(record, Path("studies/s")) == "golfray tune --resume studies/s --executor sim"
