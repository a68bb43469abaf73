"""One small study by ``golfray tune``, looked at from every side that a person has."""

import hashlib
import json
import os
import re
import shlex
import stat

import pytest

from golfray.sweep.choosing import best_feasible
from golfray.sweep.records import StudyRecord

LOG_TYPES = {
    "study_started",
    "trial_asked",
    "attempt_submitted",
    "attempt_started",
    "phase",
    "progress",
    "attempt_ended",
    "study_ended",
}


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


class Tuned:
    """A study that has ended: its command, its folder and its log."""

    def __init__(self, golfray, started, folder):
        self.golfray, self.started, self.folder = golfray, started, folder
        self.ended = started.end()
        self.left = started.left_processes()
        lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
        self.log = [json.loads(line, parse_constant=refuse) for line in lines]
        self.header = self.log[0]
        self.asked = {event["trial"]: event for event in self.of("trial_asked")}
        self.outcomes = {event["trial"]: event["outcome"] for event in self.of("attempt_ended")}
        self.folders = {event["trial"]: folder / event["folder"] for event in self.of("attempt_submitted")}

    def of(self, event):
        return [record for record in self.log if record["event"] == event]

    def total(self, trial):
        return self.outcomes[trial]["metrics"]["bytes/total"]

    @property
    def best(self):
        """Chosen here from the log alone; how is a matter of tests/sweep/test_choosing.py."""
        return best_feasible(StudyRecord.load(self.folder)).number

    def printed_command(self, title):
        (line,) = [line for line in self.ended.out.splitlines() if line.startswith(f"{title}: ")]
        return shlex.split(line.removeprefix(f"{title}: "))


@pytest.fixture(scope="module")
def tuned(golfray, write_space):
    # The same point twice: over the cap with the best score of all, and under it.
    faster = {"optimizer.matrix_lr": 0.09}
    wide = {"export.bits_attention": 8, "export.bits_mlp": 8, "export.bits_embedding": 8}
    knobs = {
        "optimizer.matrix_lr": {"low": 0.01, "high": 0.1, "log": True},
        **{f"export.bits_{part}": {"low": 5, "high": 8} for part in ("attention", "mlp", "embedding")},
    }
    # With this seed what the sampler suggests fits, so it runs.
    space = write_space(golfray.folder / "small.yaml", first_points=[{**faster, **wide}, faster], knobs=knobs, seed=8)
    return Tuned(golfray, golfray.start("tune", space), golfray.folder / "studies" / "small")


def test_it_ends_well_and_says_nothing_on_stderr(tuned):
    assert (tuned.ended.code, tuned.ended.err) == (0, ""), tuned.ended


def test_what_it_says_is_plain_and_its_own(tuned):
    """A line an event, and nothing of Ray's, Tune's, torch's or MLflow's."""
    assert "\x1b" not in tuned.ended.out
    starts = (
        r"t\d{3} \w+: |study small: |trials run as: |parameter-golf at scale |corpus |own corpus |on its validation |"
        r"MLflow: |\d+ trials? at once: |[ *\d]+t\d{3}  |  trial role |\* best feasible by |\d+ trials in |"
        r"best feasible: |  lowest |against trial 0: |  seed noise |luck of the best |the same text |"
        r"(compare the trials in MLflow|score the best artifact again|train it again): golfray "
    )
    assert [line for line in tuned.ended.out.splitlines() if not re.match(starts, line)] == []


def test_the_log_is_complete(tuned):
    assert [event["seq"] for event in tuned.log] == list(
        range(tuned.log[0]["seq"], tuned.log[0]["seq"] + len(tuned.log))
    )
    assert {event["event"] for event in tuned.log} == LOG_TYPES
    assert tuned.log[-1] == {**tuned.log[-1], "event": "study_ended", "reason": "budget spent: 5 trials"}
    roles = [event["role"] for event in tuned.asked.values()]
    assert roles == ["preset", "preset_8bit", "first_point", "first_point", "replicate", "sampler"]
    for trial in tuned.asked:
        events = [event["event"] for event in tuned.log if event.get("trial") == trial]
        assert [event for event in events if event not in ("phase", "progress")] == [
            "trial_asked",
            "attempt_submitted",
            "attempt_started",
            "attempt_ended",
        ]
        steps = [event["step"] for event in tuned.of("progress") if event["trial"] == trial]
        assert steps == sorted(steps)
        assert steps[-1] == 12
        assert tuned.outcomes[trial]["fidelity"]["stop"] == "steps"
        assert tuned.outcomes[trial]["fidelity"]["workers"] == 2


def test_eight_bits_are_infeasible_and_the_sampler_hears_of_it(tuned):
    eight, outcome = tuned.asked[1], tuned.outcomes[1]
    assert {eight["settings"]["export"][f"bits_{part}"] for part in ("attention", "mlp", "embedding")} == {8}
    assert outcome["kind"] == "infeasible"
    assert outcome["metrics"]["bytes/margin"] == tuned.header["cap_bytes"] - tuned.total(1) < 0
    assert (eight["told"], eight["told_reason"]) == (True, None)
    # The last sampler suggestion came after all of these had been told.
    assert [trial for trial, event in tuned.asked.items() if event["told"]] == [0, 1, 2, 3, 5]


def test_what_is_over_the_cap_is_best_nowhere(tuned):
    scores = {trial: outcome["metrics"]["bpb/roundtrip"] for trial, outcome in tuned.outcomes.items()}
    assert scores[2] < scores[0]
    assert tuned.outcomes[2]["kind"] == "infeasible"
    over = [trial for trial in tuned.asked if tuned.total(trial) > tuned.header["cap_bytes"]]
    assert {1, 2} <= set(over)
    table = re.findall(r"^(.)\s+t(\d{3})\s+\S+\s+(OVER CAP|\S+)", tuned.ended.out, re.MULTILINE)
    assert sorted(int(number) for _, number, _ in table) == sorted(tuned.asked)
    assert [int(number) for star, number, _ in table if star == "*"] == [tuned.best]
    assert sorted(int(number) for _, number, outcome in table if outcome == "OVER CAP") == sorted(over)
    said_best = re.findall(r"^t(\d{3}) .*best so far$", tuned.ended.out, re.MULTILINE)
    assert not {int(number) for number in said_best} & set(over)
    assert f"best feasible: t{tuned.best:03d} " in tuned.ended.out


def test_mlflow_has_every_trial_and_one_best(tuned):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tuned.folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    runs = {run.data.tags.get("golfray.trial"): run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {None, *map(str, tuned.asked)}
    assert [number for number, run in runs.items() if run.data.tags.get("golfray.best")] == [str(tuned.best)]
    assert runs[None].data.tags["golfray.best_trial"] == str(tuned.best)
    for trial, outcome in tuned.outcomes.items():
        metrics = runs[str(trial)].data.metrics
        for name in ("bpb/roundtrip", "bytes/code", "bytes/model", "bytes/total"):
            assert metrics[name] == outcome["metrics"][name]
        assert metrics["phase/train_s"] == outcome["phases"]["train"]
        files = {file.path for file in client.list_artifacts(runs[str(trial)].info.run_id)}
        assert {"final_model.int8.ptz", "settings.json"} <= files
    assert runs["1"].data.params["export.bits_mlp"] == "8"


def test_the_artifact_is_as_large_as_it_was_said_to_be(tuned):
    for trial, outcome in tuned.outcomes.items():
        content = (tuned.folders[trial] / outcome["artifact"]).read_bytes()
        assert len(content) + tuned.header["bytes_code"] == outcome["metrics"]["bytes/total"]
        assert hashlib.sha256(content).hexdigest() == outcome["artifact_sha256"]


def test_the_printed_score_command_gives_the_score_of_the_log(tuned):
    name, *arguments = tuned.printed_command("score the best artifact again")
    ended = tuned.golfray.run(*arguments)
    assert (name, ended.code, ended.err) == ("golfray", 0, ""), ended
    score, total = re.match(r"bpb/roundtrip (\S+) .*\nbytes/total (\S+) = ", ended.out).groups()
    # One process adds up in another order than two ranks did.
    assert float(score) == pytest.approx(tuned.outcomes[tuned.best]["metrics"]["bpb/roundtrip"], abs=2e-5)
    assert int(total.replace(",", "")) == tuned.total(tuned.best)


def test_the_printed_train_command_makes_the_same_bytes(tuned):
    """Without Ray, in other processes, from the terminal's text alone."""
    name, *arguments = tuned.printed_command("train it again")
    ended = tuned.golfray.run(*arguments, "--folder=again")
    assert (name, ended.code, ended.err) == ("golfray", 0, ""), ended
    result = json.loads((tuned.golfray.folder / "again" / "result.json").read_text())
    assert result["fidelity"] == tuned.outcomes[tuned.best]["fidelity"]
    assert result["artifact_sha256"] == tuned.outcomes[tuned.best]["artifact_sha256"]
    assert result["metrics"]["bpb/roundtrip"] == tuned.outcomes[tuned.best]["metrics"]["bpb/roundtrip"]


def test_concurrency_is_said_and_follows_from_the_machine(tuned):
    slots = tuned.header["slots"]
    cpus = int(re.search(r"at once: (\d+) CPUs free, one a worker, 2 workers a trial", tuned.ended.out)[1])
    # Six attempts at most, so a large machine starts no more lanes than that.
    assert slots == min(cpus // 2, 6)
    assert f"\n{slots} trial{'s' if slots > 1 else ''} at once: " in tuned.ended.out
    assert "each worker computes with 1 CPU thread (cpu)" in tuned.ended.out
    assert "; ".join(tuned.header["describe"]) in tuned.ended.out.splitlines()
    # What is booked: this machine, from the command on.
    assert tuned.header["holding"]["nodes"] == 1
    assert tuned.header["held_since"] < tuned.header["time"]


def test_nothing_is_left_behind(tuned):
    assert tuned.left == []
    assert list(tuned.golfray.home.iterdir()) == []
    (line,) = [line for line in tuned.header["describe"] if "temporary files" in line]
    assert not os.path.lexists(re.search(r"in (\S+),", line)[1])


def test_the_token_lies_in_the_study_and_only_its_owner_reads_it(tuned):
    token = tuned.folder / "ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert token.read_text() not in (tuned.folder / "events.jsonl").read_text() + tuned.ended.out


def test_a_study_is_never_written_over(tuned):
    before = (tuned.folder / "events.jsonl").read_bytes()
    ended = tuned.golfray.run("tune", "small.yaml")
    assert ended.code == 2
    assert f"{tuned.folder}: holds a study already" in ended.one_line()
    assert (tuned.folder / "events.jsonl").read_bytes() == before
