"""200 drivers killed at random events: whoever resumes ends with what the uninterrupted study has."""

import collections
import dataclasses
import functools
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from golfray.sweep.events import LOG_NAME, EventLog, read_events
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import GP_STARTUP_TRIALS
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.study import Study
from tests.sweep.sim.conftest import SPACE

# Configurations that crash whenever they are tried, rates that diverge and preempted attempts, besides what is over the
# cap. An attempt that crashes by chance would not do: after a kill it is another attempt, and has other luck.
ROUGH = {"scale": "laptop", "broken": 0.25, "preempt": 0.1, "diverge_ratio": 3.0}

# Before a record is written, in the middle of it, and before anybody is told of it.
MOMENTS = ("before", "half", "after")


def multiset(record: StudyRecord, lanes: int) -> collections.Counter:
    """Parameters, seed and outcome of every trial; a NaN is equal to itself in a text.

    What is foreseen of a point that is refused for its size comes from what has ended by then. On one lane that is
    everything; on several it is not the same after a kill, so there only the refusal counts.
    """
    return collections.Counter(
        repr(
            (trial.params, trial.seed, trial.share, "refused" if trial.too_large and lanes > 1 else end(trial.outcome))
        )
        for trial in record.trials
    )


def end(outcome: Outcome) -> Outcome:
    """Seconds to the millisecond: of a stopped trial they are differences of what two clocks said."""
    return dataclasses.replace(outcome, phases={name: round(took, 3) for name, took in outcome.phases.items()})


def kill_at(seq: int, moment: str) -> None:
    """From here on this process dies by SIGKILL at record ``seq`` of a log."""
    append = EventLog.append

    def until(log: EventLog, event: str, **fields: object) -> dict:
        if log._next_seq == seq and moment != "after":
            if moment == "half":
                os.write(log._fd, f'{{"seq":{seq},"time":17000'.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        written = append(log, event, **fields)
        if written["seq"] == seq:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    EventLog.append = until  # type: ignore[method-assign]


def die(build: Callable[[], Study], *, resume: bool, seq: int, moment: str) -> None:
    """Drive a study in a process forked from this one, which has everything loaded, until it is killed."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(seq, moment)
            study = build()
            study.resume() if resume else study.run()
        finally:
            os._exit(1)  # it was not killed
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def kill_and_resume(simulated: Callable[..., Study], tmp_path: Path, text: str, lanes: int, kills: int) -> StudyRecord:
    """Kill a study so many times, anew each time, and compare what its resumption comes to with the whole one."""
    machine = Simulation(lanes=lanes, **ROUGH)
    whole = simulated(machine, text, tmp_path / "whole").run()
    assert whole.complete
    expected, length = multiset(whole, lanes), sum(1 for _ in read_events(tmp_path / "whole" / LOG_NAME))
    chooser = random.Random(f"{text} {lanes}")
    for case in range(kills):
        folder = tmp_path / f"killed-{case}"
        seq, moment = chooser.randrange(1, length), chooser.choice(MOMENTS)
        # The clock of whoever goes on: some time after everything that happened before.
        begin, go_on = (functools.partial(simulated, machine, text, folder, start=start) for start in (1.0e9, 1.1e9))
        die(begin, resume=False, seq=seq, moment=moment)
        if case % 3 == 0:
            # And once more, as it says that there is another driver or soon after: two records come in any case.
            first = seq + (moment == "after")
            die(go_on, resume=True, seq=first + chooser.randrange(2), moment=chooser.choice(MOMENTS))
        record = simulated(machine, text, folder, start=1.3e9).resume()
        assert multiset(record, lanes) == expected, f"killed {moment} record {seq}"
        assert record.complete
        assert 2 <= record.generation <= 3
    return whole


@pytest.mark.parametrize("kills", [2, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("sampler", "lanes", "all_kills"), [("random", 1, 70), ("random", 3, 70), ("tpe", 1, 60)])
def test_a_killed_study_that_is_resumed_ends_as_it_would_have(
    simulated, tmp_path: Path, sampler, lanes, all_kills, kills
):
    whole = kill_and_resume(simulated, tmp_path, f"{SPACE}sampler: {sampler}\n", lanes, kills or all_kills)
    assert whole.counts.keys() >= {"scored", "infeasible", "diverged", "crashed"}


@pytest.mark.slow
def test_so_does_one_whose_process_has_taken_over(simulated, tmp_path: Path):
    text = SPACE.replace("{trials: 10}", "{trials: 40}") + "sampler: gp\n"
    whole = kill_and_resume(simulated, tmp_path, text, 1, 12)
    assert sum(trial.told for trial in whole.trials) > GP_STARTUP_TRIALS


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "kind"), [("late_check", "stopped"), ("rungs", "scored")])
def test_so_does_one_that_stops(simulated, tmp_path: Path, rule, kind):
    text = SPACE.replace("{trials: 10}", "{trials: 30}").replace("log_points: 3", "log_points: 20")
    whole = kill_and_resume(simulated, tmp_path, f"{text}sampler: random\nstopping: {rule}\n", 1, 12)
    assert whole.counts[kind] >= 2
