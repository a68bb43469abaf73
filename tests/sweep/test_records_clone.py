"""A clone of the public records, made here: what is read of good ones, and one line for each that is wrong."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.observation import observations_text, published_observations, read_observations
from golfray.sweep.record_hyperparameters import read_log, script_defaults, settings_of
from golfray.sweep.records_clone import Clone, read_clone

STOCK_LOG = """\
W0318 14:37:59.159000 871689 torch/distributed/run.py:852] Setting OMP_NUM_THREADS
val_loader:shards pattern=/data/fineweb_val_*.bin tokens:62021632
model_params:17059912
world_size:8 grad_accum_steps:1
attention_mode:gqa num_heads:8 num_kv_heads:4
tie_embeddings:True embed_lr:0.1 head_lr:0.0 matrix_lr:0.03 scalar_lr:0.04
train_batch_tokens:524288 train_seq_len:1024 iterations:20000 warmup_steps:20 max_wallclock_seconds:600.000
seed:42
step:200/20000 train_loss:2.9767 train_time:9089ms step_avg:45.44ms
step:12000/20000 val_loss:2.0619 val_bpb:1.2212 train_time:599973ms step_avg:45.33ms
"""

# Paths of a block may be empty or have spaces; what comes after it looks like settings, and is none.
LATE_LOG = """\
====================
Hyperparameters:
  artifact_dir:\x20
  adam_wd: 0.02
  data_dir: /home/some one/data
  ema_decay: 0.9965
  grad_clip_norm: 0.3
  matrix_bits: 6
  embed_bits: 7
  matrix_lr: 0.026
  muon_momentum: 0.97
  muon_momentum_warmup_start: 0.92
  muon_momentum_warmup_steps: 1500
  muon_wd: 0.095
  qk_gain_init: 5.0
  tie_embeddings: True
  warmdown_frac: 0.75
  warmdown_iters: 3500
====================
matrix_lr: 0.5
  qk_gain_init: 4.0
warmup_step: 20/20
0/20000 val_loss: 9.0085 val_bpb: 3.4874
5000/20000 train_loss: 2.4 train_time: 9.9m tok/s: 6630508
stopping_early: wallclock_cap train_time: 588188ms step: 5000/20000
ttt_progress: batch 778/782 batch_loss:2.7982
"""

SCRIPT = """\
import os
class Hyperparameters:
    matrix_lr = float(os.environ.get("MATRIX_LR", 0.04))
    muon_momentum = float(os.environ.get("MUON_MOMENTUM", 0.95))
    warmdown_iters = int(os.environ.get("WARMDOWN_ITERS", 1200))
    tied = bool(int(os.environ.get("TIE_EMBEDDINGS", "1")))
    run_id = os.environ.get("RUN_ID", str(uuid.uuid4()))
"""


def make_record(clone: Path, name: str, submission: Any, files: dict[str, str] | None = None) -> Path:
    folder = clone / "records" / name
    folder.mkdir(parents=True)
    text = submission if isinstance(submission, str) else json.dumps(submission)
    (folder / "submission.json").write_text(text)
    for file, content in (files if files is not None else {"train.log": STOCK_LOG, "train_gpt.py": SCRIPT}).items():
        (folder / file).write_text(content)
    return folder


GOOD = {"val_bpb": 1.21, "bytes_total": 15_787_627, "seeds": [1337, 42]}
TEN = "track_10min_16mb"


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Clone:
    """Four good records and one of each way in which one can be wrong."""
    root = tmp_path_factory.mktemp("clone")
    make_record(root, f"{TEN}/a-stock", GOOD)
    seeds = {str(seed): {"val_bpb": bpb, "artifact_bytes": 15_990_000 + seed} for seed, bpb in ((1, 1.08), (2, 1.1))}
    make_record(root, f"{TEN}/b-late", {"val_bpb": 1.07, "seed_results": seeds}, {"train_seed1.log": LATE_LOG})
    (make_record(root, f"{TEN}/b-below", {"val_bpb": 1.07, "seed_results": seeds}, {}) / "logs").mkdir()
    (root / "records" / TEN / "b-below" / "logs" / "train1.txt").write_text(LATE_LOG)
    disputed = {"one.log": STOCK_LOG, "two.log": STOCK_LOG.replace("matrix_lr:0.03", "matrix_lr:0.02")}
    make_record(root, "track_non_record_16mb/c-disputed", GOOD, disputed)
    make_record(root, f"{TEN}/2026-03-18_LowerLR", {"val_bpb": 1.223}, {"train.log": STOCK_LOG})
    make_record(root, f"{TEN}/e-nan", '{"val_bpb": NaN}')
    make_record(root, f"{TEN}/f-huge", {**GOOD, "bytes_total": 10**400})
    make_record(root, f"{TEN}/g-negative", {**GOOD, "bytes_total": -5})
    make_record(root, f"{TEN}/h-text", {**GOOD, "val_bpb": "1.2"})
    make_record(root, f"{TEN}/i-no-score", {"bytes_total": 5})
    make_record(root, f"{TEN}/j-no-json", "{")
    make_record(root, f"{TEN}/k-list", "[]")
    make_record(root, f"{TEN}/l-silent", GOOD, {})
    make_record(root, f"{TEN}/m-latin", GOOD)
    (root / "records" / TEN / "m-latin" / "submission.json").write_bytes(b'{"name": "\xe9"}')
    (make_record(root, f"{TEN}/n-log-only", GOOD) / "submission.json").unlink()
    elsewhere = root.parent / "elsewhere.json"
    elsewhere.write_text(json.dumps(GOOD))
    out = make_record(root, f"{TEN}/o-leads-out", GOOD)
    (out / "submission.json").unlink()
    (out / "submission.json").symlink_to(elsewhere)
    (root / "records" / TEN / "p-linked").symlink_to(root / "records" / TEN / "a-stock")
    pipe = make_record(root, f"{TEN}/q-pipe", GOOD)
    (pipe / "submission.json").unlink()
    os.mkfifo(pipe / "submission.json")
    make_record(root, f"{TEN}/r-rate", GOOD, {"train.log": STOCK_LOG.replace("0.03", "-1")})
    make_record(root, f"{TEN}/s-deep", "[" * 100_000)
    loop = make_record(root, f"{TEN}/t-loop", GOOD, {})
    (loop / "train.log").symlink_to("train.log")
    return read_clone(root)


def test_good_records_are_read_and_the_others_counted(clone: Clone) -> None:
    ids = [record.id for record in clone.observations.records]
    assert ids == ["R05", f"{TEN}/a-stock", f"{TEN}/b-below", f"{TEN}/b-late", "track_non_record_16mb/c-disputed"]
    assert len(clone.skipped) == 16


WRONG = {
    "e-nan": "val_bpb must be a number from 0.5 to 8, got NaN",
    "f-huge": "its size must be above 0 and at most 1,000,000,000 bytes, got 1000",
    "g-negative": "its size must be above 0 and at most 1,000,000,000 bytes, got -5",
    "h-text": 'val_bpb must be a number from 0.5 to 8, got "1.2"',
    "i-no-score": "val_bpb is missing",
    "j-no-json": "submission.json is not JSON: ",
    "k-list": "submission.json is no JSON object",
    "l-silent": "neither a log nor train_gpt.py says what it ran with",
    "m-latin": "submission.json is not UTF-8 text (byte 10)",
    "n-log-only": "submission.json is missing",
    "o-leads-out": "submission.json is a link that leads out of the clone",
    "p-linked": "is a link, which is not followed",
    "q-pipe": "submission.json is no regular file",
    "r-rate": "matrix_lr: ",
    "s-deep": "submission.json is not JSON: ",
    "t-loop": "train.log cannot be read: ",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_record_has_one_line_that_says_what_is_wrong(clone: Clone, name: str) -> None:
    (line,) = [line for line in clone.skipped if line.startswith(f"{TEN}/{name}: ")]
    assert line.removeprefix(f"{TEN}/{name}: ").startswith(WRONG[name])
    assert "\n" not in line
    assert len(line) < 250


def test_a_log_says_what_the_run_resolved_and_the_script_the_rest(clone: Clone) -> None:
    (record,) = [record for record in clone.observations.records if record.id.endswith("a-stock")]
    assert (record.name, record.bpb, record.runs, record.bytes_total) == ("a-stock", 1.21, 2, 15_787_627)
    assert record.settings["optimizer.matrix_lr"] == 0.03, "not the 0.04 of the script"
    assert record.settings["optimizer.tied_embed_lr"] == 0.1
    assert record.settings["batch.tokens"] == 524_288
    assert record.settings["muon.momentum_end"] == 0.95
    assert record.settings["schedule.warmdown_share"] == 0.1, "1,200 of 12,000 steps"
    assert record.settings["workers"] == 8
    assert record.beyond[0] == "a script of its own"
    (defaults,) = [word for word in record.beyond if word.startswith("defaults of its script")]
    assert "muon.momentum_end" in defaults
    assert "optimizer.matrix_lr" not in defaults


def test_a_block_of_hyperparameters_ends_where_it_ends(clone: Clone) -> None:
    (record,) = [record for record in clone.observations.records if record.id.endswith("b-late")]
    assert record.bpb == pytest.approx(1.09), "the mean of the seeds, not the headline"
    assert (record.runs, record.bytes_total) == (2, 15_990_002)
    assert record.settings == {
        "optimizer.adam_weight_decay": 0.02,
        "averaging.method": "ema",
        "averaging.ema_decay": 0.9965,
        "optimizer.grad_clip": 0.3,
        "export.bits_attention": 6,
        "export.bits_mlp": 6,
        "export.bits_embedding": 7,
        "optimizer.matrix_lr": 0.026,
        "muon.momentum_end": 0.97,
        "muon.momentum_start": 0.92,
        "muon.momentum_warmup_steps": 1500,
        "muon.momentum_warmup_share": 0.3,
        "muon.weight_decay": 0.095,
        "model.qk_gain_init": 5.0,
        "model.tie_embeddings": True,
        "schedule.warmdown_share": 0.75,
    }


def test_logs_in_a_folder_of_their_own_are_read(clone: Clone) -> None:
    below, beside = (r for r in clone.observations.records if r.id.startswith(f"{TEN}/b-"))
    assert below.settings == beside.settings


def test_what_logs_disagree_on_is_not_known(clone: Clone) -> None:
    (record,) = [record for record in clone.observations.records if record.id.endswith("c-disputed")]
    assert "optimizer.matrix_lr" not in record.settings
    assert record.settings["optimizer.scalar_lr"] == 0.04
    assert "its logs disagree: optimizer.matrix_lr" in record.beyond
    assert "track: track_non_record_16mb" in record.beyond


def test_a_record_that_golfray_knows_has_its_settings_from_there(clone: Clone) -> None:
    (record,) = [record for record in clone.observations.records if record.id == "R05"]
    (shipped,) = [record for record in published_observations().records if record.id == "R05"]
    assert record.settings["export.bits_embedding"] == shipped.settings["export.bits_embedding"] == 8
    assert record.settings["optimizer.matrix_lr"] == 0.03, "its own log comes first"
    assert record.beyond == shipped.beyond


def test_what_was_read_is_a_file_of_observations(clone: Clone, tmp_path: Path) -> None:
    path = tmp_path / "observations.json"
    path.write_text(observations_text(clone.observations))
    assert read_observations(path) == clone.observations


def test_the_folder_of_records_names_the_clone_as_well(tmp_path: Path) -> None:
    make_record(tmp_path, "alone", GOOD)
    assert [record.id for record in read_clone(tmp_path / "records").observations.records] == ["alone"]
    assert read_clone(tmp_path).observations.records == read_clone(tmp_path / "records").observations.records


def test_what_is_no_clone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no submission\.json in any folder"):
        read_clone(tmp_path)
    with pytest.raises(ConfigError, match="is no folder"):
        read_clone(tmp_path / "nowhere")


@pytest.mark.parametrize("source", ["not python (", "\0", "(" * 5_000, "x = 1"])
def test_a_script_that_tells_nothing_tells_nothing(source: str) -> None:
    assert script_defaults(source) == {}


def test_iterations_of_a_warmdown_without_steps_are_no_share() -> None:
    assert settings_of({"warmdown_iters": 1200, "warmdown_frac": 0.0}, None) == {"schedule.warmdown_steps": 1200}
    assert settings_of({"warmdown_iters": 9000}, 4500)["schedule.warmdown_share"] == 1.0


def test_the_first_of_two_values_counts_and_code_in_a_log_is_no_value() -> None:
    log = read_log(
        "    matrix_lr: float = 0.9\nHyperparameters:\n  matrix_lr: 0.02\n\nHyperparameters:\n  matrix_lr: 1\n"
    )
    assert log.values == {"matrix_lr": 0.02}
    assert log.steps is None
