"""The training loop: gradient accumulation, one clock, the warm-up that leaves no trace (sections 3.2 to 3.4)."""

import copy
import dataclasses
import math
from collections.abc import Callable

import torch

from golfray.core.clock import Clock
from golfray.core.gang import Gang
from golfray.core.model import GPT
from golfray.core.muon import gradient_of
from golfray.core.optimizers import Optimizers
from golfray.core.schedule import is_over, lr_multiplier, muon_momentum, run_progress
from golfray.core.settings import RunSettings
from golfray.core.shards import TokenStream

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Report = Callable[[dict[str, float]], str | None]


@dataclasses.dataclass
class Training:
    """How far a run came: steps done, training seconds, last mean loss, curve, and why it ended early if it did."""

    steps: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    curve: list[dict[str, float]] = dataclasses.field(default_factory=list)
    stop_reason: str | None = None
    stopped: bool = False
    diverged: str | None = None


class Trainer:
    """One rank's share of a run. Micro-batch m of step s on rank r is slice s * slices + m * W + r of the stream."""

    def __init__(
        self,
        model: GPT,
        loss_of: LossFunction,
        optimizers: Optimizers,
        stream: TokenStream,
        settings: RunSettings,
        gang: Gang,
    ) -> None:
        if settings.batch.slices % gang.world_size:
            raise ValueError(f"batch.slices {settings.batch.slices} is not divisible by {gang.world_size} ranks")
        self.model, self.loss_of, self.optimizers, self.stream = model, loss_of, optimizers, stream
        self.settings, self.gang = settings, gang

    def step(self, step: int, multiplier: float, momentum: float) -> torch.Tensor:
        """One optimizer step on the mean gradient of all slices; returns this rank's mean loss, a float32 scalar."""
        batch, gang = self.settings.batch, self.gang
        micro_steps = batch.slices // gang.world_size
        total = torch.zeros((), device=gang.device)
        for micro_step in range(micro_steps):
            number = step * batch.slices + micro_step * gang.world_size + gang.rank
            inputs, targets = self.stream.slice_batch(number, batch.tokens // batch.slices, batch.seq_len)
            loss = self.loss_of(inputs.to(gang.device, non_blocking=True), targets.to(gang.device, non_blocking=True))
            (loss / micro_steps).backward()
            total += loss.detach() / micro_steps
        average_gradients(self.optimizers.parameters, gang)
        self.optimizers.step(multiplier, momentum)
        return total

    def warm_up(self, steps: int) -> None:
        """Run complete steps on the real stream at base rates and end momentum, then put everything back."""
        before = copy.deepcopy(self.model.state_dict())
        for step in range(steps):
            self.step(step, 1.0, self.settings.muon.momentum_end)
        self.model.load_state_dict(before)
        self.optimizers.reset()
        if self.gang.device.type == "cuda":
            torch.cuda.synchronize(self.gang.device)

    def run(
        self, clock: Clock, report: Report | None, after_step: Callable[[int, float], None] | None = None
    ) -> Training:
        """Train until the clock or the number of steps says so, a report asks to stop, or the loss is not finite.

        ``after_step(steps, seconds)`` is called once a step, when the clock has been read, which counts its time.
        """
        settings, result = self.settings, Training()
        last_mark, loss = 0, torch.zeros((), device=self.gang.device)
        clock.start()
        while True:
            result.seconds, asked_to_stop = clock.read(result.stop_reason is not None)
            if after_step and result.steps:
                after_step(result.steps, result.seconds)
            over = is_over(settings.stop, result.steps, result.seconds)
            result.stopped = asked_to_stop and not over
            over = over or asked_to_stop
            progress = run_progress(settings.stop, result.steps, result.seconds)
            mark = int(progress * settings.runtime.log_points + 1e-9)
            if result.steps and (over or mark > last_mark):
                clock.pause()
                last_mark = mark
                self.note(result, loss, report)
                clock.start()
            if over or result.diverged:
                break
            multiplier = lr_multiplier(settings.schedule, settings.stop, result.steps, result.seconds)
            momentum = muon_momentum(settings.muon, settings.stop, result.steps, result.seconds)
            loss = self.step(result.steps, multiplier, momentum)
            result.steps += 1
        clock.pause()
        return result

    def note(self, result: Training, loss: torch.Tensor, report: Report | None) -> None:
        """Average the last loss over ranks, add a point to the curve, tell rank 0's listener."""
        settings, step = self.settings, result.steps
        result.loss = float(self.gang.sum(loss.clone())) / self.gang.world_size
        if not math.isfinite(result.loss):
            result.diverged = f"training loss is {result.loss} at step {step}"
        point = {
            "step": float(step),
            "elapsed_s": result.seconds,
            "train/loss": result.loss,
            "train/lr_multiplier": lr_multiplier(settings.schedule, settings.stop, step, result.seconds),
            "train/muon_momentum": muon_momentum(settings.muon, settings.stop, step, result.seconds),
            "train/step_ms": 1000.0 * result.seconds / step,
            "train/tokens_per_s": step * settings.batch.tokens / max(result.seconds, 1e-9),
        }
        result.curve.append(point)
        if report is not None and self.gang.rank == 0:
            result.stop_reason = report(point) or result.stop_reason


def average_gradients(parameters: list[torch.nn.Parameter], gang: Gang) -> None:
    """Replace every gradient by its mean over ranks, one flat message a dtype.

    Skip weights of a model with one layer have no elements and no gradient.
    """
    if gang.world_size == 1:
        return
    for dtype in dict.fromkeys(parameter.dtype for parameter in parameters):
        gradients = [
            gradient_of(parameter) for parameter in parameters if parameter.dtype == dtype and parameter.numel()
        ]
        flat = gang.sum(torch.cat([gradient.flatten() for gradient in gradients])) / gang.world_size
        pieces = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [piece.view_as(g) for piece, g in zip(pieces, gradients, strict=True)])
