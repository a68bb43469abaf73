"""Foreign observations in a study: what the sampler is told of them, and that they are nothing else."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.choosing import best_feasible, choose
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.observation import Observation, Observations, published_observations, write_observations
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import StudySampler
from golfray.sweep.space import load_space
from golfray.sweep.space_diff import changes_since
from golfray.sweep.space_record import space_of
from golfray.sweep.statistics import claim
from golfray.sweep.study import Study
from golfray.sweep.trial_record import SAMPLER
from golfray.sweep.warm_start import ForeignPoint, warm_start
from tests.sweep.conftest import BYTES_CODE, DATA, UNIFORM_BPB
from tests.sweep.small_studies import what_came_of

ROOT = Path(__file__).parents[2]

TEXT = """\
name: one
preset: parameter-golf
scale: full
budget: {trials: 9}
seed: 5
replicates: 1
fixed: {model.num_layers: 2, model.model_dim: 64, model.num_heads: 2, model.num_kv_heads: 1, workers: 1, SIZES}
knobs:
  optimizer.matrix_lr: {low: 0.008, high: 0.08, log: true}
  muon.momentum_end: {low: 0.9, high: 0.995, log: true, complement: true}
"""
# Sizes by a closed form, so that no weights are drawn to foresee them.
SIZES = "export.format: flat, export.scale_floor: 0, " + ", ".join(
    f"export.clip_{part}: std" for part in ("attention", "mlp", "embedding")
)
TEXT = TEXT.replace("SIZES", SIZES)


@pytest.fixture(scope="module")
def published() -> Observations:
    return published_observations()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, published) -> Path:
    """Space files beside a file of the shipped observations."""
    folder = tmp_path_factory.mktemp("spaces")
    write_observations(folder / "public.json", published)
    shutil.copy(ROOT / "search_spaces" / "muon.yaml", folder)
    (folder / "warm.yaml").write_text("extends: muon.yaml\nname: warm\nwarm_start: public.json\n")
    (folder / "cold-one.yaml").write_text(TEXT)
    (folder / "one.yaml").write_text(TEXT + "warm_start: public.json\n")
    return folder


@pytest.fixture(scope="module")
def one(folder):
    return load_space(folder / "one.yaml", has_gpu=False)


@pytest.fixture(scope="module")
def knobs(folder):
    return load_space(folder / "cold-one.yaml", has_gpu=False).knobs


def observed(bpb: float, runs: int = 1, beyond: tuple[str, ...] = (), **settings: float) -> Observation:
    knobs = {"optimizer.matrix_lr": settings.get("rate", 0.02), "muon.momentum_end": settings.get("momentum", 0.97)}
    return Observation(f"{bpb}", "somebody", bpb, runs, None, knobs, beyond)


def points_of(space, *records: Observation) -> tuple[ForeignPoint, ...]:
    base = space.base.config
    return warm_start(Observations("here", 1.2, 4, records), space.knobs, base, base).points


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """A space whose trial 0 is the stock model itself."""
    path = tmp_path_factory.mktemp("stock") / "stock.yaml"
    path.write_text("".join(line for line in TEXT.splitlines(True) if not line.startswith("fixed")))
    return load_space(path, has_gpu=False)


def test_a_record_that_differs_in_knobs_alone_has_the_noise_of_its_seeds(stock) -> None:
    (point,) = points_of(stock, observed(1.195, runs=4))
    # .00077^2 (1/4 + 1/4)
    assert point.noise == pytest.approx(0.00077 * math.sqrt(0.5))
    assert point.difference == pytest.approx(-0.005)
    weight = 0.0056**2 / (0.0056**2 + 0.00077**2 / 2)
    assert point.told(2.0) == pytest.approx(2.0 - 0.005 * weight)


def test_what_else_differs_may_be_all_of_the_difference(stock) -> None:
    (point,) = points_of(stock, observed(1.1, beyond=("sliding windows",)))
    assert point.noise == pytest.approx(math.sqrt(0.1**2 + 0.00077**2 * 1.25))
    assert point.told(2.0) == pytest.approx(2.0 - 0.1 * 0.0056**2 / (0.0056**2 + point.noise**2))


@pytest.mark.parametrize("bpb", [0.6, 1.0, 1.15, 1.19, 1.1944, 1.199])
def test_no_such_record_is_told_to_be_better_by_more_than_half_the_size_of_effects(stock, bpb: float) -> None:
    (point,) = points_of(stock, observed(bpb, beyond=("its own script",)))
    assert 0 < 2.0 - point.told(2.0) <= 0.0028


def test_settings_outside_the_knobs_count_as_differences(stock, one) -> None:
    plain = observed(1.195)
    settings = {**plain.settings, "model.num_layers": 11, "schedule.warmdown_steps": 1200}
    (deeper,) = points_of(stock, dataclasses.replace(plain, settings=settings))
    assert deeper.noise > 0.004
    (same,) = points_of(stock, dataclasses.replace(plain, settings={**settings, "model.num_layers": 9}))
    assert same.noise < 0.001
    # There trial 0 itself is another model than the one that the difference is from.
    (moved,) = points_of(one, dataclasses.replace(plain, settings={**settings, "model.num_layers": 2}))
    assert moved.noise > 0.004


def test_records_at_one_point_are_one_and_the_nearest_kin_counts(stock) -> None:
    far, near, again = observed(1.1, beyond=("another evaluation",)), observed(1.196, runs=1), observed(1.193, runs=2)
    (point,) = points_of(stock, far, near, again)
    assert point.records == ("1.196", "1.193")
    assert (point.runs, point.difference) == (3, pytest.approx(1.194 - 1.2))
    (both,) = points_of(stock, far, dataclasses.replace(far, id="other", bpb=1.0))
    assert both.noise == pytest.approx(math.sqrt(0.15**2 + 0.00077**2 * 0.75)), "a common cause does not average out"


def test_what_ran_at_the_knobs_of_trial_0_tells_nothing_of_them(stock) -> None:
    assert points_of(stock, observed(1.1, rate=0.04, momentum=0.95)) == ()


def test_the_space_of_the_repository_has_most_of_the_public_points(folder, published) -> None:
    space = load_space(folder / "warm.yaml", has_gpu=True)
    named = {name for point in space.warm_start for name in point.records}
    unused = {"R01", "R02", "R08", "R03", "R09", "R11", "R13", "R14", "R15", "R16", "R06", "R22", "R10", "R13x", "R25"}
    assert named == {record.id for record in published.records} - unused
    notes = [note for note in space.notes if note.startswith("warm_start")]
    assert notes[0].startswith("warm_start: 31 of 46 foreign observations")
    assert "warm_start: not used: R01, R02, R08: all knobs as in trial 0, which is run here" in notes
    assert "warm_start: not used: R03, R09, R11, R13, R14, R15, R16: export.bits_embedding outside 6..8" in notes, notes
    # The baseline's scale floor is off wherever bits vary, so even these are no exact kin.
    (halved,) = [point for point in space.warm_start if point.records == ("R05",)]
    assert halved.difference == pytest.approx(1.2230 - 1.22765)
    assert halved.noise == pytest.approx(math.hypot(0.00465, 0.00077 * math.sqrt(1.25)))


def test_nothing_is_told_at_laptop_scale(folder) -> None:
    space = load_space(folder / "warm.yaml", has_gpu=False)
    assert space.base.config.scale == "laptop"
    assert space.warm_start == ()
    assert any("none of 46 foreign observations is used for parameter-golf at scale laptop" in n for n in space.notes)


@pytest.mark.parametrize("name", ["nowhere.json", "muon.yaml", ".", '"a\\0b"'])
def test_a_file_that_is_none_is_refused_with_its_place(folder, name: str) -> None:
    (folder / "wrong.yaml").write_text(TEXT + f"warm_start: {name}\n")
    with pytest.raises(ConfigError) as raised:
        load_space(folder / "wrong.yaml", has_gpu=False)
    assert str(raised.value).startswith(f"{folder / 'wrong.yaml'}:11:1 warm_start: ")


def test_a_file_that_a_parent_names_lies_beside_the_parent(folder) -> None:
    (folder / "below").mkdir()
    child = folder / "below" / "child.yaml"
    child.write_text("extends: ../one.yaml\nname: child\n")
    assert len(load_space(child, has_gpu=False).warm_start) == 9
    child.write_text("extends: ../one.yaml\nname: child\nwarm_start: null\n")
    assert load_space(child, has_gpu=False).warm_start == ()


def study_in(folder: Path, space, executor) -> Study:
    folder.mkdir(exist_ok=True)
    return Study(space, executor, folder, bytes_code=BYTES_CODE, uniform_bpb=UNIFORM_BPB, data=DATA)


def asked(record: StudyRecord) -> list[dict]:
    return [trial.params for trial in record.trials if trial.role == SAMPLER]


def test_the_sampler_hears_of_them_once_trial_0_has_a_score(one) -> None:
    sampler = StudySampler(one.knobs, kind="tpe", seed=5, cap_bytes=1, uniform_bpb=4.0, foreign=one.warm_start)
    assert sampler.trials == []
    sampler.anchor(2.0)
    told = {trial.value for trial in sampler.trials}
    assert len(sampler.trials) == len(one.warm_start) == 9
    assert told == {point.told(2.0) for point in one.warm_start}
    assert all(not trial.constraints for trial in sampler.trials)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_study_asks_otherwise_with_them_and_is_best_by_its_own_trials(
    folder, one, synthetic, tmp_path, slots
) -> None:
    cold = study_in(
        tmp_path / "cold", load_space(folder / "cold-one.yaml", has_gpu=False), synthetic(slots=slots)
    ).run()
    warm = study_in(tmp_path / "warm", one, synthetic(slots=slots)).run()
    assert len(warm.trials) == len(cold.trials) == 9
    assert asked(warm) != asked(cold)
    assert best_feasible(warm) in warm.trials
    assert choose(warm).lowest.bpb == min(trial.bpb for trial in warm.trials)
    assert claim(warm).candidates == 9
    (started,) = [event for event in read_events(tmp_path / "warm" / LOG_NAME) if event["event"] == "study_started"]
    assert len(started["space"]["warm_start"]) == len(one.warm_start)
    assert started["space"]["warm_start"][0].keys() == {"records", "values", "difference", "noise", "runs"}


@pytest.mark.parametrize("slots", [1, 3])
def test_a_resumed_study_asks_what_it_would_have_without_the_file(one, synthetic, tmp_path, slots: int) -> None:
    """Its driver is lost before trial 0 has a score, right after, and later: it goes on from the log alone."""
    whole = study_in(tmp_path / "whole", one, synthetic(slots=slots)).run()
    lines = (tmp_path / "whole" / LOG_NAME).read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["event"] for line in lines]
    cuts = [index + 1 for index, kind in enumerate(kinds) if kind == "attempt_ended"]
    for cut in (3, cuts[0], cuts[5]):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        (folder / LOG_NAME).write_bytes(b"".join(lines[:cut]))
        space = space_of(StudyRecord.load(folder), "log")
        assert space.warm_start == one.warm_start
        assert changes_since(StudyRecord.load(folder), one, bytes_code=BYTES_CODE, data=DATA) == []
        resumed = study_in(folder, space, synthetic(slots=slots)).resume()
        if slots == 1:
            assert what_came_of(resumed) == what_came_of(whole)
        known = asked(StudyRecord.from_events(json.loads(line) for line in lines[:cut]))
        assert asked(resumed)[: len(known)] == known


def test_points_that_a_changed_space_has_not_are_left_out(one) -> None:
    (rate, _) = one.knobs
    narrow = dataclasses.replace(rate, domain=dataclasses.replace(rate.domain, low=0.03))
    sampler = StudySampler(
        [narrow, one.knobs[1]], kind="tpe", seed=5, cap_bytes=1, uniform_bpb=4.0, foreign=one.warm_start
    )
    sampler.anchor(2.0)
    assert 0 < len(sampler.trials) < len(one.warm_start)
    assert all(trial.params["optimizer.matrix_lr"] >= 0.03 for trial in sampler.trials)


@pytest.mark.parametrize("heard", [3, 1000])
def test_a_sampler_that_is_rebuilt_later_knows_the_same(one, synthetic, tmp_path, monkeypatch, heard: int) -> None:
    """Foreign points are heard for so many own trials; of those the sampler knows six, cut by threes."""
    monkeypatch.setattr("golfray.sweep.sampler.FOREIGN_TRIALS", heard)
    monkeypatch.setattr("golfray.sweep.sampler.HISTORY", 6)
    monkeypatch.setattr("golfray.sweep.sampler.HISTORY_BLOCK", 3)
    (tmp_path / "long.yaml").write_text(TEXT.replace("trials: 9", "trials: 15") + "warm_start: theirs.json\n")
    write_observations(tmp_path / "theirs.json", published_observations())
    space = load_space(tmp_path / "long.yaml", has_gpu=False)
    record = study_in(tmp_path / "long", space, synthetic()).run()
    told = [point.told(record.trials[0].bpb) for point in one.warm_start]
    for number in (2, 4, 10, 13):
        rebuilt = StudySampler(
            one.knobs, kind="tpe", seed=5, cap_bytes=record.cap_bytes, uniform_bpb=UNIFORM_BPB, foreign=one.warm_start
        )
        rebuilt.anchor(record.trials[0].bpb)
        before = StudyRecord()
        before.header, before.trials = record.header, record.trials[:number]
        rebuilt.restore(before)
        assert rebuilt.suggest(number) == record.trials[number].params
        values = [trial.value for trial in rebuilt.trials]
        assert (values[: len(told)] == told) == (number < heard)
        assert len(values) <= (len(told) if number < heard else 0) + 6 + 3
