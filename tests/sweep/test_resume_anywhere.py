"""A log cut anywhere, drivers killed anywhere: the study ends as it would have without."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from golfray.sweep.events import LOG_NAME
from golfray.sweep.records import StudyRecord
from golfray.sweep.study_folder import only_driver_of
from tests.sweep.small_studies import RESUMED, what_came_of

CUTS = random.Random(20261129)


MANY = pytest.param(150, marks=pytest.mark.slow)


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


@pytest.mark.parametrize("cases", [12, MANY])
@pytest.mark.parametrize("slots", [1, 3])
def test_cut_anywhere_a_random_study_ends_as_it_would_have(make_in, synthetic, rough, slots: int, cases: int) -> None:
    def build():
        order = {"finish_order": lambda job_id: sum(map(ord, job_id)) % 3}
        return make_in(RESUMED, synthetic(rough, slots=slots, **order))

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
@pytest.mark.parametrize("text", [RESUMED.replace("sampler: random", "sampler: tpe"), None])
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
        return make_in(RESUMED, synthetic(rough, slots=2))

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
    expected = what_came_of(make_in(RESUMED, synthetic(slots=2)).run())
    space_at(RESUMED)
    folder = tmp_path / "studies" / "killed"
    folder.mkdir()
    for goal, more in ((8_000, []), (13_000, ["resume"])):
        arguments = [str(Path(__file__).parent), str(tmp_path / "space.yaml"), str(folder), str(goal), *more]
        done = subprocess.run([sys.executable, "-c", DRIVER, *arguments], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert (folder / "driver.json").exists()
    with only_driver_of(folder):
        record = make_in(RESUMED, synthetic(slots=2), folder=folder).resume()
    assert what_came_of(record) == expected
    assert record.generation == 3
    assert {a.outcome.reason for t in record.trials for a in t.attempts if not a.final} == {"driver lost"}
