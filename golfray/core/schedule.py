"""What the optimizers are told as the run goes on: learning-rate multiplier and Muon momentum (sections 3.2, 3.3)."""

from golfray.core.settings import MuonSettings, ScheduleSettings, StopSettings


def run_progress(stop: StopSettings, step: int, elapsed_s: float) -> float:
    """Share of the run that is over, in [0, 1]: by time where a time is set, else by steps."""
    if stop.seconds is not None:
        return min(elapsed_s / stop.seconds, 1.0)
    assert stop.steps is not None
    return min(step / stop.steps, 1.0)


def is_over(stop: StopSettings, step: int, elapsed_s: float) -> bool:
    """Whether the run ends before step number ``step`` (0-based) starts."""
    return (stop.steps is not None and step >= stop.steps) or (stop.seconds is not None and elapsed_s >= stop.seconds)


def reference_multiplier(
    step: int, elapsed_ms: float, iterations: int, warmdown_steps: int, max_wallclock_ms: float | None
) -> float:
    """The baseline's learning-rate multiplier, whose warmdown is counted in steps (section 3.3).

    With a time limit the steps are turned into time by the mean step so far, so the decay ends when time does.
    """
    if warmdown_steps <= 0:
        return 1.0
    if max_wallclock_ms is None:
        start = max(iterations - warmdown_steps, 0)
        return 1.0 if step < start else max((iterations - step) / max(warmdown_steps, 1), 0.0)
    warmdown_ms = warmdown_steps * elapsed_ms / max(step, 1)
    rest_ms = max(max_wallclock_ms - elapsed_ms, 0.0)
    return 1.0 if rest_ms > warmdown_ms else rest_ms / max(warmdown_ms, 1e-9)


def share_multiplier(progress: float, warmdown_share: float) -> float:
    """1 until the last ``warmdown_share`` of the run, then linear to 0 at its end."""
    return min(1.0, max(1.0 - progress, 0.0) / warmdown_share)


def lr_multiplier(schedule: ScheduleSettings, stop: StopSettings, step: int, elapsed_s: float) -> float:
    """Factor on every base learning rate at 0-based step ``step``, never under ``lr_floor`` once it decays."""
    if schedule.warmdown_share is not None:
        multiplier = share_multiplier(run_progress(stop, step, elapsed_s), schedule.warmdown_share)
    else:
        limit_ms = None if stop.seconds is None else 1000.0 * stop.seconds
        iterations = 0 if stop.steps is None else stop.steps
        multiplier = reference_multiplier(step, 1000.0 * elapsed_s, iterations, schedule.warmdown_steps, limit_ms)
    return max(multiplier, schedule.lr_floor)


def reference_momentum(step: int, start: float, end: float, warmup_steps: int) -> float:
    """Linear from ``start`` to ``end`` over ``warmup_steps`` steps (section 3.2)."""
    fraction = min(step / warmup_steps, 1.0) if warmup_steps else 1.0
    return (1.0 - fraction) * start + fraction * end


def muon_momentum(muon: MuonSettings, stop: StopSettings, step: int, elapsed_s: float) -> float:
    """Muon's momentum at 0-based step ``step``: by share of the run where a share is set, else by steps."""
    if muon.momentum_warmup_share is None:
        return reference_momentum(step, muon.momentum_start, muon.momentum_end, muon.momentum_warmup_steps)
    fraction = min(run_progress(stop, step, elapsed_s) / muon.momentum_warmup_share, 1.0)
    return (1.0 - fraction) * muon.momentum_start + fraction * muon.momentum_end
