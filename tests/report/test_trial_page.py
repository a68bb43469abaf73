"""Everything of one trial, of each kind of end."""

import dataclasses

import pytest

from golfray.config.resolve import resolve
from golfray.report.lookup import load_trial
from golfray.report.trial_page import changed_settings, trial_document, trial_lines
from tests.report.scripted import Script, eventful_study, plain_study, write_study


def written(folder, script):
    """A study with the preset's real settings in it, changed where the script changes them."""
    write_study(folder, script)
    attempt = folder / "trials" / "0006" / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / "final_model.int8.ptz").write_bytes(b"x" * 262_489)
    (attempt / "rank-0.log").write_text("golfray: cpu\n")
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return written(tmp_path_factory.mktemp("studies") / "muon", plain_study())


@pytest.fixture(scope="module")
def eventful(tmp_path_factory):
    return written(tmp_path_factory.mktemp("studies") / "muon", eventful_study())


def test_the_best_trial(plain):
    assert trial_lines(load_trial(str(plain / "6"))) == [
        "t006 of study muon: sampler, seed 1337",
        "  rank 1 of 6, the best feasible",
        "knobs that differ from parameter-golf at scale laptop:",
        "  optimizer.matrix_lr  0.0512 (preset: 0.04)",
        "  muon.weight_decay    0.21 (preset: 0)",
        "other settings that differ from parameter-golf at scale laptop:",
        '  data.folder     corpora/kjv (preset: "")',
        '  data.tokenizer  corpora/kjv/kjv.model (preset: "")',
        "attempt 1 on lane-0: 1.7778 BPB, 307,289 bytes, margin +31,711 after 15.0 s",
        "  fits under the cap",
        "  phases: start 0.5 s, data 0.2 s, compile 3.1 s, train 15.0 s, validate 0.9 s, export 0.4 s, score 0.9 s, "
        "rest 0.0 s",
        "  train/loss, 5.0000 at step 60 to 3.0000 at step 180:",
        "  █▅▁",
        "  train/loss         2.88",
        "  train/steps        241",
        "  train/data_passes  0.4",
        "  bpb/prequant       1.7738",
        "  bpb/roundtrip      1.7778",
        "  bytes/code         44,800",
        "  bytes/model        262,489",
        "  bytes/total        307,289",
        "  bytes/margin       31,711",
        "  fidelity: device cpu, dtype float32, compiled True, workers 2, threads 1, stop wallclock",
        f"  files in {plain}/trials/0006/attempt-1:",
        "    final_model.int8.ptz  262.5 kB",
        "    rank-0.log  13 bytes",
    ]


def test_a_replicate_names_what_it_repeats(plain):
    lines = trial_lines(load_trial(str(plain / "2")))
    assert lines[:3] == [
        "t002 of study muon: replicate, seed 1339",
        "  repeats t000 on another seed",
        "  the sampler does not hear of it: a replicate measures noise",
    ]
    assert not [line for line in lines if "rank" in line]


def test_every_attempt_of_a_trial_that_ran_again(eventful):
    lines = trial_lines(load_trial(str(eventful / "1")))
    attempts = [line for line in lines if line.startswith("attempt ")]
    assert attempts == [
        "attempt 1 on lane-0: crashed: rank 1: killed by signal 9 after 6.0 s",
        "attempt 2 on lane-0: 1.8301 BPB, 318,200 bytes, margin +20,800 after 5.0 s",
    ]
    assert "  error: signal 9" in lines


def test_a_refused_configuration(eventful):
    assert trial_lines(load_trial(str(eventful / "2"))) == [
        "t002 of study muon: sampler, seed 1337",
        "its configuration was refused, so it never ran",
        "attempt 1: crashed: configuration refused: batch.tokens=100 must be a multiple of batch.slices=8",
    ]


def test_a_point_that_cannot_fit(tmp_path):
    script = Script()
    script.start()
    script.refuse_for_size(39_004, optimizer__matrix_lr=0.06)
    script.finish()
    lines = trial_lines(load_trial(str(written(tmp_path / "muon", script) / "0")))
    assert lines[0] == "t000 of study muon: sampler, seed 1337"
    assert [part for part in lines if "0.06" in part] == ["  optimizer.matrix_lr  0.06 (preset: 0.04)"]
    place = lines.index("it cannot fit, so it never ran")
    assert lines[place + 1] == "attempt 1: infeasible, refused before training: about so much"
    assert {"  bytes/foreseen_total   378,004", "  bytes/foreseen_margin  -39,004"} <= set(lines[place + 2 :])


def test_a_trial_that_runs(tmp_path):
    script = plain_study()
    last = next(number for number, event in enumerate(script) if event["event"] == "progress" and event["trial"] == 5)
    folder = written(tmp_path / "muon", script.events[: last + 1])
    lines = trial_lines(load_trial(str(folder / "5")))
    assert lines[-3:] == [
        "attempt 1 on lane-0: train",
        "  train/loss, 5.0000 at step 60 to 5.0000 at step 60:",
        "  ▁",
    ]
    document = trial_document(load_trial(str(folder / "5")))
    assert (document["outcome"], document["running"]["phase"]) == (None, "train")
    assert [attempt["curve"] for attempt in document["attempts"]] == [
        [{"step": 60, "elapsed_s": 3.75, "train/loss": 5.0, "train/lr_multiplier": 1.0}]
    ]


def test_only_what_differs_is_a_change():
    config = resolve("parameter-golf", "full", has_gpu=False).config
    settings = dataclasses.asdict(config.to_run_settings(1234))
    assert changed_settings(settings, "parameter-golf", "full") == {}
    settings["clock_trace"], settings["stop"]["seconds"] = "clock.json", None
    assert changed_settings(settings, "parameter-golf", "full") == {
        "stop.seconds": (600.0, None),
        "clock_trace": ("", "clock.json"),
    }


def test_a_rank_is_one_of_the_configurations(tmp_path):
    script = plain_study()
    asked = {event["trial"]: event for event in script if event["event"] == "trial_asked"}
    asked[7]["params"] = asked[6]["params"]
    write_study(tmp_path / "muon", script)
    assert trial_lines(load_trial(str(tmp_path / "muon" / "6")))[1] == "  rank 1 of 5, the best feasible"
