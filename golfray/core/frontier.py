"""The steps of a trial beyond the baseline's: averaged weights, the flat export with GPTQ, sliding windows."""

import dataclasses
import time
from collections.abc import Callable, Iterator

import numpy
import torch

from golfray.core.averaging import Averager, make_averager
from golfray.core.byte_table import ByteTable
from golfray.core.codec import codec_module
from golfray.core.exporter import export_state, load_artifact
from golfray.core.gang import Gang
from golfray.core.gptq import collect_hessians
from golfray.core.model import GPT
from golfray.core.score import Score
from golfray.core.settings import ExportSettings, RunSettings, StopSettings
from golfray.core.shards import TokenStream
from golfray.core.sliding import score_sliding
from golfray.core.trial import Parts

FLAT_ARTIFACT = "final_model.flat"


def training_stop(settings: RunSettings) -> StopSettings:
    """Where training ends: ``export.gptq_reserve_seconds`` before a run's time is over, if GPTQ is to calibrate in it.

    Raises ``ValueError`` where no time to train is left.
    """
    stop, reserve = settings.stop, settings.export.gptq_reserve_seconds
    if not settings.export.gptq or stop.seconds is None:
        return stop
    if reserve >= stop.seconds:
        raise ValueError(f"export.gptq_reserve_seconds must be < stop.seconds ({stop.seconds:g}), got {reserve:g}")
    return dataclasses.replace(stop, seconds=stop.seconds - reserve)


def calibration_batches(settings: RunSettings, stream: TokenStream, device: torch.device) -> Iterator[torch.Tensor]:
    """The first ``export.gptq_batches`` micro-batches of the training tokens: int64 (sequences, seq_len)."""
    batch = settings.batch
    for number in range(settings.export.gptq_batches):
        yield stream.slice_batch(number, batch.tokens // batch.slices, batch.seq_len)[0].to(device)


class FrontierParts(Parts):
    """All that the settings may ask for. Raises ``ImportError`` where the codec is not installed: before training."""

    def __init__(self, settings: RunSettings, gang: Gang) -> None:
        codec_module(settings.export.codec)
        self.settings, self.gang = settings, gang
        self.averager: Averager | None = None
        self.hessians: dict[str, torch.Tensor] = {}
        self.flat = settings.export.format == "flat"
        if self.flat:
            self.artifact_name = FLAT_ARTIFACT

    def training_settings(self, settings: RunSettings) -> RunSettings:
        """The settings, with the end that leaves time for calibration. Raises ``ValueError`` on what is not core's."""
        if settings.export.search is not None:
            raise ValueError("export.search is for golfray train and tune; without them set it to null")
        return dataclasses.replace(settings, stop=training_stop(settings))

    def begin(self, model: GPT) -> None:
        """Begin to average, from the initial weights."""
        self.model = model
        self.averager = make_averager(model, self.training_settings(self.settings))

    def after_step(self, steps: int, seconds: float) -> None:
        """Take in the weights."""
        if self.averager is not None:
            self.averager.after_step(steps, seconds)

    def end(self, score: Callable[[], Score]) -> dict[str, float]:
        """Put the average in the place of the live weights, whose score is ``bpb/live`` and ``val_loss/live``.

        Fewer than two snapshots are no average: then the live weights stay, and ``averaging/snapshots`` says so.
        """
        if self.averager is None:
            return {}
        live, averaged = score(), self.averager.averaged()
        if averaged is not None:
            self.model.load_state_dict(averaged)
        return {"bpb/live": live.bits_per_byte, "val_loss/live": live.loss, **self.averager.metrics()}

    def calibrate(self, stream: TokenStream, enter: Callable[[str], None]) -> None:
        """Collect Hessians over :func:`calibration_batches`, if GPTQ is asked for.

        Rank 0 alone does it, since it alone exports; so the result is the same on any number of ranks.
        """
        settings, device = self.settings, self.gang.device
        if not settings.export.gptq:
            return
        enter("calibrate")
        if self.gang.rank:
            return
        begun = time.perf_counter()
        self.hessians = collect_hessians(self.model, calibration_batches(settings, stream, device))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken, reserve = time.perf_counter() - begun, settings.export.gptq_reserve_seconds
        if settings.stop.seconds is not None and 0 < reserve < taken:
            print(f"golfray: calibration took {taken:.1f} s, export.gptq_reserve_seconds were {reserve:g}", flush=True)

    def export_state(self, state: dict[str, torch.Tensor], export: ExportSettings) -> bytes:
        """The artifact's bytes in the format that is asked for; says which integers GPTQ had no Hessian for."""
        if not self.flat:
            return super().export_state(state, export)
        return export_state(state, export, self.hessians, lambda line: print(f"golfray: {line}", flush=True))

    def load_artifact(self, content: bytes) -> dict[str, torch.Tensor]:
        """The state dict inside an artifact of the format that is asked for."""
        return load_artifact(content) if self.flat else super().load_artifact(content)

    def evaluate(self, validation: numpy.ndarray, table: ByteTable, enter: Callable[[str], None]) -> dict[str, float]:
        """``bpb/sliding`` and ``val_loss/sliding``, on the tokens that the score is computed on.

        Where ``evaluation.sliding_seconds`` end it early they are left out, and ``sliding/scored_share`` is below 1:
        the trial keeps its score, which does not depend on this.
        """
        evaluation, batch = self.settings.evaluation, self.settings.batch
        if evaluation.sliding_stride is None:
            return {}
        enter("sliding")
        logits_of = self.model.logits
        if self.gang.device.type == "cuda":
            logits_of = torch.compile(logits_of, dynamic=False, fullgraph=True)
        at_once = max(batch.val_tokens // batch.slices // batch.seq_len, 1)
        score, share = score_sliding(
            logits_of,
            validation,
            table,
            batch.seq_len,
            evaluation.sliding_stride,
            at_once,
            self.gang,
            evaluation.sliding_seconds,
        )
        metrics = {"sliding/scored_share": share}
        if score is not None:
            metrics |= {"bpb/sliding": score.bits_per_byte, "val_loss/sliding": score.loss}
        return metrics
