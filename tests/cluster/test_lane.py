"""One real lane of two ranks: jobs in order, equal on every rank, cancelled, and closed."""

import collections
import pathlib
import shutil
import urllib.error
import urllib.request

import psutil
import pytest

from golfray.sweep.executor import Entered, Finished, Job, Progress, Started
from golfray.sweep.outcome import Kind

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study(start_lanes):
    return start_lanes()


def test_five_jobs_run_in_order_and_every_rank_gets_the_same(study):
    assert study.executor.slots == 1
    assert study.executor.holding.nodes == 1
    assert "1 trial at once: 2 CPUs free, one a worker, 2 workers a trial" in study.executor.describe()
    jobs = [study.submit("steps", seed) for seed in range(5)]
    events = study.events_until(Finished, jobs[-1])
    started = [event for event in events if isinstance(event, Started)]
    assert [event.job_id for event in started] == jobs
    # One node with both ranks, measured once as the lane formed.
    assert {(len(event.nodes), event.nodes[0].ranks, event.nodes[0].device) for event in started} == {(1, 2, "cpu")}
    assert len({event.nodes for event in started}) == 1
    ends = [event for event in events if isinstance(event, Finished)]
    assert [event.job_id for event in ends] == jobs
    assert [event.outcome.metrics["sum"] for event in ends] == [2.0 * seed + 1.0 for seed in range(5)]
    assert [event.step for event in events if isinstance(event, Progress)] == [1, 2, 3, 4] * 5
    phases = ["data", "compile", "train", "validate", "export", "score"]
    assert [event.phase for event in events if isinstance(event, Entered)] == phases * 5
    for seed, job_id in enumerate(jobs):
        (first,), (second,) = study.notes(job_id, 0), study.notes(job_id, 1)
        assert first["settings"] == second["settings"] == seed
        assert first["threads"] == second["threads"] == 1
    assert len({study.pid(job_id, 0) for job_id in jobs}) == 1, "the ranks stay up"


@pytest.mark.parametrize("compile_mode", ["off", "on"])
def test_the_same_trial_first_and_fifth_gives_the_same_bytes(study, tiny_corpus, compile_mode):
    sections = {
        "model": {"vocab_size": 320, "num_layers": 2, "model_dim": 32, "num_heads": 2, "num_kv_heads": 1},
        "data": {"folder": str(tiny_corpus.folder), "tokenizer": str(tiny_corpus.tokenizer)},
        "batch": {"tokens": 512, "seq_len": 64, "slices": 2, "val_tokens": 2048},
        "stop": {"steps": 6, "seconds": None},
        "runtime": {"seed": 7, "compile": compile_mode, "device": "cpu"},
        "schedule": {"warmup_steps": 1},
    }
    other = {
        **sections,
        "model": {**sections["model"], "num_layers": 3},
        "runtime": {"seed": 8, "compile": compile_mode},
    }
    jobs = [study.submit("", **(sections if index in (0, 4) else other)) for index in range(5)]
    outcomes = [study.outcome(job_id) for job_id in jobs]
    assert {outcome.kind for outcome in outcomes} == {Kind.SCORED}
    assert {outcome.fidelity["compiled"] for outcome in outcomes} == {compile_mode == "on"}
    assert {outcome.metrics["train/recompiles"] for outcome in outcomes} == {0.0}
    first, fifth = [
        (study.folder / "attempts" / jobs[index] / str(outcomes[index].artifact)).read_bytes() for index in (0, 4)
    ]
    assert first == fifth
    assert outcomes[1].artifact_sha256 != outcomes[0].artifact_sha256


SMALL = {
    "model": {"vocab_size": 320, "num_layers": 2, "model_dim": 32, "num_heads": 2, "num_kv_heads": 1},
    "batch": {"tokens": 512, "seq_len": 64, "slices": 2, "val_tokens": 2048},
    "stop": {"steps": 6, "seconds": None},
    "schedule": {"warmup_steps": 1},
}


def test_an_id_beyond_the_vocabulary_is_named_by_the_rank_that_met_it(study, tiny_corpus, tmp_path):
    """In the first batch but one, so that no sample of the ends sees it; the model is compiled, as on a laptop."""
    folder = tmp_path / "corpus"
    shutil.copytree(tiny_corpus.folder, folder)
    path = folder / "fineweb_train_000000.bin"
    content = bytearray(path.read_bytes())
    content[1024 + 2 * 600 : 1024 + 2 * 601] = (5000).to_bytes(2, "little")
    path.write_bytes(content)
    data = {"folder": str(folder), "tokenizer": str(tiny_corpus.tokenizer)}
    runtime = {"seed": 7, "compile": "on", "device": "cpu"}
    outcome = study.outcome(study.submit("", **SMALL, data=data, runtime=runtime))
    assert outcome.kind is Kind.CRASHED
    rank, said = outcome.reason.split(": ", 1)
    assert rank in ("rank 0", "rank 1")
    assert said == (
        f"{path}: token 5000 at position 600 is beyond the vocabulary of 320; "
        f"`golfray data check {folder}` reads every shard whole"
    )
    assert outcome.error == "token beyond the vocabulary"
    assert study.outcome(study.submit("steps")).kind is Kind.SCORED


def test_a_learning_rate_that_is_no_number_diverges(study, tiny_corpus):
    job_id = study.submit(
        "",
        optimizer={"matrix_lr": float("nan")},
        **SMALL,
        data={"folder": str(tiny_corpus.folder), "tokenizer": str(tiny_corpus.tokenizer)},
        runtime={"seed": 7, "compile": "off", "device": "cpu"},
    )
    outcome = study.outcome(job_id)
    assert outcome.kind is Kind.DIVERGED
    assert outcome.reason == "training loss is nan at step 2"
    assert study.outcome(study.submit("steps")).kind is Kind.SCORED


def test_cancel_queued_running_and_deaf(study):
    running, queued = study.submit("until_stopped"), study.submit("steps")
    study.events_until(Progress, running)
    study.executor.cancel(queued, "not needed")
    assert study.outcome(queued).reason == "not needed"
    study.executor.cancel(running, "enough")
    outcome = study.outcome(running)
    assert (outcome.kind, outcome.reason) == (Kind.CANCELLED, "enough")
    study.executor.cancel(running, "too late")

    deaf = study.submit("deaf")
    study.events_until(Progress, deaf)
    study.executor.cancel(deaf, "enough")
    outcome = study.outcome(deaf)
    assert outcome.kind is Kind.CANCELLED
    assert "did not stop within 2 s, its lane was killed" in outcome.reason
    assert study.outcome(study.submit("steps")).kind is Kind.SCORED
    assert not (study.folder / "attempts" / queued).exists()


def test_bad_calls_are_refused(study):
    with pytest.raises(ValueError, match="job-0 was submitted before"):
        study.executor.submit(Job("job-0", {}, "attempts/again"))
    with pytest.raises(ValueError, match="nobody was never submitted"):
        study.executor.cancel("nobody", "why not")


def test_the_token_lies_in_the_study_and_no_other_opens_the_cluster(study):
    path = study.folder / "ray" / "auth_token"
    assert path.stat().st_mode & 0o077 == 0
    (line,) = [line for line in study.executor.describe() if "dashboard" in line]
    url = line.split()[4].rstrip(",")
    assert url.startswith("http://127.0.0.1:")

    def status(headers):
        try:
            return urllib.request.urlopen(
                urllib.request.Request(f"{url}/api/jobs/", headers=headers), timeout=30
            ).status
        except urllib.error.HTTPError as error:
            return error.code

    assert status({}) == 401
    assert status({"Authorization": "Bearer wrong"}) == 403
    assert status({"Authorization": f"Bearer {path.read_text()}"}) == 200


def test_the_temporary_folder_is_closed_to_other_users(study):
    (line,) = [line for line in study.executor.describe() if "temporary files" in line]
    assert pathlib.Path(line.split()[4].rstrip(",")).stat().st_mode & 0o077 == 0


def test_every_server_of_ray_listens_on_loopback_only(study):
    addresses = collections.defaultdict(set)
    for process in psutil.Process().children(recursive=True):
        try:
            for connection in process.net_connections():
                if connection.status == psutil.CONN_LISTEN:
                    addresses[connection.laddr.ip].add(process.name())
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
    for address in ("127.0.0.1", "::ffff:127.0.0.1"):
        assert addresses.pop(address)
    # What is left is torch's own rendezvous store, which cannot be told where to listen.
    assert all(name.startswith("ray::RayTrainW") for names in addresses.values() for name in names), addresses


def test_close_ends_what_is_open_and_every_job_has_one_end(study):
    running, queued = study.submit("until_stopped"), study.submit("steps")
    study.events_until(Progress, running)
    study.executor.close()
    for event in study.executor.events(0.0):
        study.ends[event.job_id] += isinstance(event, Finished)
        if isinstance(event, Finished):
            assert event.outcome.kind is Kind.CANCELLED
    assert {running, queued} <= set(study.ends)
    assert study.ends == collections.Counter(study.submitted)
    assert (study.folder / "ray" / "logs" / "raylet.out").is_file()
    with pytest.raises(RuntimeError, match="the executor is closed"):
        study.executor.submit(Job("late", {}, "attempts/late"))
