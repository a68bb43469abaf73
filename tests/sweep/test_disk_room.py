import dataclasses
import math
import shutil

import pytest

from golfray.core.settings import RunSettings
from golfray.sweep.disk_room import (
    MIB,
    DiskNeed,
    DiskTooSmall,
    bytes_words,
    check_disk,
    disk_need,
    free_bytes,
    most_trials,
    nearest_folder,
    with_reserve,
)
from golfray.sweep.size import parameter_shapes

SPACE = """\
name: one
preset: parameter-golf
scale: laptop
budget: {budget}
replicates: 2
knobs: {{optimizer.matrix_lr: {{low: 0.02, high: 0.16}}}}
"""


@pytest.fixture
def small_disk(mount, tmp_path):
    """Gives a disk of a size."""
    return lambda size: mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", tmp_path / "small")


def test_parameters_are_those_of_the_model() -> None:
    shapes = parameter_shapes(RunSettings().model)
    # Section 3.6 of the reference: 17,039,360 integers and 20,552 control values in 9 * 10 + 2 tensors.
    assert sum(map(math.prod, shapes)) == 17_039_360 + 20_552
    assert len(shapes) == 92


def test_more_trials_need_more_room_by_as_much_each() -> None:
    none, one, ten = (disk_need(RunSettings(), trials, 2).study for trials in (0, 1, 10))
    assert ten - one == pytest.approx(9 * (one - none))
    # A float32 checkpoint, and two artifacts of a byte a weight.
    assert one - none > 6 * 17_059_912


def test_a_finished_trial_and_its_log_stay_below_what_was_said(trained_folder, tiny_settings) -> None:
    need = disk_need(tiny_settings(), 1, 1)
    written = {path.name: path.stat().st_size for path in trained_folder.iterdir()}
    checkpoint, artifact = written.pop("checkpoint.pt"), written.pop("final_model.int8.ptz")
    assert 0.5 * need.parts["checkpoints"] < checkpoint <= need.parts["checkpoints"]
    assert 2 * artifact <= need.parts["artifacts"]
    assert sum(written.values()) <= need.parts["curves and logs"]


@pytest.mark.parametrize(
    ("budget", "lanes", "most"),
    [
        ("{trials: 5}", 3, 6),
        ("{trials: 5, minutes: 1}", 3, 6),
        # Four of 15 seconds fit into each lane.
        ("{minutes: 1}", 3, 12),
        ("{minutes: 1.1}", 1, 5),
    ],
)
def test_most_trials(space_at, budget, lanes, most) -> None:
    assert most_trials(space_at(SPACE.format(budget=budget)), lanes) == most


def test_nothing_limits_trials_of_unknown_length(space_at) -> None:
    text = SPACE.format(budget="{minutes: 1}") + "fixed: {stop.seconds: null, stop.steps: 5}\n"
    assert most_trials(space_at(text), 2) is None


def test_a_disk_with_room_is_accepted(tmp_path) -> None:
    check_disk(DiskNeed({"all": MIB}, MIB), tmp_path / "studies" / "new", tmp_path)


def test_a_full_disk_is_refused_with_need_room_place_and_remedy(small_disk, tmp_path) -> None:
    study = small_disk("24m") / "studies" / "muon"
    check_disk(DiskNeed({"all": 7 * MIB}, 0), study, tmp_path)
    with pytest.raises(DiskTooSmall) as caught:
        check_disk(DiskNeed({"all": 30 * MIB}, 0), study, tmp_path)
    assert caught.value.exit_code == 4
    assert str(caught.value) == (
        f"{study}: the study needs 30.0 MiB, 49.0 MiB with a reserve, but this disk has 24.0 MiB free; make room, "
        "choose another folder with --study-dir, or lower the number of trials"
    )
    assert not study.exists()


def test_a_full_temporary_folder_is_refused_too(small_disk, tmp_path) -> None:
    disk = small_disk("24m")
    with pytest.raises(DiskTooSmall, match=r"temporary files needs? .* choose another one with TMPDIR"):
        check_disk(DiskNeed({"all": MIB}, 100 * MIB), tmp_path / "studies", disk)


def test_two_folders_on_one_disk_need_room_for_both(small_disk, tmp_path) -> None:
    disk, half = small_disk("40m"), DiskNeed({"all": 15 * MIB}, 15 * MIB)
    check_disk(half, disk / "study", tmp_path)
    check_disk(half, tmp_path, disk / "tmp")
    with pytest.raises(DiskTooSmall, match="the study and temporary files need"):
        check_disk(half, disk / "study", disk / "tmp")


def test_the_reserve_is_a_tenth_and_some() -> None:
    assert with_reserve(0) == 16 * MIB
    assert with_reserve(1000 * MIB) == 1116 * MIB


def test_free_bytes_are_those_of_the_nearest_folder(small_disk, tmp_path) -> None:
    assert nearest_folder(tmp_path / "a" / "b") == tmp_path
    disk = small_disk("8m")
    (disk / "full").write_bytes(bytes(3 * MIB))
    assert free_bytes(disk / "a" / "b") == shutil.disk_usage(disk).free == 5 * MIB


def test_sizes_in_words() -> None:
    assert bytes_words(int(1.5 * MIB)) == "1.5 MiB"
    assert bytes_words(3 * 1024**3) == "3.0 GiB"


def test_log_points_count() -> None:
    few, many = (
        disk_need(
            dataclasses.replace(RunSettings(), runtime=dataclasses.replace(RunSettings().runtime, log_points=points)),
            1,
            1,
        )
        for points in (10, 1000)
    )
    assert many.parts["curves and logs"] > few.parts["curves and logs"]
    assert many.parts["checkpoints"] == few.parts["checkpoints"]
