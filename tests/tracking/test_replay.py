"""A study's log written into a real MLflow store: what it says there, and that writing it again changes nothing."""

import itertools
import json
import math
import shutil
import sqlite3

import pytest

from golfray.sweep.events import EventLogError
from golfray.sweep.outcome import Kind
from golfray.tracking.client import load_mlflow
from golfray.tracking.projection import CURVE_POINTS, RUN_STATUS, Curve
from golfray.tracking.replay import replay
from golfray.tracking.store import Store, TrackingError
from tests.tracking.stores import answering, store_content


def client(folder):
    return load_mlflow().client(tracking_uri=Store.of(folder).uri)


def runs_by_name(folder):
    store = client(folder)
    experiment = store.get_experiment_by_name("muon")
    return {run.info.run_name: run for run in store.search_runs([experiment.experiment_id])}


def content(folder):
    return store_content(Store.of(folder).uri)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, mixed_study):
    # A space and a percent sign: the store's address is a URI.
    folder = tmp_path_factory.mktemp("studies") / "muon 100%"
    mixed_study(folder)
    counts = replay(folder)
    assert (counts.created, counts.updated, counts.unchanged, counts.runs) == (12, 0, 0, 12)
    # There was no store, and nothing is left of the making of one.
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "mlartifacts", "mlflow.db", "trials"]
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


def test_a_second_time_changes_nothing(mixed):
    before, bytes_before = content(mixed), (mixed / "mlflow.db").read_bytes()
    counts = replay(mixed)
    assert (counts.created, counts.updated, counts.unchanged) == (0, 0, 12)
    assert (counts.points, counts.files, counts.duplicates, counts.missing) == (0, 0, 0, 0)
    assert content(mixed) == before
    assert (mixed / "mlflow.db").read_bytes() == bytes_before


def test_artifacts_that_were_removed_after_they_were_attached_stay_attached(mixed, tmp_path):
    shutil.copytree(mixed, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("trials/*/*/final_model.int8.ptz"):
        path.unlink()
    before = content(tmp_path)
    counts = replay(tmp_path)
    assert (counts.updated, counts.files, counts.missing) == (0, 0, 0)
    assert content(tmp_path) == before


def test_missing_artifacts_are_counted(study_folder, StudyLog):
    log = StudyLog(study_folder)
    log.start()
    trial = log.run(2.0, 480_000)
    log.end()
    (study_folder / f"trials/{trial:03d}/attempt_1/final_model.int8.ptz").unlink()
    counts = replay(study_folder)
    assert (counts.files, counts.missing) == (2, 1)


def cut_points(folder, resumed_study):
    """A whole log, and for each way of cutting it off its first lines: after every record that changes something."""
    resumed_study(folder)
    lines = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    kinds = [json.loads(line)["event"] for line in lines]
    return lines, [cut for cut in range(1, len(lines)) if kinds[cut - 1] not in ("trial_asked", "attempt_submitted")]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory, empty_database, resumed_study):
    """A study of three drivers, its lines, where they may be cut, and what its store says."""
    folder = tmp_path_factory.mktemp("resumed")
    shutil.copy(empty_database, folder / "mlflow.db")
    lines, cuts = cut_points(folder, resumed_study)
    replay(folder)
    return folder, lines, cuts, content(folder)


def cut_then_whole(resumed, folder, empty_database, cuts):
    """What a store says that was brought up to date at each of ``cuts`` and at the end."""
    source, lines, _cuts, _whole = resumed
    shutil.copytree(source / "trials", folder / "trials")
    shutil.copy(empty_database, folder / "mlflow.db")
    for cut in [*cuts, len(lines)]:
        (folder / "events.jsonl").write_text("".join(lines[:cut]))
        replay(folder)
    return content(folder)


def test_a_store_that_got_the_log_in_parts_equals_one_that_got_it_at_once(resumed, tmp_path, empty_database):
    """At every record, one after another: what an undisturbed live study does at most."""
    _source, _lines, cuts, whole = resumed
    assert cut_then_whole(resumed, tmp_path, empty_database, cuts) == whole


@pytest.mark.slow
def test_from_every_single_cut_the_whole_log_gives_the_same_store(resumed, tmp_path_factory, empty_database):
    _source, _lines, cuts, whole = resumed
    for cut in cuts:
        folder = tmp_path_factory.mktemp("cut")
        assert cut_then_whole(resumed, folder, empty_database, [cut]) == whole, cut
        shutil.rmtree(folder)


def test_a_resumed_study_goes_on_in_the_same_run(resumed):
    _folder, _lines, _cuts, whole = resumed
    assert sorted(whole) == [
        "muon/study muon",
        "muon/t000 preset",
        "muon/t001 preset_8bit",
        "muon/t002 sampler",
        "muon/t002 sampler, attempt 2",
    ]
    (status, start, end), tags, params, _curves, _files = whole["muon/study muon"]
    assert status == "FINISHED"
    assert start < end
    assert tags["golfray.generation"] == "3"
    assert tags["golfray.reason"] == "budget: 9 trials"
    assert tags["golfray.best_run_id"] == "t002 sampler, attempt 2"
    assert params["budget.trials"] == "8"
    note = tags["mlflow.note.content"]
    assert note.count("budget: 8 trials became 9") == 2
    assert [name for name, run in whole.items() if "golfray.best" in run[1]] == ["muon/t002 sampler, attempt 2"]
    lost = whole["muon/t002 sampler"]
    assert (lost[0][0], lost[1]["golfray.outcome"], lost[1]["golfray.reason"]) == ("KILLED", "preempted", "driver lost")
    assert [step for step, _time, _value in lost[3]["train/lr_multiplier"]] == [10, 20, 30, 40, 50]


def test_runs_of_a_study_that_has_not_ended_stay_running(study_folder, StudyLog, ran_to_end):
    log = StudyLog(study_folder)
    log.start()
    trial = log.ask("preset")
    log.submit(trial)
    log.progress(trial, 10, 5.0)
    log.close()
    replay(study_folder)
    assert {run.info.status for run in runs_by_name(study_folder).values()} == {"RUNNING"}
    assert runs_by_name(study_folder)["t000 preset"].data.metrics["train/loss"] == 5.0

    later = StudyLog(study_folder)
    later.finish(trial, ran_to_end(2.0, 480_000))
    later.end()
    counts = replay(study_folder)
    assert (counts.created, counts.updated) == (0, 2)
    runs = runs_by_name(study_folder)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert runs["t000 preset"].data.tags["golfray.best"] == "true"


def test_doubles_of_runs_are_deleted_and_the_fuller_ones_stay(mixed, tmp_path):
    """What a server makes that carries out a request after its sender has given it up."""
    shutil.copytree(mixed, tmp_path, dirs_exist_ok=True)
    before = content(tmp_path)
    store, runs = client(tmp_path), runs_by_name(tmp_path)
    experiment = store.get_experiment_by_name("muon").experiment_id
    for name in ("study muon", "t004 sampler"):
        run = runs[name]
        late = {tag: value for tag, value in run.data.tags.items() if not tag.startswith("golfray.best")}
        store.create_run(experiment, start_time=run.info.start_time, run_name=name, tags=late)
    counts = replay(tmp_path)
    assert (counts.duplicates, counts.created, counts.points) == (2, 0, 0)
    assert content(tmp_path) == before
    assert replay(tmp_path).duplicates == 0


def test_another_study_of_the_same_name_in_the_same_store_is_left_alone(tmp_path, empty_database, StudyLog):
    shared = tmp_path / "shared.db"
    shutil.copy(empty_database, shared)
    for name, score in (("one", 2.0), ("two", 1.9)):
        log = StudyLog(tmp_path / name)
        log.start()
        log.run(score, 480_000)
        log.end()
    uri = f"sqlite:///{shared}"
    first = replay(tmp_path / "one", Store.of(tmp_path / "one", uri))
    second = replay(tmp_path / "two", Store.of(tmp_path / "two", uri))
    again = replay(tmp_path / "one", Store.of(tmp_path / "one", uri))
    assert (first.created, second.created) == (2, 2)
    assert (again.unchanged, again.updated, again.duplicates) == (2, 0, 0)
    store = load_mlflow().client(tracking_uri=uri)
    experiment = store.get_experiment_by_name("muon")
    runs = store.search_runs([experiment.experiment_id])
    assert sorted(run.data.metrics.get("bpb/roundtrip", 0.0) for run in runs) == [0.0, 0.0, 1.9, 2.0]
    # Its files lie beside it, not below the folder in which somebody stood.
    assert experiment.artifact_location == (tmp_path / "mlartifacts" / "muon").as_uri()
    assert not (tmp_path / "one" / "mlflow.db").exists()


def test_plain_files_where_mlflow_allows_them(tmp_path, StudyLog, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log = StudyLog(tmp_path / "study")
    log.start()
    log.run(2.0, 480_000)
    log.end()
    store = Store.of(tmp_path / "study", (tmp_path / "runs").as_uri())
    assert replay(tmp_path / "study", store).created == 2
    before = store_content(store.uri)
    assert replay(tmp_path / "study", store).updated == 0
    assert store_content(store.uri) == before
    assert before["muon/t000 sampler"][0][0] == "FINISHED"


def test_no_metric_of_a_run_has_more_points_than_the_bound(study_folder, StudyLog, ran_to_end):
    log = StudyLog(study_folder)
    log.start()
    trial = log.ask("preset")
    log.submit(trial)
    for step in range(1, 1001):
        log.progress(trial, step, 5.0 - step / 1000)
    log.finish(trial, ran_to_end(2.0, 480_000))
    log.end()
    replay(study_folder)
    run = runs_by_name(study_folder)["t000 preset"]
    steps = [point.step for point in client(study_folder).get_metric_history(run.info.run_id, "train/lr_multiplier")]
    assert len(steps) <= CURVE_POINTS
    assert max(steps) == 1000
    assert len(client(study_folder).get_metric_history(run.info.run_id, "train/loss")) <= CURVE_POINTS


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


def test_no_study_no_store(tmp_path):
    with pytest.raises(EventLogError, match="no study here"):
        replay(tmp_path)
    (tmp_path / "events.jsonl").touch()
    with pytest.raises(EventLogError, match="has not started yet"):
        replay(tmp_path)
    assert not (tmp_path / "mlflow.db").exists()


def test_an_experiment_that_was_deleted_is_said_and_not_brought_back(study_folder, StudyLog):
    log = StudyLog(study_folder)
    log.start()
    log.end()
    replay(study_folder)
    store = client(study_folder)
    store.delete_experiment(store.get_experiment_by_name("muon").experiment_id)
    with pytest.raises(TrackingError, match=r"muon was deleted there; bring it back: `mlflow experiments restore"):
        replay(study_folder)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"this is no database" * 100, r"file is not a database; move the file away: it is made again"),
        (None, r"another version of MLflow made it: move it away.* or keep a copy and run `mlflow db upgrade"),
    ],
)
def test_a_store_that_mlflow_cannot_use_is_said_and_kept(study_folder, StudyLog, content, what):
    log = StudyLog(study_folder)
    log.start()
    log.end()
    database = study_folder / "mlflow.db"
    if content is None:
        with sqlite3.connect(database) as store:
            store.execute("UPDATE alembic_version SET version_num = '0a8213491aaa'")
    else:
        database.write_bytes(content)
    before = database.read_bytes()
    with pytest.raises(TrackingError, match=what):
        replay(study_folder)
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<html>please log in</html>", "not in a valid JSON format"),
        ("{}", "something else answers there; name another address"),
        ('{"experiment": 5}', "Failed to parse experiment field"),
    ],
)
def test_a_service_that_is_not_mlflow_is_said(tmp_path, StudyLog, body, message):
    log = StudyLog(tmp_path / "study")
    log.start()
    log.close()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with (
        answering(f"{head}{body}".encode()) as uri,
        pytest.raises(TrackingError, match=f"MLflow at {uri}: .*{message}"),
    ):
        replay(tmp_path / "study", Store.of(tmp_path / "study", uri))
