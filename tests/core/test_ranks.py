"""1, 2 and 4 ranks train the same model, and end together."""

import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
from torch.distributed import TCPStore

from tests.forks import Forks

WORKER = pathlib.Path(__file__).with_name("rank_worker.py")
ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 0.4


def torchrun(ranks: int, *arguments: str) -> subprocess.CompletedProcess:
    """Run a module on some local ranks, one thread each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def run_gang(forks: Forks, ranks: int, *arguments: object) -> None:
    """Run the worker on some local ranks, told what torchrun tells them."""
    # They meet at a store of this process: a port that was only looked at could be another's before rank 0 takes it.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    gang = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)]
    program = WORKER.read_text(encoding="utf-8")
    started = [forks.start(program, *arguments, environment={**os.environ, **meeting, **rank}) for rank in gang]
    for process in started:
        code, _, error = process.end()
        assert code == 0, error


@pytest.fixture(scope="module")
def seen(tiny_settings, running_forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict]]:
    """Per number of ranks: what each rank saw."""
    twenty = {"steps": 20, "seconds": None}
    plan = {
        "train": {
            "float32": tiny_settings(stop=twenty, muon={"ns_dtype": "float32"}),
            "bfloat16": tiny_settings(stop=twenty, muon={"ns_dtype": "bfloat16"}),
            "clip_decay": tiny_settings(
                stop=twenty,
                muon={"ns_dtype": "float32", "weight_decay": 0.1},
                optimizer={"grad_clip": 0.1, "adam_weight_decay": 0.1},
            ),
            "one_layer": tiny_settings(stop={"steps": 3, "seconds": None}, model={"num_layers": 1}),
            "wallclock": tiny_settings(stop={"steps": None, "seconds": SECONDS}),
        },
        "trial": tiny_settings(stop={"steps": 6, "seconds": None}, muon={"ns_dtype": "float32"}),
        "frontier": tiny_settings(
            stop={"steps": 6, "seconds": None},
            muon={"ns_dtype": "float32"},
            averaging={"method": "swa", "swa_start_share": 1.0, "swa_every_steps": 2, "swa_every_share": None},
            evaluation={"sliding_stride": 24},
            export={"format": "flat", "gptq": True, "gptq_batches": 2, "codec": "lzma"},
        ),
    }
    as_dicts = {name: dataclasses.asdict(settings) for name, settings in plan["train"].items()}
    everything = {}
    for ranks in (1, 2, 4):
        folder = tmp_path_factory.mktemp(f"ranks{ranks}")
        plan_file = folder / "plan.json"
        trials = {name: dataclasses.asdict(plan[name]) for name in ("trial", "frontier")}
        plan_file.write_text(json.dumps({"train": as_dicts, **trials}))
        run_gang(running_forks, ranks, plan_file, folder)
        everything[ranks] = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]
    return everything


def differences(seen: dict[int, list[dict]], name: str, ranks: int) -> list[float]:
    one, many = seen[1][0][name]["losses"], seen[ranks][0][name]["losses"]
    assert len(one) == len(many) == 20
    return [abs(a - b) for a, b in zip(one, many, strict=True)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_agree_with_one_rank(seen, ranks: int) -> None:
    assert max(differences(seen, "float32", ranks)) < 1e-5
    assert max(differences(seen, "clip_decay", ranks)) < 1e-5
    off = differences(seen, "bfloat16", ranks)
    assert max(off[:3]) < 1e-4
    assert max(off) < 5e-3


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "clip_decay", "one_layer", "wallclock"])
def test_all_ranks_end_with_the_same_weights_after_the_same_step(seen, ranks: int, name: str) -> None:
    runs = [rank[name] for rank in seen[ranks]]
    assert len({run["weights"] for run in runs}) == 1
    assert len({run["steps"] for run in runs}) == 1
    assert all(run["losses"] == runs[0]["losses"] and run["readings"] == runs[0]["readings"] for run in runs)
    assert all(math.isfinite(loss) for loss in runs[0]["losses"])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_wallclock_ends_at_most_one_step_late(seen, ranks: int) -> None:
    run = seen[ranks][0]["wallclock"]
    assert run["steps"] == len(run["readings"]) - 1 > 0
    assert run["readings"][-2] < SECONDS <= run["readings"][-1]
    assert run["readings"] == sorted(run["readings"])


@pytest.mark.parametrize("ranks", [2, 4])
def test_trial_on_many_ranks_scores_as_on_one(seen, ranks: int) -> None:
    one, many = seen[1][0]["trial"], seen[ranks][0]["trial"]
    assert all(rank["trial"] == many for rank in seen[ranks])
    assert many["kind"] == "scored"
    assert many["fidelity"]["workers"] == ranks
    for name in ("bpb/prequant", "bpb/roundtrip", "val_loss/prequant", "val_loss/roundtrip"):
        assert many["metrics"][name] == pytest.approx(one["metrics"][name], abs=1e-4)
    assert many["metrics"]["train/tokens"] == one["metrics"]["train/tokens"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_that_core_has_is_on_many_ranks_as_on_one(seen, ranks: int) -> None:
    one, many = seen[1][0]["frontier"], seen[ranks][0]["frontier"]
    assert all(rank["frontier"] == many for rank in seen[ranks])
    assert many["artifact"] == "final_model.flat"
    assert list(many["phases"]) == list(one["phases"])
    assert "calibrate" in many["phases"]
    assert many["metrics"]["averaging/snapshots"] == 3.0
    assert many["metrics"]["sliding/scored_share"] == 1.0
    for name in ("bpb/live", "bpb/prequant", "bpb/roundtrip", "bpb/sliding", "val_loss/sliding"):
        assert many["metrics"][name] == pytest.approx(one["metrics"][name], abs=1e-4)


def test_train_module_under_torchrun(tiny_settings, tmp_path: pathlib.Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(dataclasses.asdict(tiny_settings(stop={"steps": 4}))))
    result = torchrun(2, "-m", "golfray.core.train", str(settings), str(tmp_path / "run"))
    assert result.returncode == 0, result.stderr
    assert "destroy_process_group" not in result.stderr
    assert "leaked" not in result.stderr
    last = json.loads(result.stdout.splitlines()[-1])
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert last["kind"] == written["kind"] == "scored"
    assert last["bpb/roundtrip"] == written["metrics"]["bpb/roundtrip"]
    curve = [json.loads(line) for line in (tmp_path / "run" / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve] == [1, 2, 3, 4]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "settings.json",
        "checkpoint.pt",
        "final_model.int8.ptz",
        "clock.json",
        "curve.jsonl",
        "result.json",
    }


def test_train_module_says_how_it_is_called(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-m", "golfray.core.train"], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage:")
