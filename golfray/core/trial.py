"""One trial from settings to score: train, checkpoint, export, reload what was written, score that."""

import functools
import io
import json
import math
import pathlib
import time
from collections.abc import Callable

import numpy
import torch

from golfray.core.artifact import pack_artifact, sha256_hex, unpack_artifact, write_atomically
from golfray.core.byte_table import ByteTable, load_byte_table
from golfray.core.clock import Clock, load_trace
from golfray.core.gang import Gang
from golfray.core.loop import Report, Trainer, Training
from golfray.core.model import GPT, build_model
from golfray.core.muon import orthogonalize
from golfray.core.optimizers import Optimizers
from golfray.core.quantize import dequantize_state, quantize_state
from golfray.core.runtime import choose_runtime, count_graphs, prepare_device
from golfray.core.score import Score, score_model
from golfray.core.settings import ExportSettings, RunSettings, beyond_baseline, settings_to_json
from golfray.core.shards import TokenStream, list_shards, load_validation_tokens

CHECKPOINT_NAME = "checkpoint.pt"


class Phases:
    """Seconds of each phase, in the order in which they ran; ``tell`` hears the name of each as it begins."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self.tell = tell
        self.name = ""
        self.mark = time.perf_counter()

    def begin(self, name: str) -> None:
        """Book everything since the last call under the phase that ends now, and begin ``name``."""
        now = time.perf_counter()
        if self.name:
            self.seconds[self.name] = now - self.mark
        self.name, self.mark = name, now
        if self.tell is not None and name:
            self.tell(name)


class Parts:
    """The steps of one trial that recipes differ in, as the baseline has them; golfray.core.frontier has the others.

    They are called in the order in which they stand here, on every rank where nothing else is said. ``enter(phase)``
    begins a phase of its own for what a step does. ``artifact_name``: of the file that is exported.
    """

    artifact_name = "final_model.int8.ptz"

    def training_settings(self, settings: RunSettings) -> RunSettings:
        """What the training loop goes by. Raises ``ValueError`` on settings that this recipe would not act on."""
        if beyond_baseline(settings):
            raise ValueError(f"golfray.core.train_frontier must run {beyond_baseline(settings)}")
        return settings

    def begin(self, model: GPT) -> None:
        """The model is as it begins: warm-up has left no trace, and the clock has not started."""

    def after_step(self, steps: int, seconds: float) -> None:
        """``steps`` steps are done, ``seconds`` of training into the run; its time counts."""

    def end(self, score: Callable[[], Score]) -> dict[str, float]:
        """Leave in the model the weights that are kept; returns metrics. ``score()`` is validation, collective."""
        return {}

    def calibrate(self, stream: TokenStream, enter: Callable[[str], None]) -> None:
        """Learn from training tokens what the export needs."""

    def export_state(self, state: dict[str, torch.Tensor], export: ExportSettings) -> bytes:
        """The artifact's bytes; rank 0 only. Raises ``ValueError`` on weights that are not finite."""
        container, _ = quantize_state(state, export)
        return pack_artifact(container, export.codec_level)

    def load_artifact(self, content: bytes) -> dict[str, torch.Tensor]:
        """The state dict inside an artifact."""
        return dequantize_state(unpack_artifact(content))

    def evaluate(self, validation: numpy.ndarray, table: ByteTable, enter: Callable[[str], None]) -> dict[str, float]:
        """Further metrics of the exported model, whose weights the model has by then."""
        return {}


def export_checkpoint(checkpoint: pathlib.Path, settings: RunSettings, parts: Parts | None = None) -> bytes:
    """The artifact's bytes for a saved state dict. Raises ``ValueError`` on weights that are not finite."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    return (parts or Parts()).export_state(state, settings.export)


def run_trial(
    settings: RunSettings,
    gang: Gang,
    folder: pathlib.Path,
    report: Report | None = None,
    enter: Callable[[str], None] | None = None,
    parts: Parts | None = None,
) -> dict:
    """Run one trial on every rank of a gang and return, on every rank, how it ended.

    Rank 0 writes settings.json, checkpoint.pt, the artifact, clock.json, curve.jsonl and result.json into ``folder``.
    ``report(point)`` is called on rank 0 at most about ``runtime.log_points`` times; a string it returns is a reason to
    stop. ``enter(phase)`` is called on rank 0 as a phase begins: "data", "compile", "train", "validate", "export",
    "score", and those that ``parts`` enter (None: the baseline's parts, which enter none). The result is {"kind":
    "scored" | "infeasible" | "diverged" | "stopped", "reason", "metrics", "phases" (seconds), "artifact" (name of the
    file), "artifact_sha256", "fidelity"}. Errors in settings or data are raised.
    """
    folder, leads = pathlib.Path(folder), gang.rank == 0
    parts = parts or Parts()
    training_settings = parts.training_settings(settings)
    phases = Phases(enter if leads else None)
    phases.begin("data")
    if leads:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "settings.json", settings_to_json(settings).encode())
    data_folder = pathlib.Path(settings.data.folder)
    stream = TokenStream(list_shards(data_folder, "train"))
    validation = load_validation_tokens(list_shards(data_folder, "val"), settings.batch.seq_len)
    table = load_byte_table(settings.data.tokenizer, settings.model.vocab_size)
    clock = Clock(gang, load_trace(settings.clock_trace))

    phases.begin("compile")
    runtime = choose_runtime(settings, gang)
    prepare_device(gang, runtime.dtype)
    if leads:
        print(f"golfray: {runtime.description}, {gang.world_size} rank(s)", flush=True)
    torch.manual_seed(settings.runtime.seed)
    model = build_model(settings.model, runtime.dtype, gang.device)
    on_cuda = gang.device.type == "cuda"
    loss_of = torch.compile(model, dynamic=False, fullgraph=True) if runtime.compiled else model
    compile_muon = runtime.compiled and on_cuda
    newton_schulz = torch.compile(orthogonalize, dynamic=False, fullgraph=True) if compile_muon else orthogonalize
    optimizers = Optimizers(model, settings, gang, newton_schulz)
    trainer = Trainer(model, loss_of, optimizers, stream, training_settings, gang)
    trainer.warm_up(max(settings.schedule.warmup_steps, int(runtime.compiled)))
    parts.begin(model)

    phases.begin("train")
    graphs_before = count_graphs() if runtime.compiled else 0
    training = trainer.run(clock, report, parts.after_step)
    # float16 is what the container keeps small tensors and row scales in.
    fits = all(bool(torch.isfinite(parameter.detach().half()).all()) for parameter in model.parameters())
    if training.diverged is None and not fits:
        training.diverged = f"weights are not finite, or beyond float16, after step {training.steps}"
    metrics = training_metrics(training, settings, stream)
    metrics["train/recompiles"] = float(count_graphs() - graphs_before) if runtime.compiled else 0.0
    if leads:
        write_atomically(folder / "clock.json", json.dumps({"readings_s": clock.readings}).encode())
        lines = "".join(json.dumps(finite_or_text(point)) + "\n" for point in training.curve)
        write_atomically(folder / "curve.jsonl", lines.encode())

    kind, reason, artifact, digest = "scored", "", None, None
    score = functools.partial(score_model, loss_of if on_cuda else model, validation, table, settings.batch, gang)
    if training.diverged is not None:
        kind, reason = "diverged", training.diverged
    elif training.stopped:
        kind, reason = "stopped", training.stop_reason or ""
    else:
        phases.begin("validate")
        metrics |= parts.end(score)
        if leads:
            buffer = io.BytesIO()
            torch.save(model.state_dict(), buffer)
            write_atomically(folder / CHECKPOINT_NAME, buffer.getvalue())
        before = score()
        metrics |= {"bpb/prequant": before.bits_per_byte, "val_loss/prequant": before.loss}
        parts.calibrate(stream, phases.begin)
        phases.begin("export")
        content = b""
        if leads:
            path = folder / parts.artifact_name
            write_atomically(path, export_checkpoint(folder / CHECKPOINT_NAME, settings, parts))
            content = path.read_bytes()
        content = gang.broadcast_bytes(content)
        phases.begin("score")
        model.load_state_dict(parts.load_artifact(content))
        after = score()
        metrics |= {"bpb/roundtrip": after.bits_per_byte, "val_loss/roundtrip": after.loss}
        metrics |= artifact_metrics(len(content), settings)
        artifact, digest = parts.artifact_name, sha256_hex(content)
        kind, reason = judge(after.bits_per_byte, metrics["bytes/margin"], settings.cap_bytes)
        metrics |= parts.evaluate(validation, table, phases.begin)
    phases.begin("")
    result = {
        "kind": kind,
        "reason": reason,
        "metrics": metrics,
        "phases": phases.seconds,
        "artifact": artifact,
        "artifact_sha256": digest,
        "fidelity": fidelity(settings, gang, runtime.dtype, runtime.compiled),
    }
    result = json.loads(gang.broadcast_bytes(json.dumps(result).encode()))
    if leads:
        write_atomically(folder / "result.json", json.dumps(finite_or_text(result), indent=1).encode())
    return result


def judge(bits_per_byte: float, margin: float, cap_bytes: int) -> tuple[str, str]:
    """Kind and reason of a finished trial: a score counts only if it is finite and the artifact fits under the cap."""
    if not math.isfinite(bits_per_byte):
        return "diverged", f"bpb/roundtrip is {bits_per_byte}"
    if margin < 0:
        return "infeasible", f"bytes/total is {-margin:.0f} over the cap of {cap_bytes}"
    return "scored", f"fits under the cap of {cap_bytes} with {margin:.0f} bytes to spare"


def training_metrics(training: Training, settings: RunSettings, stream: TokenStream) -> dict[str, float]:
    """What the training phase is remembered by."""
    tokens = training.steps * settings.batch.tokens
    return {
        "train/loss": training.loss,
        "train/steps": float(training.steps),
        "train/tokens": float(tokens),
        "train/seconds": training.seconds,
        "train/step_ms": 1000.0 * training.seconds / max(training.steps, 1),
        "train/tokens_per_s": tokens / max(training.seconds, 1e-9),
        "train/data_passes": tokens / stream.total_tokens,
    }


def artifact_metrics(bytes_model: int, settings: RunSettings) -> dict[str, float]:
    """Sizes in bytes; margin is what is left under the cap, negative when over."""
    total = settings.bytes_code + bytes_model
    return {
        "bytes/code": float(settings.bytes_code),
        "bytes/model": float(bytes_model),
        "bytes/total": float(total),
        "bytes/margin": float(settings.cap_bytes - total),
    }


def fidelity(settings: RunSettings, gang: Gang, dtype: torch.dtype, compiled: bool) -> dict:
    """What must be equal for two scores to be comparable, as far as the machine decides it."""
    device = torch.cuda.get_device_name(gang.device) if gang.device.type == "cuda" else "cpu"
    stop = "steps" if settings.stop.seconds is None else "replayed" if settings.clock_trace else "wallclock"
    return {
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "compiled": compiled,
        "workers": gang.world_size,
        "threads": torch.get_num_threads(),
        "stop": stop,
    }


def finite_or_text(value: object) -> object:
    """A copy in which floats that strict JSON cannot hold are the texts "nan", "inf" and "-inf"."""
    if isinstance(value, dict):
        return {key: finite_or_text(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite_or_text(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
