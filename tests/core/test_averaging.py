"""EMA against the reference's numbers, SWA against means taken by hand, both over real and made-up runs."""

import dataclasses
import math
import pathlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golfray.core.averaging import ExponentialAverage, SnapshotAverage, make_averager, passes_multiple
from golfray.core.clock import Clock
from golfray.core.loop import Trainer
from golfray.core.model import build_model
from golfray.core.optimizers import Optimizers
from golfray.core.settings import AveragingSettings, RunSettings, ScheduleSettings, StopSettings
from golfray.core.shards import TokenStream, list_shards
from golfray.selftest.inputs import formula_values


class Weights(torch.nn.Module):
    """A matrix in float32 and a vector in bfloat16, as the frontier's models mix them."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(3))
        self.b = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))

    def set_to(self, k_w: int, k_b: int) -> None:
        with torch.no_grad():
            self.w.copy_(torch.from_numpy(formula_values(k_w, 3)).float())
            self.b.copy_(torch.from_numpy(formula_values(k_b, 2)).float().to(torch.bfloat16))


class Single(torch.nn.Module):
    """One weight, set by hand."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([value]))

    def set_to(self, value: float) -> None:
        with torch.no_grad():
            self.w.fill_(value)


# Of the vector "ema" (the statement of R33): after each of three steps, and the last b in bfloat16.
EMA_W = (
    (-0.6617884635925293, 0.39457958936691284, 0.9984838962554932),
    (-0.6581622362136841, 0.3966928720474243, 0.9966608285903931),
    (-0.6534636616706848, 0.39863455295562744, 0.9936190247535706),
)
EMA_B = (
    (-0.34522753953933716, 0.6994922161102295),
    (-0.34053289890289307, 0.6987735033035278),
    (-0.33599144220352173, 0.6968439221382141),
)
EMA_B_STORED = (-0.3359375, 0.6953125)


def run_settings(steps: int | None = 100, seconds: float | None = None, **averaging: object) -> RunSettings:
    return RunSettings(
        schedule=ScheduleSettings(warmdown_share=0.5),
        stop=StopSettings(steps=steps, seconds=seconds),
        averaging=AveragingSettings(**{"ema_window_share": None, "swa_every_share": None, **averaging}),
    )


def test_ema_of_the_reference() -> None:
    model = Weights()
    model.set_to(31, 32)
    ema = make_averager(model, run_settings(method="ema", ema_decay=0.9965))
    for step in range(3):
        model.set_to(33 + step, 36 + step)
        ema.after_step(step + 1, 0.0)
        state = ema.averaged()
        assert {tensor.dtype for tensor in state.values()} == {torch.float32}
        assert state["w"].tolist() == pytest.approx(EMA_W[step], abs=1e-6)
        assert state["b"].tolist() == pytest.approx(EMA_B[step], abs=1e-6)
    model.load_state_dict(ema.averaged())
    assert model.b.dtype == torch.bfloat16
    assert tuple(model.b.tolist()) == EMA_B_STORED


@given(steps=st.integers(1, 60), share=st.floats(0.01, 1.0))
def test_a_window_counts_the_run_not_its_steps(steps: int, share: float) -> None:
    """The initial weight has faded to exp(-1 / share) at the end, however many steps that took."""
    model = Single(1.0)
    ema = ExponentialAverage(model, run_settings(steps=steps, method="ema", ema_window_share=share))
    model.set_to(0.0)
    for step in range(steps):
        ema.after_step(step + 1, 0.0)
    assert float(ema.averaged()["w"]) == pytest.approx(math.exp(-1 / share), rel=1e-4, abs=1e-12)


@given(cuts=st.lists(st.floats(0.0, 30.0), max_size=20))
def test_a_window_goes_by_the_clock_where_the_run_does(cuts: list[float]) -> None:
    model = Single(1.0)
    ema = ExponentialAverage(model, run_settings(steps=None, seconds=30.0, method="ema", ema_window_share=0.5))
    model.set_to(0.0)
    # The last reading is a little late, as they are.
    for step, elapsed in enumerate([*sorted(cuts), 30.5]):
        ema.after_step(step + 1, elapsed)
    assert float(ema.averaged()["w"]) == pytest.approx(math.exp(-2.0), rel=1e-4)


def test_a_step_weighs_what_it_took() -> None:
    model = Single(0.0)
    ema = ExponentialAverage(model, run_settings(steps=None, seconds=10.0, method="ema", ema_window_share=0.1))
    model.set_to(1.0)
    ema.after_step(1, 2.0)
    assert float(ema.averaged()["w"]) == pytest.approx(1 - math.exp(-2.0), abs=1e-6)
    ema.after_step(2, 2.0)
    assert float(ema.averaged()["w"]) == pytest.approx(1 - math.exp(-2.0), abs=1e-6)


def snapshots_of(settings: RunSettings, steps: int, seconds_a_step: float = 0.0) -> list[int]:
    """The steps after which snapshots were taken: the weight is a power of two that names its step."""
    model = Single()
    swa = SnapshotAverage(model, settings)
    taken = []
    for step in range(1, steps + 1):
        model.set_to(float(step))
        before = float(swa.total[0])
        swa.after_step(step, step * seconds_a_step)
        if float(swa.total[0]) != before:
            taken.append(step)
    assert swa.metrics() == {"averaging/snapshots": float(len(taken))}
    if len(taken) < 2:
        assert swa.averaged() is None
    else:
        assert float(swa.averaged()["w"]) == pytest.approx(sum(taken) / len(taken), rel=1e-6)
    return taken


def test_snapshots_every_so_many_steps_below_a_multiplier() -> None:
    """Warmdown is the last half: the multiplier of 0-based step s is (100 - s) / 50, below a half from s = 76 on."""
    settings = run_settings(method="swa", swa_start_multiplier=0.5, swa_every_steps=5)
    assert snapshots_of(settings, 100) == [80, 85, 90, 95, 100]
    assert snapshots_of(run_settings(method="swa", swa_start_multiplier=0.5, swa_every_steps=1), 100)[0] == 77


def test_snapshots_by_shares_are_the_same_whatever_the_number_of_steps() -> None:
    for steps in (40, 100, 1000):
        settings = run_settings(steps=steps, method="swa", swa_start_share=0.2, swa_every_share=0.05)
        assert [step / steps for step in snapshots_of(settings, steps)] == [0.8, 0.85, 0.9, 0.95, 1.0]


def test_snapshots_by_shares_of_the_time() -> None:
    settings = run_settings(steps=None, seconds=10.0, method="swa", swa_start_share=0.4, swa_every_share=0.1)
    # Four steps a second and a half: the first at or after each tenth of the ten seconds.
    assert snapshots_of(settings, 27, 0.375) == [16, 19, 22, 24, 27]


def test_a_run_that_ends_before_the_start_has_no_average() -> None:
    assert snapshots_of(run_settings(method="swa", swa_start_multiplier=0.5, swa_every_steps=50), 60) == []
    assert snapshots_of(run_settings(method="swa", swa_start_multiplier=0.5, swa_every_steps=80), 100) == [80]


@given(st.integers(1, 500), st.integers(1, 100))
def test_each_multiple_is_passed_once(steps: int, parts: int) -> None:
    passed = [passes_multiple(step / steps, (step + 1) / steps, 1 / parts) for step in range(steps)]
    assert passed[-1]
    assert sum(passed) == min(steps, parts)


def test_no_average_and_no_such_average() -> None:
    assert make_averager(Single(), run_settings()) is None
    with pytest.raises(ValueError, match=r"averaging\.method must be none, ema or swa, got 'mean'"):
        make_averager(Single(), run_settings(method="mean"))


def test_a_real_run_is_averaged_once_a_step_from_its_initial_weights(tiny_settings, alone) -> None:
    """The warm-up before it leaves no trace in the average, and the last step is in it."""
    settings = tiny_settings(
        averaging={"method": "ema", "ema_decay": 0.7, "ema_window_share": None}, schedule={"warmup_steps": 2}
    )
    torch.manual_seed(settings.runtime.seed)
    model = build_model(settings.model, torch.float32, alone.device)
    stream = TokenStream(list_shards(pathlib.Path(settings.data.folder), "train"))
    trainer = Trainer(model, model, Optimizers(model, settings, alone), stream, settings, alone)
    initial = model.tok_emb.weight.detach().clone()
    trainer.warm_up(2)
    ema = ExponentialAverage(model, settings)
    seen = []

    def after_step(steps: int, seconds: float) -> None:
        seen.append((steps, seconds, model.tok_emb.weight.detach().clone()))
        ema.after_step(steps, seconds)

    training = trainer.run(Clock(alone), None, after_step)
    assert [steps for steps, _, _ in seen] == list(range(1, training.steps + 1)) == list(range(1, 13))
    assert torch.equal(seen[-1][2], model.tok_emb.weight)
    expected = initial.double()
    for _, _, weight in seen:
        expected = 0.7 * expected + 0.3 * weight.double()
    assert torch.allclose(ema.averaged()["tok_emb.weight"].double(), expected, atol=1e-6)
    assert ema.averaged().keys() == model.state_dict().keys()


def test_settings_say_which(tiny_settings) -> None:
    base = run_settings(method="ema")
    assert isinstance(make_averager(Single(), base), ExponentialAverage)
    swa = dataclasses.replace(base, averaging=AveragingSettings(method="swa"))
    assert isinstance(make_averager(Single(), swa), SnapshotAverage)
