"""Weights averaged over the steps of a run: exponentially (EMA), or as the mean of snapshots (SWA).

Section 4 of the frontier switches. Both take every entry of the model's state, and take it in float32. They look the
entries up once: training changes weights in place.
"""

import math

import torch

from golfray.core.schedule import lr_multiplier, run_progress
from golfray.core.settings import RunSettings


class ExponentialAverage:
    """e <- d e + (1 - d) w after each step, from the weights that it is made with, without bias correction.

    d is ``ema_decay``; with a window as a share of the run, d = exp(-(share of the run the step took) / window), so
    that the weights of a step fade with the time since, whatever the speed of the machine.
    """

    def __init__(self, model: torch.nn.Module, settings: RunSettings) -> None:
        self.settings = settings
        self.live = model.state_dict()
        self.average = [tensor.float().clone() for tensor in self.live.values()]
        self.progress = 0.0

    @torch.no_grad()
    def after_step(self, steps: int, elapsed_s: float) -> None:
        """Take in the weights after ``steps`` steps, ``elapsed_s`` seconds into the run."""
        averaging = self.settings.averaging
        progress = run_progress(self.settings.stop, steps, elapsed_s)
        decay = averaging.ema_decay
        if averaging.ema_window_share is not None:
            decay = math.exp((self.progress - progress) / averaging.ema_window_share)
        self.progress = progress
        torch._foreach_mul_(self.average, decay)
        torch._foreach_add_(self.average, in_float32(self.live), alpha=1.0 - decay)

    def averaged(self) -> dict[str, torch.Tensor] | None:
        """The averaged state, float32."""
        return dict(zip(self.live, self.average, strict=True))

    def metrics(self) -> dict[str, float]:
        """Nothing: how much of the run counts is a setting."""
        return {}


class SnapshotAverage:
    """The plain mean of snapshots, taken every so many steps, or shares of the run, from a start on.

    It starts where the learning-rate multiplier of the step just taken is below ``swa_start_multiplier``, or with the
    last ``swa_start_share`` of the run.
    """

    def __init__(self, model: torch.nn.Module, settings: RunSettings) -> None:
        self.settings = settings
        self.live = model.state_dict()
        self.total = [torch.zeros_like(tensor, dtype=torch.float32) for tensor in self.live.values()]
        self.count = 0
        self.progress, self.multiplier = 0.0, lr_multiplier(settings.schedule, settings.stop, 0, 0.0)

    @torch.no_grad()
    def after_step(self, steps: int, elapsed_s: float) -> None:
        """Take a snapshot of the weights after ``steps`` steps, ``elapsed_s`` seconds in, where one is due."""
        averaging = self.settings.averaging
        progress = run_progress(self.settings.stop, steps, elapsed_s)
        begun = self.multiplier < averaging.swa_start_multiplier
        if averaging.swa_start_share is not None:
            begun = progress >= 1.0 - averaging.swa_start_share
        due = steps % averaging.swa_every_steps == 0
        if averaging.swa_every_share is not None:
            due = passes_multiple(self.progress, progress, averaging.swa_every_share)
        if begun and due:
            torch._foreach_add_(self.total, in_float32(self.live))
            self.count += 1
        self.progress = progress
        self.multiplier = lr_multiplier(self.settings.schedule, self.settings.stop, steps, elapsed_s)

    def averaged(self) -> dict[str, torch.Tensor] | None:
        """The mean of the snapshots, float32; None where there are fewer than two, which are no average."""
        if self.count < 2:
            return None
        return {name: total / self.count for name, total in zip(self.live, self.total, strict=True)}

    def metrics(self) -> dict[str, float]:
        """How many snapshots were taken."""
        return {"averaging/snapshots": float(self.count)}


Averager = ExponentialAverage | SnapshotAverage


def make_averager(model: torch.nn.Module, settings: RunSettings) -> Averager | None:
    """The averager that the settings ask for, beginning with the model's weights as they are; None for none.

    Raises ``ValueError`` on a method that there is not.
    """
    method = settings.averaging.method
    if method == "none":
        return None
    if method == "ema":
        return ExponentialAverage(model, settings)
    if method == "swa":
        return SnapshotAverage(model, settings)
    raise ValueError(f"averaging.method must be none, ema or swa, got {method!r}")


def in_float32(state: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Every entry of a state in float32, in order."""
    return [tensor.float() for tensor in state.values()]


def passes_multiple(before: float, now: float, share: float) -> bool:
    """Whether a multiple of ``share`` lies in (before, now], up to the rounding of shares that should be whole."""
    return math.floor(now / share + 1e-9) > math.floor(before / share + 1e-9)
