"""A wallclock run told again from its clock's readings, and phases as they are announced."""

import json
import pathlib

import pytest
import torch

from golfray.core.clock import Clock, load_trace
from golfray.core.gang import Gang
from golfray.core.trial import run_trial
from tests.threads import one_thread

ARTIFACT = "final_model.int8.ptz"

SECONDS = {"steps": None, "seconds": 0.5}


@pytest.fixture(scope="module")
def wallclock(tiny_settings, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of a run that ended by time, with a warmdown and a momentum that follow the time."""
    folder = tmp_path_factory.mktemp("wallclock")
    settings = tiny_settings(stop=SECONDS, muon={"momentum_warmup_share": 0.5}, schedule={"warmdown_share": 0.5})
    with one_thread():
        result = run_trial(settings, Gang(0, 1, torch.device("cpu")), folder)
    assert (result["kind"], result["fidelity"]["stop"]) == ("scored", "wallclock")
    return folder


def replayed(tiny_settings, trace: pathlib.Path, **changes):
    sections = {"muon": {"momentum_warmup_share": 0.5}, "schedule": {"warmdown_share": 0.5}, "stop": SECONDS}
    return tiny_settings(clock_trace=str(trace), **{**sections, **changes})


def test_a_replayed_run_gives_the_same_bytes(wallclock, tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    result = run_trial(replayed(tiny_settings, wallclock / "clock.json"), alone, tmp_path)
    assert result["fidelity"]["stop"] == "replayed"
    assert (tmp_path / ARTIFACT).read_bytes() == (wallclock / ARTIFACT).read_bytes()
    curves = [
        [{**json.loads(line)} for line in (folder / "curve.jsonl").read_text().splitlines()]
        for folder in (wallclock, tmp_path)
    ]
    assert curves[0] == curves[1]


def test_another_pace_gives_other_bytes(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    # Paces of no real run: one on a machine that is busy enough would end after its first step.
    for name, step_s in (("run", 0.02), ("slower", 0.026)):
        trace = tmp_path / f"{name}.json"
        trace.write_text(json.dumps({"readings_s": [step_s * step for step in range(30)]}))
        run_trial(replayed(tiny_settings, trace), alone, tmp_path / name)
    assert (tmp_path / "run" / ARTIFACT).read_bytes() != (tmp_path / "slower" / ARTIFACT).read_bytes()


def test_a_trace_of_a_shorter_run_is_refused(wallclock, tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    longer = replayed(tiny_settings, wallclock / "clock.json", stop={"steps": None, "seconds": 60.0})
    with pytest.raises(ValueError, match=r"clock_trace has \d+ readings, too few for these settings"):
        run_trial(longer, alone, tmp_path)


@pytest.mark.parametrize("text", ["{}", '{"readings_s": []}'])
def test_a_file_without_readings_is_refused(text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clock.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"clock\.json: no readings_s in it"):
        load_trace(str(path))


def test_no_trace_is_a_running_clock(alone) -> None:
    clock = Clock(alone, load_trace(""))
    clock.start()
    first, second = clock.read(False)[0], clock.read(False)[0]
    assert 0 <= first <= second


def test_phases_are_announced_as_they_begin(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    heard: list[str] = []
    points: list[int] = []

    def enter(phase: str) -> None:
        heard.append(phase)
        points.append(len(reported))

    reported: list[dict] = []
    result = run_trial(tiny_settings(), alone, tmp_path, lambda point: reported.append(point), enter)
    assert heard == list(result["phases"]) == ["data", "compile", "train", "validate", "export", "score"]
    # Every point of the curve belongs to "train": none before it begins, all before "validate" does.
    assert points == [0, 0, 0, len(reported), len(reported), len(reported)]


def test_a_diverged_run_announces_no_later_phase(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    heard: list[str] = []
    rates = dict.fromkeys(("matrix_lr", "scalar_lr", "tied_embed_lr"), float("nan"))
    result = run_trial(tiny_settings(optimizer=rates), alone, tmp_path, None, heard.append)
    assert result["kind"] == "diverged"
    assert heard == list(result["phases"]) == ["data", "compile", "train"]
