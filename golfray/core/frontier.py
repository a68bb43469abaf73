"""The steps of a trial beyond the baseline's: averaged weights, evaluation by sliding windows."""

from collections.abc import Callable

import numpy
import torch

from golfray.core.averaging import Averager, make_averager
from golfray.core.byte_table import ByteTable
from golfray.core.gang import Gang
from golfray.core.model import GPT
from golfray.core.score import Score
from golfray.core.settings import RunSettings
from golfray.core.sliding import score_sliding
from golfray.core.trial import Parts


class FrontierParts(Parts):
    """All that the settings may ask for. The reference's export is inherited; other formats are put in here."""

    def __init__(self, settings: RunSettings, gang: Gang) -> None:
        self.settings, self.gang = settings, gang
        self.averager: Averager | None = None

    def training_settings(self, settings: RunSettings) -> RunSettings:
        """The settings as they are: nothing of them is out of reach here."""
        return settings

    def begin(self, model: GPT) -> None:
        """Begin to average, from the initial weights."""
        self.model = model
        self.averager = make_averager(model, self.settings)

    def after_step(self, steps: int, seconds: float) -> None:
        """Take in the weights."""
        if self.averager is not None:
            self.averager.after_step(self.model, steps, seconds)

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
