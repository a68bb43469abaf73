import dataclasses
import math
import shutil

import pytest
import torch

from golfray.core.exporter import export_state
from golfray.core.settings import RunSettings
from golfray.sweep.disk_room import (
    MIB,
    DiskNeed,
    DiskTooSmall,
    check_disk,
    disk_need,
    free_bytes,
    nearest_folder,
    study_disk,
    with_reserve,
)
from golfray.sweep.records import StudyRecord
from golfray.sweep.size import parameter_shapes
from golfray.sweep.work_left import work_left

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
    none, one, ten = (disk_need(RunSettings(), trials, 2, own_store=True).study for trials in (0, 1, 10))
    assert ten - one == pytest.approx(9 * (one - none))
    # A float32 checkpoint, and two artifacts of a byte a weight.
    assert one - none > 6 * 17_059_912


def test_a_finished_trial_and_its_log_stay_below_what_was_said(trained_folder, tiny_settings) -> None:
    need = disk_need(tiny_settings(), 1, 1, own_store=True)
    written = {path.name: path.stat().st_size for path in trained_folder.iterdir()}
    checkpoint, artifact = written.pop("checkpoint.pt"), written.pop("final_model.int8.ptz")
    assert 0.5 * need.parts["checkpoints"] < checkpoint <= need.parts["checkpoints"]
    assert 2 * artifact <= need.parts["artifacts"]
    assert sum(written.values()) <= need.parts["curves and logs"]


def disk_of(space, lanes=1, record=None, own_store=True):
    left = work_left(space, record or StudyRecord())
    return study_disk(space, left, lanes, own_store=own_store)


@pytest.mark.parametrize(
    ("budget", "lanes", "most", "retries"),
    [
        ("{trials: 5}", 3, 6, 1),
        # Two of 30 seconds fit into a minute in each lane: whatever is less counts.
        ("{trials: 5, minutes: 1}", 3, 6, 1),
        ("{trials: 50, minutes: 1}", 2, 4, 1),
        ("{minutes: 1}", 3, 6, 1),
        ("{minutes: 1.1}", 1, 3, 1),
        ("{minutes: 6}", 1, 12, 2),
    ],
)
def test_the_most_trials_that_the_budget_allows_and_some_of_them_again(space_at, budget, lanes, most, retries) -> None:
    found = disk_of(space_at(SPACE.format(budget=budget) + "fixed: {stop.seconds: 30}\n"), lanes)
    assert (found.trials, found.retries, found.bounded) == (most, retries, True)
    settings = space_at(SPACE.format(budget=budget)).base.config.to_run_settings(0)
    assert found.need == disk_need(settings, most + retries, 2, own_store=True)
    assert found.an_attempt == pytest.approx((found.need.study - 2_300_000) / (most + retries))


def test_trials_that_may_end_before_their_seconds_have_no_bound_in_time(space_at) -> None:
    text = SPACE.format(budget="{minutes: 1}")
    steps = disk_of(space_at(text + "fixed: {stop.seconds: null, stop.steps: 5}\n"), 2)
    # At least what the lanes begin with.
    assert (steps.trials, steps.bounded) == (2, False)
    both = disk_of(space_at(text + "fixed: {stop.seconds: 15, stop.steps: 5}\n"), 2)
    assert (both.trials, both.bounded) == (8, False)
    limited = disk_of(space_at(SPACE.format(budget="{trials: 3}") + "fixed: {stop.seconds: null, stop.steps: 5}\n"), 2)
    assert (limited.trials, limited.bounded) == (4, True)


def test_a_study_that_goes_on_needs_room_for_what_is_left(space_at) -> None:
    space = space_at(SPACE.format(budget="{minutes: 2}"))
    record = StudyRecord()
    # 70 of the 120 seconds were driven, and the driver was lost over trial 0.
    values = dataclasses.asdict(space.base.config.to_run_settings(0))
    asked = {"role": "preset", "params": {}, "told": False, "told_reason": "", "seed": 1, "replicate_of": None}
    for seq, (time, event) in enumerate(
        [
            (0.0, {"event": "study_started", "study": "one", "generation": 1}),
            (1.0, {"event": "trial_asked", "trial": 0, "settings": values, "refused": None, **asked}),
            (70.0, {"event": "attempt_submitted", "trial": 0, "attempt": 1, "job_id": "a", "folder": "b"}),
        ]
    ):
        record.apply({"seq": seq, "time": time, **event})
    assert disk_of(space, 2).trials == 2 * 8
    assert disk_of(space, 2, record).trials == 1 + 2 * 4


def test_knobs_of_the_model_count_as_large_as_they_get(space_at) -> None:
    text = SPACE.format(budget="{trials: 5}")
    layers = "  model.num_layers: {low: 2, high: 7}\n"
    widths = "  model.mlp_mult: {choices: [1.0, 3.0, 2.0]}\n"
    knobs = "knobs:\n  optimizer.matrix_lr: {low: 0.02, high: 0.16}\n"
    fixed = text.split("knobs:")[0] + "fixed: {model.num_layers: 7, model.mlp_mult: 3.0}\n" + knobs
    searched = text.split("knobs:")[0] + knobs + layers + widths
    assert disk_of(space_at(searched)).need == disk_of(space_at(fixed)).need
    assert disk_of(space_at(searched)).need.study > disk_of(space_at(text)).need.study


@pytest.mark.parametrize(
    "export",
    [
        {},
        {"bits_mlp": 16, "bits_embedding": 32, "bits_attention": 3, "bits_small": 32},
        {"bits_mlp": 4, "bits_attention": 4, "bits_embedding": 4, "group_size": 1, "keep_float_max_numel": 0},
        {"overrides": "*.mlp.* bits=32; tok_emb.weight group=2"},
    ],
)
def test_a_flat_artifact_that_does_not_compress_has_room(trained_folder, tiny_settings, export) -> None:
    settings = tiny_settings(export={"format": "flat", "codec": "zlib", "codec_level": 0, "scale_floor": 0.0, **export})
    state = torch.load(trained_folder / "checkpoint.pt", weights_only=True)
    said = disk_need(settings, 1, 1, own_store=True).parts["artifacts"] // 2
    assert len(export_state(state, settings.export)) <= said < 1.5 * len(export_state(state, settings.export)) + 40_000


def test_knobs_of_the_export_count_as_large_as_they_get(space_at) -> None:
    flat = "fixed: {export.format: flat, export.scale_floor: 0}\n"
    text = SPACE.format(budget="{trials: 5}").split("knobs:")[0] + flat + "knobs:\n"
    wide = text.replace("scale_floor: 0}", "scale_floor: 0, export.bits_embedding: 16}")
    knob = "  export.bits_embedding: {choices: [4, 16, 8]}\n"
    rate = "  optimizer.matrix_lr: {low: 0.02, high: 0.16}\n"
    assert disk_of(space_at(text + knob)).need == disk_of(space_at(wide + rate)).need
    assert disk_of(space_at(text + knob)).need.study > disk_of(space_at(text + rate)).need.study


def test_a_store_elsewhere_takes_its_database_and_its_copies_with_it(space_at) -> None:
    space = space_at(SPACE.format(budget="{trials: 5}"))
    own, other = disk_of(space).need, disk_of(space, own_store=False).need
    assert own.elsewhere == 0
    assert "MLflow's database" not in other.parts
    assert other.parts["artifacts"] * 2 == own.parts["artifacts"]
    assert other.study + other.elsewhere == own.study


def test_a_full_disk_of_such_a_store_is_refused_too(small_disk, tmp_path) -> None:
    store = small_disk("24m") / "mlflow.db"
    need = DiskNeed({"all": MIB}, 0, elsewhere=30 * MIB)
    # A server has a disk of its own.
    check_disk(need, tmp_path / "studies", tmp_path, None)
    with pytest.raises(DiskTooSmall, match=r"mlflow.db: MLflow's store needs 31.5 MB.* another store with --tracking"):
        check_disk(need, tmp_path / "studies", tmp_path, store)
    store.write_bytes(bytes(MIB))
    with pytest.raises(DiskTooSmall, match=r"this disk has 24.1 MB free"):
        check_disk(need, tmp_path / "studies", tmp_path, store)


def test_a_disk_with_room_is_accepted(tmp_path) -> None:
    check_disk(DiskNeed({"all": MIB}, MIB), tmp_path / "studies" / "new", tmp_path, None)


def test_a_full_disk_is_refused_with_need_room_place_and_remedy(small_disk, tmp_path) -> None:
    study = small_disk("24m") / "studies" / "muon"
    check_disk(DiskNeed({"all": 7 * MIB}, 0), study, tmp_path, study / "mlflow.db")
    with pytest.raises(DiskTooSmall) as caught:
        check_disk(DiskNeed({"all": 30 * MIB}, 0), study, tmp_path, study / "mlflow.db")
    assert caught.value.exit_code == 4
    assert str(caught.value) == (
        f"{study}: the study needs 31.5 MB, 51.4 MB with a reserve, but this disk has 25.2 MB free; make room, "
        "choose another folder with --study-dir, or lower the number of trials"
    )
    assert not study.exists()


def test_a_full_temporary_folder_is_refused_too(small_disk, tmp_path) -> None:
    disk = small_disk("24m")
    with pytest.raises(DiskTooSmall, match=r"temporary files needs? .* choose another one with TMPDIR"):
        check_disk(DiskNeed({"all": MIB}, 100 * MIB), tmp_path / "studies", disk, None)


def test_two_folders_on_one_disk_need_room_for_both(small_disk, tmp_path) -> None:
    disk, half = small_disk("40m"), DiskNeed({"all": 15 * MIB}, 15 * MIB)
    check_disk(half, disk / "study", tmp_path, None)
    check_disk(half, tmp_path, disk / "tmp", None)
    with pytest.raises(DiskTooSmall, match="the study and temporary files need"):
        check_disk(half, disk / "study", disk / "tmp", None)


def test_the_reserve_is_a_tenth_and_some() -> None:
    assert with_reserve(0) == 16 * MIB
    assert with_reserve(1000 * MIB) == 1116 * MIB


def test_free_bytes_are_those_of_the_nearest_folder(small_disk, tmp_path) -> None:
    assert nearest_folder(tmp_path / "a" / "b") == tmp_path
    disk = small_disk("8m")
    (disk / "full").write_bytes(bytes(3 * MIB))
    assert free_bytes(disk / "a" / "b") == shutil.disk_usage(disk).free == 5 * MIB


def test_log_points_count() -> None:
    few, many = (
        disk_need(
            dataclasses.replace(RunSettings(), runtime=dataclasses.replace(RunSettings().runtime, log_points=points)),
            1,
            1,
            own_store=True,
        )
        for points in (10, 1000)
    )
    assert many.parts["curves and logs"] > few.parts["curves and logs"]
    assert many.parts["checkpoints"] == few.parts["checkpoints"]
