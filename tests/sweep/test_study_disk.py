"""A study whose disk fills up, or may only be read: a message with exit code 4, nothing lost, resumed afterwards."""

from pathlib import Path

import pytest

from golfray.sweep.events import LOG_NAME, LogUnwritable, read_events
from golfray.sweep.records import StudyRecord
from golfray.sweep.study_folder import StudyFolderError, create_study_folder, only_driver_of

ONE_KNOB = """\
name: one
preset: parameter-golf
scale: laptop
budget: {trials: 6}
sampler: random
replicates: 1
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}}
"""


def outcomes(record: StudyRecord) -> list[tuple]:
    return [(trial.params, trial.seed, trial.outcome) for trial in record.trials]


@pytest.mark.parametrize("size", ["16k", "28k", "40k"])
def test_a_disk_that_fills_up_under_a_study(make, synthetic, mount, tmp_path: Path, size: str) -> None:
    expected = outcomes(make(ONE_KNOB).run())
    folder = tmp_path / "small disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    executor = synthetic(slots=2, finish_order=lambda job_id: 30)
    study = make(ONE_KNOB, executor=executor, folder=folder)
    with pytest.raises((LogUnwritable, StudyFolderError), match="No space left on device") as caught:
        study.run()
    assert caught.value.exit_code == 4
    assert str(folder) in str(caught.value)
    logged = list(read_events(folder / LOG_NAME))
    assert len(logged) > 5
    assert (folder / LOG_NAME).read_bytes().endswith(b"\n"), "the last record is whole"
    if isinstance(caught.value, LogUnwritable):
        assert f"`golfray tune --resume '{folder}'`" in str(caught.value)
        running = {event["job_id"] for event in logged if event["event"] == "attempt_submitted"}
        running -= {event["job_id"] for event in logged if event["event"] == "attempt_ended"}
        assert set(executor.cancelled) == running
        assert all("(No space left on device)" in reason for reason in executor.cancelled.values())
    mount("-o", "remount,size=16m", folder)
    record = make(ONE_KNOB, folder=folder).resume()
    assert outcomes(record) == expected
    assert list(read_events(folder / LOG_NAME))[: len(logged)] == logged


def test_a_disk_without_room_for_the_first_record(make, mount, tmp_path: Path) -> None:
    folder = tmp_path / "no disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=8k", "tmpfs", folder)
    (folder / "ballast").write_bytes(b"x" * 8192)
    with pytest.raises(LogUnwritable, match="No space left on device"):
        make(ONE_KNOB, folder=folder).run()
    with pytest.raises(StudyFolderError, match="No space left on device") as caught, only_driver_of(folder):
        pass
    assert caught.value.exit_code == 4
    (folder / "ballast").unlink()
    assert create_study_folder(folder) == folder, "no study has started there"


def test_a_disk_that_may_only_be_read(make, mount, tmp_path: Path) -> None:
    folder = tmp_path / "studies" / "one"
    record = make(ONE_KNOB).run()
    mount("--bind", folder, folder)
    mount("-o", "remount,bind,ro", folder)
    with pytest.raises(LogUnwritable, match="Read-only file system") as caught:
        make(ONE_KNOB, folder=folder).resume()
    assert caught.value.exit_code == 4
    with pytest.raises(StudyFolderError, match="Read-only file system") as refused, only_driver_of(folder):
        pass
    assert refused.value.exit_code == 4
    with pytest.raises(StudyFolderError, match="cannot be made: Read-only file system"):
        create_study_folder(folder / "below")
    assert outcomes(StudyRecord.load(folder)) == outcomes(record), "reading it takes no writing"
