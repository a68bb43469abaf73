"""The MLflow store of a study: real MLflow on SQLite, one store for the mixed study of this module."""

import itertools
import logging
import math
import shutil
import subprocess
import sys

import pytest

from golfray.sweep.outcome import Kind
from golfray.tracking.mlflow_observer import MlflowObserver, TrackingError, load_mlflow, replay, store_uri
from golfray.tracking.projection import CURVE_POINTS, RUN_STATUS, Curve


def client(folder):
    tracking, _entities = load_mlflow()
    return tracking.MlflowClient(tracking_uri=store_uri(folder))


def runs_by_name(folder):
    store = client(folder)
    experiment = store.get_experiment_by_name("muon")
    return {run.info.run_name: run for run in store.search_runs([experiment.experiment_id])}


def everything(folder):
    """All that a store says of a study, without the random run ids."""
    store = client(folder)
    told = {}
    runs = runs_by_name(folder)
    names = {run.info.run_id: name for name, run in runs.items()}
    for name, run in runs.items():
        curves = {
            metric: [
                (point.step, point.timestamp, str(point.value))
                for point in store.get_metric_history(run.info.run_id, metric)
            ]
            for metric in run.data.metrics
        }
        tags = {tag: names.get(value, value) for tag, value in run.data.tags.items()}
        files = sorted(item.path for item in store.list_artifacts(run.info.run_id))
        info = run.info.status, run.info.start_time, run.info.end_time
        told[name] = (info, tags, run.data.params, {key: sorted(points) for key, points in curves.items()}, files)
    return told


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, mixed_study):
    # A space and a percent sign: the store's address is a URI.
    folder = tmp_path_factory.mktemp("studies") / "muon 100%"
    mixed_study(folder, MlflowObserver(folder))
    return folder


def test_one_parent_and_a_child_for_every_attempt_infeasible_ones_too(mixed):
    runs = runs_by_name(mixed)
    assert sorted(runs) == [
        "study muon",
        "t000 preset",
        "t001 preset_8bit",
        "t002 replicate",
        "t003 replicate",
        "t004 sampler",
        "t005 sampler",
        "t006 sampler",
        "t007 sampler",
        "t007 sampler, attempt 2",
        "t008 sampler",
        "t009 sampler",
    ]
    parent = runs["study muon"].info.run_id
    assert {run.data.tags.get("mlflow.parentRunId") for run in runs.values()} == {None, parent}


def test_outcomes_are_tags_and_statuses(mixed):
    told = {
        name: (run.data.tags["golfray.outcome"], run.data.tags["golfray.feasible"], run.info.status)
        for name, run in runs_by_name(mixed).items()
        if name != "study muon"
    }
    assert told["t000 preset"] == ("scored", "true", "FINISHED")
    assert told["t001 preset_8bit"] == ("infeasible", "false", "FINISHED")
    assert told["t006 sampler"] == ("diverged", "unknown", "FAILED")
    assert told["t007 sampler"] == told["t007 sampler, attempt 2"] == ("crashed", "unknown", "FAILED")
    assert told["t009 sampler"] == ("cancelled", "unknown", "KILLED")
    assert runs_by_name(mixed)["t001 preset_8bit"].data.tags["golfray.reason"] == "60,000 bytes over the cap of 500,000"
    assert set(RUN_STATUS) == set(Kind)


def test_only_the_best_feasible_trial_is_tagged_best(mixed):
    runs = runs_by_name(mixed)
    assert [name for name, run in runs.items() if "golfray.best" in run.data.tags] == ["t004 sampler"]
    parent = runs["study muon"].data.tags
    assert parent["golfray.best_trial"] == "4"
    assert parent["golfray.best_run_id"] == runs["t004 sampler"].info.run_id
    assert runs["t005 sampler"].data.metrics["bpb/roundtrip"] < runs["t004 sampler"].data.metrics["bpb/roundtrip"]


def test_settings_are_parameters_and_knobs_stand_out(mixed):
    params = runs_by_name(mixed)["t004 sampler"].data.params
    assert params["optimizer.matrix_lr"] == params["knob/optimizer.matrix_lr"] == "0.0712"
    assert params["model.num_layers"] == "9"
    assert sorted(name for name in params if name.startswith("knob/")) == [
        "knob/export.bits_mlp",
        "knob/muon.momentum_end",
        "knob/optimizer.matrix_lr",
    ]
    parent = runs_by_name(mixed)["study muon"].data.params
    assert parent["budget.trials"] == "8"
    assert parent["space.optimizer.matrix_lr"].startswith("0.01 .. 0.16")


def test_metrics_have_the_names_of_the_house_and_curves_their_points(mixed):
    run = runs_by_name(mixed)["t000 preset"]
    assert run.data.metrics["bpb/roundtrip"] == 2.0712
    assert run.data.metrics["bytes/margin"] == 20_000
    assert run.data.metrics["phase/train_s"] == 15.01
    history = client(mixed).get_metric_history(run.info.run_id, "train/loss")
    # 40 points of the curve and the final value, at train/steps = 250.
    assert sorted(point.step for point in history) == sorted([*range(10, 410, 10), 250])
    assert "elapsed_s" not in run.data.metrics


def test_a_loss_that_is_not_a_number_is_kept_as_such(mixed):
    run = runs_by_name(mixed)["t006 sampler"]
    assert math.isnan(run.data.metrics["train/loss"])


def test_artifact_settings_and_result_are_attached(mixed):
    store = client(mixed)
    files = [item.path for item in store.list_artifacts(runs_by_name(mixed)["t004 sampler"].info.run_id)]
    assert files == ["final_model.int8.ptz", "result.json", "settings.json"]


def test_replay_over_the_live_store_changes_nothing(mixed):
    before = everything(mixed)
    replay(mixed)
    assert everything(mixed) == before


def test_replay_without_a_store_makes_what_the_live_one_had(mixed, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(mixed, copy)
    (copy / "mlflow.db").unlink()
    shutil.rmtree(copy / "mlartifacts")
    replay(copy)
    assert everything(copy) == everything(mixed)


def test_a_study_cut_off_in_the_middle_leaves_no_run_alive_and_can_be_completed(tmp_path, StudyLog, ran_to_end):
    log = StudyLog(tmp_path, MlflowObserver(tmp_path))
    log.start()
    trial = log.ask("preset")
    log.submit(trial)
    log.progress(trial, 10, 5.0)
    log.close()
    assert {run.info.status for run in runs_by_name(tmp_path).values()} == {"KILLED"}
    assert runs_by_name(tmp_path)["t000 preset"].data.metrics["train/loss"] == 5.0

    later = StudyLog(tmp_path)
    later.finish(trial, ran_to_end(2.0, 480_000))
    later.end()
    replay(tmp_path)
    runs = runs_by_name(tmp_path)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert runs["t000 preset"].data.tags["golfray.best"] == "true"
    assert len(runs) == 2


def test_no_metric_of_a_run_has_more_points_than_the_bound(tmp_path, StudyLog, ran_to_end):
    log = StudyLog(tmp_path, MlflowObserver(tmp_path))
    log.start()
    trial = log.ask("preset")
    log.submit(trial)
    for step in range(1, 1001):
        log.progress(trial, step, 5.0 - step / 1000)
    log.finish(trial, ran_to_end(2.0, 480_000))
    log.end()
    run = runs_by_name(tmp_path)["t000 preset"]
    steps = [point.step for point in client(tmp_path).get_metric_history(run.info.run_id, "train/lr_multiplier")]
    assert len(steps) <= CURVE_POINTS
    assert max(steps) == 1000
    assert len(client(tmp_path).get_metric_history(run.info.run_id, "train/loss")) <= CURVE_POINTS


@pytest.mark.parametrize("expected", [1, 200, 298, 299, 1000, 20_000])
def test_a_curve_is_spread_over_the_whole_run(expected):
    curve = Curve(expected)
    kept = [index for index in range(expected) if curve.keep({"index": index})]
    assert len(kept) <= CURVE_POINTS - 2
    assert kept[0] == 0
    assert len(kept) >= min(expected, (CURVE_POINTS - 2) // 2)
    gaps = {after - before for before, after in itertools.pairwise(kept)}
    assert len(gaps) <= 1
    last = curve.last()
    assert kept[-1] == expected - 1 if last is None else last["index"] == expected - 1


def test_a_broken_store_says_what_to_do(tmp_path, StudyLog):
    (tmp_path / "mlflow.db").write_text("this is no database")
    log = StudyLog(tmp_path, MlflowObserver(tmp_path))
    with pytest.raises(TrackingError, match=r"delete .*mlflow\.db and run `golfray ui"):
        log.start()


def test_mlflow_is_quiet(tmp_path, mixed_study, capfd):
    logging.getLogger("mlflow").setLevel(logging.INFO)
    mixed_study(tmp_path, MlflowObserver(tmp_path))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_a_store_deleted_under_a_study_is_one_message_and_no_traceback(tmp_path):
    # In a process of its own: what MLflow logs goes to the stderr that it found when it was imported.
    program = """
import pathlib, sys
from golfray.tracking.mlflow_observer import load_mlflow, store_uri
tracking, entities = load_mlflow()
store = pathlib.Path(sys.argv[1])
client = tracking.MlflowClient(tracking_uri=store_uri(store))
run = client.create_run(client.create_experiment("study")).info.run_id
(store / "mlflow.db").unlink()
try:
    client.log_batch(run, metrics=[entities.Metric("train/loss", 1.0, 0, step) for step in range(3)])
except Exception as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("MlflowException\n", "")
