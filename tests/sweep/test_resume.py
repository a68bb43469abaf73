"""A driver that takes over: whatever was cut off where, the study ends as it would have without."""

import dataclasses
import json
import math
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from golfray.sweep.agenda import work_left
from golfray.sweep.events import LOG_NAME, EventLogError, read_events
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.resume import trials_outside
from golfray.sweep.retry import DRIVER_LOST
from golfray.sweep.space_record import space_of
from golfray.sweep.study_folder import only_driver_of
from golfray.sweep.trial_record import PRESET, REPLICATE, SAMPLER

CUTS = random.Random(20261129)

ONE_KNOB = """\
name: one
preset: parameter-golf
scale: laptop
budget: {trials: 7}
seed: 5
sampler: random
replicates: 2
first_points: [{optimizer.matrix_lr: 0.1}]
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}}
"""


@pytest.fixture
def rough(law):
    """The synthetic law, but some learning rates crash, diverge or are preempted: always, so on every attempt."""

    def outcome(settings: dict[str, Any]) -> Outcome:
        part = settings["optimizer"]["matrix_lr"] * 1e4 % 10
        if 5 <= part < 6:
            return Outcome(Kind.CRASHED, "out of memory", error="OutOfMemoryError at model.py:3")
        if 2 <= part < 3:
            return Outcome(Kind.DIVERGED, "loss is not finite", metrics={"train/loss": math.nan})
        if 6.5 <= part < 7:
            return Outcome(Kind.PREEMPTED, "node gone")
        return law(settings)

    return outcome


def what_came_of(record: StudyRecord) -> list[str]:
    """Trial for trial: what was asked, and how it ended; NaN is equal to itself here."""
    return [
        repr((trial.number, trial.role, trial.params, trial.seed, trial.settings, trial.told, trial.outcome))
        for trial in record.trials
    ]


def check_nothing_was_done_twice(record: StudyRecord) -> None:
    for trial in record.trials:
        numbers = [attempt.number for attempt in trial.attempts]
        assert numbers == sorted(set(numbers))
        assert [attempt.final for attempt in trial.attempts] == [False] * (len(numbers) - 1) + [True]
    assert len({attempt.job_id for trial in record.trials for attempt in trial.attempts}) == sum(
        len(trial.attempts) for trial in record.trials
    )


def cut_and_go_on(make_here, content: bytes, size: int, folder: Path) -> StudyRecord:
    """The study of a log that is cut to ``size`` bytes, driven to its end; the attempts' folders stay as they are."""
    (folder / LOG_NAME).write_bytes(content[:size])
    study = make_here()
    started = b"\n" in content[:size]
    return study.resume() if started else study.run()


@pytest.fixture
def make_in(make, tmp_path):
    """Like ``make``, but of a study whose folder may hold one already."""

    def build(text: str, executor, folder: Path = tmp_path / "studies" / "one", **kwargs):
        folder.mkdir(parents=True, exist_ok=True)
        return make(text, executor=executor, folder=folder, **kwargs)

    return build


MANY = pytest.param(150, marks=pytest.mark.slow)


@pytest.mark.parametrize("cases", [12, MANY])
@pytest.mark.parametrize("slots", [1, 3])
def test_cut_anywhere_a_random_study_ends_as_it_would_have(make_in, synthetic, rough, slots: int, cases: int) -> None:
    def build():
        order = {"finish_order": lambda job_id: sum(map(ord, job_id)) % 3}
        return make_in(ONE_KNOB, synthetic(rough, slots=slots, **order))

    whole = build()
    expected = what_came_of(whole.run())
    content = (whole.folder / LOG_NAME).read_bytes()
    assert whole.record.counts == {"scored": 5, "crashed": 1, "preempted": 1, "diverged": 1}
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    sizes = [CUTS.choice(ends[:-1]) for _ in range(cases)] + [CUTS.randrange(len(content)) for _ in range(cases)]
    for size in sizes:
        record = cut_and_go_on(build, content, size, whole.folder)
        assert what_came_of(record) == expected, f"cut at {size}"
        check_nothing_was_done_twice(record)
        assert record.complete


@pytest.mark.parametrize("cases", [5, MANY])
@pytest.mark.parametrize("text", [ONE_KNOB.replace("sampler: random", "sampler: tpe"), None])
def test_cut_anywhere_a_tpe_study_of_one_lane_ends_as_it_would_have(
    make_in, synthetic, rough, small, text: str | None, cases: int
) -> None:
    def build():
        return make_in(text or small, synthetic(rough))

    whole = build()
    expected = what_came_of(whole.run())
    content = (whole.folder / LOG_NAME).read_bytes()
    for size in (CUTS.randrange(len(content)) for _ in range(cases)):
        assert what_came_of(cut_and_go_on(build, content, size, whole.folder)) == expected, f"cut at {size}"


@pytest.mark.parametrize("studies", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_driver_after_driver_is_lost(make_in, synthetic, rough, studies: int) -> None:
    """Each driver is lost somewhere in what it wrote itself: the log of the one before is where the next begins."""

    def build():
        return make_in(ONE_KNOB, synthetic(rough, slots=2))

    whole = build()
    expected = what_came_of(whole.run())
    for _ in range(studies):
        before = 0
        (whole.folder / LOG_NAME).unlink()
        build().run()
        for generation in range(2, 6):
            content = (whole.folder / LOG_NAME).read_bytes()
            size = CUTS.randrange(before, len(content)) + 1
            record = cut_and_go_on(build, content, size, whole.folder)
            before = min(size + 200, (whole.folder / LOG_NAME).stat().st_size - 1)
            assert what_came_of(record) == expected
            assert record.generation <= generation


DRIVER = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
import conftest
from golfray.sweep.space import load_space
from golfray.sweep.study import Study
from golfray.sweep.study_folder import only_driver_of

folder, goal = pathlib.Path(sys.argv[3]), int(sys.argv[4])

class Executor(conftest.SyntheticExecutor):
    def events(self, timeout):
        if (folder / "events.jsonl").stat().st_size > goal:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().events(timeout)

with only_driver_of(folder):
    study = Study(load_space(pathlib.Path(sys.argv[2]), has_gpu=False), Executor(slots=2), folder,
                  bytes_code=conftest.BYTES_CODE, uniform_bpb=conftest.UNIFORM_BPB, data=conftest.DATA)
    study.resume() if sys.argv[5:] else study.run()
"""


def test_drivers_that_are_killed_in_earnest(make_in, synthetic, space_at, tmp_path: Path) -> None:
    expected = what_came_of(make_in(ONE_KNOB, synthetic(slots=2)).run())
    space_at(ONE_KNOB)
    folder = tmp_path / "studies" / "killed"
    folder.mkdir()
    for goal, more in ((8_000, []), (13_000, ["resume"])):
        arguments = [str(Path(__file__).parent), str(tmp_path / "space.yaml"), str(folder), str(goal), *more]
        done = subprocess.run([sys.executable, "-c", DRIVER, *arguments], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert (folder / "driver.json").exists()
    with only_driver_of(folder):
        record = make_in(ONE_KNOB, synthetic(slots=2), folder=folder).resume()
    assert what_came_of(record) == expected
    assert record.generation == 3
    assert {a.outcome.reason for t in record.trials for a in t.attempts if not a.final} == {"driver lost"}


def test_what_a_lost_driver_had_running_ends_as_preempted_and_runs_again(make_in, synthetic) -> None:
    whole = make_in(ONE_KNOB, synthetic(finish_order=lambda job_id: 3))
    whole.run()
    lines = (whole.folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    at = next(i for i, r in enumerate(records) if r["event"] == "progress" and r["trial"] == 4 and r["step"] == 2)
    before = b"".join(lines[: at + 1])
    (whole.folder / LOG_NAME).write_bytes(before)
    executor = synthetic()
    record = make_in(ONE_KNOB, executor).resume()
    assert (whole.folder / LOG_NAME).read_bytes().startswith(before), "what was logged stays as it is"
    first, second = record.trials[4].attempts
    assert first.outcome.kind is Kind.PREEMPTED
    assert first.outcome.reason == first.outcome.error == DRIVER_LOST
    assert first.outcome.metrics == {"train/loss": 2.5, "train/steps": 2.0}
    begun = next(r["time"] for r in records if r["event"] == "phase" and r["trial"] == 4)
    assert first.outcome.phases == {"train": pytest.approx(records[at]["time"] - begun)}
    assert (first.generation, second.generation) == (1, 2)
    assert second.folder == "trials/0004/attempt-2"
    assert executor.submitted[0].job_id == "one-0004-2"
    assert executor.submitted[0].settings == record.trials[4].settings
    assert [len(trial.attempts) for trial in record.trials] == [1, 1, 1, 1, 2, 1, 1, 1]


def test_a_driver_that_is_lost_often_costs_a_trial_no_retry(make_in, synthetic, law) -> None:
    """Twelve drivers die under trial 0; then it crashes, and it still has the one retry that a crash has."""
    folder = make_in(ONE_KNOB, synthetic()).folder

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            raise SystemExit

    for number in range(12):
        study = make_in(ONE_KNOB, Dying())
        with pytest.raises(SystemExit):
            study.run() if number == 0 else study.resume()
    laws = iter([Outcome(Kind.CRASHED, "killed")])
    record = make_in(ONE_KNOB, synthetic(lambda settings: next(laws, None) or law(settings))).resume()
    assert record.generation == 13
    kinds = Counter(attempt.outcome.kind for attempt in record.trials[0].attempts)
    assert kinds == {Kind.PREEMPTED: 12, Kind.CRASHED: 1, Kind.SCORED: 1}
    assert len(list((folder / "trials" / "0000").iterdir())) == 14


def test_a_trial_that_was_asked_and_never_submitted_is_submitted(make_in, synthetic) -> None:
    whole = make_in(ONE_KNOB, synthetic())
    expected = what_came_of(whole.run())
    lines = (whole.folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"attempt_submitted","trial":2' in line)
    for trial in (whole.folder / "trials").iterdir():
        if int(trial.name) >= 2:
            for file in trial.iterdir():
                file.rmdir()
    (whole.folder / LOG_NAME).write_bytes(b"".join(lines[:at]))
    record = make_in(ONE_KNOB, synthetic()).resume()
    assert what_came_of(record) == expected
    assert [[attempt.number for attempt in trial.attempts] for trial in record.trials] == [[1]] * 8


def test_an_attempts_folder_that_holds_something_the_log_does_not_know_is_left_alone(make_in, synthetic) -> None:
    study = make_in(ONE_KNOB, synthetic())
    stale = study.folder / "trials" / "0001" / "attempt-1" / "checkpoint.pt"
    stale.parent.mkdir(parents=True)
    stale.write_text("of a lost record")
    record = study.run()
    assert record.trials[1].attempt.folder == "trials/0001/attempt-2"
    assert stale.read_text() == "of a lost record"


def test_a_refusal_that_was_not_ended_is_ended_with_its_reason(make_in, synthetic) -> None:
    text = ONE_KNOB.replace("knobs: {", "knobs: {model.num_heads: {choices: [2, 3, 6, 8]}, ")
    text = text.replace("knobs: {", "knobs: {model.num_kv_heads: {choices: [1, 2, 3, 4]}, ")
    whole = make_in(text, synthetic())
    expected = what_came_of(whole.run())
    lines = (whole.folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b"configuration refused" in line)
    (whole.folder / LOG_NAME).write_bytes(b"".join(lines[:at]))
    assert what_came_of(make_in(text, synthetic()).resume()) == expected


def test_a_study_that_was_stopped_runs_what_it_cancelled_when_it_is_resumed(make_in, synthetic, watcher_class) -> None:
    expected = what_came_of(make_in(ONE_KNOB, synthetic(slots=2)).run())
    (make_in(ONE_KNOB, synthetic()).folder / LOG_NAME).unlink()

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["trial"] == 3:
            study.stop("interrupted")

    study = make_in(ONE_KNOB, synthetic(slots=2), observers=[watcher_class(act=stop)])
    stopped = study.run()
    cancelled = [trial.number for trial in stopped.trials if trial.outcome.kind is Kind.CANCELLED]
    assert cancelled == [2, 3]
    space = space_of(stopped, "log")
    left = work_left(space, stopped)
    assert (left.unfinished, len(left.planned), left.suggestions, left.most_lanes) == ((2, 3), 0, 4, 6)
    assert not left.nothing
    resumed = make_in(ONE_KNOB, synthetic(slots=2)).resume()
    assert what_came_of(resumed) == expected
    assert resumed.complete
    assert resumed.end_reason == "budget spent: 7 trials"
    assert work_left(space, resumed).nothing


@pytest.mark.parametrize("error", [KeyboardInterrupt, ConnectionError])
def test_a_driver_that_fails_or_is_interrupted_leaves_its_attempts_to_the_next(make_in, synthetic, error) -> None:
    expected = what_came_of(make_in(ONE_KNOB, synthetic()).run())
    (make_in(ONE_KNOB, synthetic()).folder / LOG_NAME).unlink()

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            if len(self.submitted) == 4:
                raise error
            return super().events(timeout)

    study = make_in(ONE_KNOB, Dying())
    with pytest.raises(error):
        study.run()
    assert study.record.trials[-1].unfinished
    assert what_came_of(make_in(ONE_KNOB, synthetic()).resume()) == expected


def test_trials_of_a_study_that_gave_up_are_tried_again_once_a_person_looked(make_in, synthetic, law) -> None:
    expected = what_came_of(make_in(ONE_KNOB, synthetic()).run())
    (make_in(ONE_KNOB, synthetic()).folder / LOG_NAME).unlink()
    given_up = make_in(ONE_KNOB, synthetic(lambda settings: Outcome(Kind.CRASHED, "no device")))
    assert given_up.run().hopeless
    assert [len(trial.attempts) for trial in given_up.record.trials] == [2, 1]
    assert work_left(space_of(given_up.record, "log"), given_up.record).unfinished == (0, 1)
    resumed = make_in(ONE_KNOB, synthetic()).resume()
    assert what_came_of(resumed) == expected
    assert not resumed.hopeless
    assert [len(trial.attempts) for trial in resumed.trials][:3] == [3, 2, 1]


def test_a_crash_that_a_trial_had_its_retry_for_stays_where_the_study_did_not_give_up(make_in, synthetic, law) -> None:
    def broken(settings: dict[str, Any]) -> Outcome:
        return Outcome(Kind.CRASHED, "out of memory") if settings["optimizer"]["matrix_lr"] == 0.1 else law(settings)

    whole = make_in(ONE_KNOB, synthetic(broken))
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: content.rindex(b'{"seq"')])
    record = make_in(ONE_KNOB, synthetic()).resume()
    assert record.trials[1].outcome.kind is Kind.CRASHED
    assert len(record.trials[1].attempts) == 2


def test_a_study_with_nothing_left_says_so_without_a_driver(make_in, synthetic) -> None:
    record = make_in(ONE_KNOB, synthetic()).run()
    space = space_of(record, "log")
    assert work_left(space, record).nothing
    assert work_left(space, record).most_lanes == 1
    more = dataclasses.replace(space, trials=9)
    assert (work_left(more, record).suggestions, work_left(more, record).nothing) == (2, False)
    seeds = dataclasses.replace(space, replicates=4)
    assert [point.role for point in work_left(seeds, record).planned] == [REPLICATE, REPLICATE]
    # A first point without a trial to spare for it is not asked; with one, it is, and before the sampler's.
    points = dataclasses.replace(space, first_points=(*space.first_points, {"optimizer.matrix_lr": 0.05}))
    assert work_left(points, record).nothing
    roomy = work_left(dataclasses.replace(points, trials=9), record)
    assert ([point.role for point in roomy.planned], roomy.suggestions) == (["first_point"], 1)


def test_a_driver_that_was_lost_before_it_could_say_so_leaves_the_end_to_be_said(make_in, synthetic) -> None:
    whole = make_in(ONE_KNOB, synthetic())
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: content.rindex(b'{"seq"')])
    record = StudyRecord.load(whole.folder)
    left = work_left(space_of(record, "log"), record)
    assert (left.nothing, left.unfinished, left.suggestions) == (False, (), 0)
    executor = synthetic()
    assert make_in(ONE_KNOB, executor).resume().complete
    assert executor.submitted == []


def test_a_longer_budget_asks_what_the_longer_study_would_have(make_in, synthetic) -> None:
    longer = ONE_KNOB.replace("trials: 7", "trials: 11")
    expected = what_came_of(make_in(longer, synthetic()).run())
    (make_in(ONE_KNOB, synthetic()).folder / LOG_NAME).unlink()
    make_in(ONE_KNOB, synthetic()).run()
    record = make_in(longer, synthetic()).resume(["budget.trials: 7 -> 11"])
    assert what_came_of(record) == expected
    assert record.changes == ["budget.trials: 7 -> 11"]
    assert record.header["budget"] == {"trials": 11, "minutes": None}
    assert record.end_reason == "budget spent: 11 trials"


def test_only_the_time_of_drivers_counts_against_the_minutes(make_in, synthetic, monkeypatch) -> None:
    """Ten minutes; the first driver lived for four of them, then nobody for an hour."""
    text = ONE_KNOB.replace("{trials: 7}", "{minutes: 10}")
    now = [1000.0]
    monkeypatch.setattr("golfray.sweep.events.time.time", lambda: now[0])

    def minute(settings: dict[str, Any]) -> Outcome:
        now[0] += 60
        return Outcome(Kind.DIVERGED, "nan")

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            if len(self.submitted) == 5:
                raise SystemExit
            return super().events(timeout)

    study = make_in(text, Dying(minute), clock=lambda: now[0])
    with pytest.raises(SystemExit):
        study.run()
    assert study.record.driven_seconds == 240
    now[0] += 3600
    record = make_in(text, synthetic(minute), clock=lambda: now[0]).resume()
    assert record.driven_seconds == 600
    assert sum(attempt.final for trial in record.trials for attempt in trial.attempts) == 10
    assert record.end_reason == "budget spent: 10 minutes"
    assert work_left(space_of(record, "log"), record).nothing


def test_a_trial_asked_in_time_is_run_again_after_it(make_in, synthetic, monkeypatch) -> None:
    text = ONE_KNOB.replace("{trials: 7}", "{minutes: 1}")
    now = [1000.0]
    monkeypatch.setattr("golfray.sweep.events.time.time", lambda: now[0])

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            now[0] += 61
            raise SystemExit

    with pytest.raises(SystemExit):
        make_in(text, Dying(), clock=lambda: now[0]).run()
    record = make_in(text, synthetic(), clock=lambda: now[0]).resume()
    assert [(trial.role, trial.outcome.kind) for trial in record.trials] == [(PRESET, Kind.SCORED)]


def test_who_watches_a_resumed_study_is_told_from_there_on(make_in, synthetic, watcher_class) -> None:
    whole = make_in(ONE_KNOB, synthetic())
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: len(content) // 2])
    count = len(list(read_events(whole.folder / LOG_NAME)))
    watcher = watcher_class()
    make_in(ONE_KNOB, synthetic(), observers=[watcher]).resume()
    written = list(read_events(whole.folder / LOG_NAME))
    assert watcher.events == written[count:]
    resumed = watcher.events[0]
    assert (resumed["event"], resumed["generation"], resumed["changes"]) == ("study_resumed", 2, [])
    assert resumed["torn"] == "events.jsonl.torn-1"
    assert resumed["slots"] == 1
    assert resumed["host"]
    header = StudyRecord.load(whole.folder).header
    assert header["study"] == "one"
    assert header["generation"] == 2


def test_there_is_nothing_to_resume_where_no_study_started(make_in, synthetic) -> None:
    study = make_in(ONE_KNOB, synthetic())
    with pytest.raises(EventLogError, match="no study has started here"):
        study.resume()
    with pytest.raises(EventLogError, match="log: no study has started here"):
        space_of(StudyRecord(), "log")


def test_data_that_moved_and_a_script_that_changed_are_what_a_trial_runs_with_again(make_in, synthetic) -> None:
    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            raise SystemExit

    with pytest.raises(SystemExit):
        make_in(ONE_KNOB, Dying()).run()
    executor = synthetic()
    moved = ONE_KNOB.replace("knobs:", "fixed: {data.folder: /new/place}\nknobs:")
    record = make_in(moved, executor, bytes_code=44_000).resume(["data.folder:  -> /new/place"])
    assert executor.submitted[0].job_id == "one-0000-2"
    for job in executor.submitted:
        assert job.settings["data"]["folder"] == "/new/place"
        assert job.settings["bytes_code"] == 44_000
    assert len(record.trials) == 8, "planned points are the same where the data lie elsewhere"


def test_the_sampler_hears_only_of_points_of_the_changed_space(make_in, synthetic, space_at) -> None:
    whole = make_in(ONE_KNOB, synthetic())
    whole.run()
    rates = {trial.number: trial.params["optimizer.matrix_lr"] for trial in whole.record.trials}
    narrow = ONE_KNOB.replace("high: 0.16", "high: 0.08").replace("0.1}", "0.07}").replace("trials: 7", "trials: 9")
    record = make_in(narrow, synthetic()).resume(["narrower"])
    outside = [number for number, rate in rates.items() if rate > 0.08]
    assert outside
    assert [trial.number for trial in record.trials if trial.left_space is not None] == outside
    assert "is outside FloatRange(low=0.02, high=0.08" in record.trials[outside[0]].told_reason
    assert all(trial.params["optimizer.matrix_lr"] <= 0.08 for trial in record.trials[8:])
    # The range is mended: they are points of the space again.
    wide = make_in(ONE_KNOB.replace("trials: 7", "trials: 10"), synthetic()).resume(["wider"])
    assert all(trial.left_space is None for trial in wide.trials)
    assert wide.changes == ["narrower", "wider"]
    assert [trial.told for trial in wide.trials] == [trial.role != REPLICATE for trial in wide.trials]


def test_the_same_parameters_may_be_another_configuration(make, space_at, small) -> None:
    """Without its bound, a momentum is what was drawn and not the smaller of two."""
    record = make().run()
    drawn = {trial.number: trial.params for trial in record.trials if trial.told}
    bounded = {
        number
        for number, params in drawn.items()
        if params["muon.momentum_start"] > 1 - params["1 - muon.momentum_end"] + 1e-6
    }
    assert bounded
    outside = trials_outside(space_at(small.replace(", at_most: muon.momentum_end", "")), record)
    assert {entry["trial"] for entry in outside} == bounded
    assert all(entry["reason"].startswith("muon.momentum_start was 0.") for entry in outside)


def test_a_rebuilt_study_is_the_same_whoever_reads_it(make_in, synthetic, rough) -> None:
    whole = make_in(ONE_KNOB, synthetic(rough))
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: len(content) * 2 // 3])
    live = make_in(ONE_KNOB, synthetic(rough)).resume()
    read = StudyRecord.load(whole.folder)
    assert repr([dataclasses.asdict(trial) for trial in read.trials]) == repr(
        [dataclasses.asdict(trial) for trial in live.trials]
    )
    assert read.header == live.header
    assert [trial.role for trial in read.trials].count(SAMPLER) == 5
