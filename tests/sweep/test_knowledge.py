"""What a study has taught about its knobs, against numbers worked out by hand."""

import dataclasses
import itertools
import math

import numpy
import pytest

from golfray.sweep.additive_model import fit_additive
from golfray.sweep.knob_bins import bins_of
from golfray.sweep.knobs import Choice, FloatRange, IntRange, Knob
from golfray.sweep.knowledge import LEAST_RUNS, known_of
from golfray.sweep.outcome import Kind
from golfray.sweep.outcome_rates import wilson
from tests.sweep.knob_studies import CHOICES, RATE, KnobStudy, knobs_of

ONE_WAY = numpy.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
GROUPS = numpy.repeat(numpy.eye(2), 3, axis=0)
MEAN = numpy.ones((6, 1))


def test_effects_of_two_groups_are_shrunk_as_the_ratio_says() -> None:
    """Means 2 and 5 around 3.5, each of three runs: 3 r / (1 + 3 r) of 1.5 is left, with r = 2 six sevenths."""
    fit = fit_additive(ONE_WAY, GROUPS, MEAN, ratio=2.0)
    assert fit.effects == pytest.approx([-1.5 * 6 / 7, 1.5 * 6 / 7])
    # Within the groups 4, between them 13.5, that by 1 + 3 r; 5 degrees of freedom.
    variance = (4 + 13.5 / 7) / 5
    assert fit.residual_sd == pytest.approx(math.sqrt(variance))
    assert fit.effect_sd == pytest.approx(math.sqrt(2 * variance))
    value, sd = fit.contrast(numpy.array([0.5, -0.5]))
    assert value == pytest.approx(-1.5 * 6 / 7)
    # Posterior variance r s^2 / (1 + 3 r) of each direction, and this one has the length 1 / sqrt(2).
    assert sd == pytest.approx(math.sqrt(variance * 2 / 7 / 2))
    assert fit.fixed == pytest.approx([3.5])


def test_the_likely_ratio_is_that_of_the_analysis_of_variance() -> None:
    """REML in a balanced layout: s^2 is the mean square within, 1; t^2 = (13.5 - 1) / 3."""
    fit = fit_additive(ONE_WAY, GROUPS, MEAN)
    assert fit.residual_sd == pytest.approx(1.0, rel=0.01)
    # The grid's steps are a factor 10^.1 in t^2.
    assert fit.effect_sd == pytest.approx(math.sqrt(12.5 / 3), rel=0.13)


def test_groups_that_differ_less_than_runs_scatter_have_no_effect() -> None:
    fit = fit_additive(numpy.array([1.0, 2.0, 3.0, 1.0, 2.1, 3.0]), GROUPS, MEAN)
    assert fit.effect_sd == 0
    assert fit.effects == pytest.approx([0, 0])


def test_without_effects_a_slope_is_that_of_least_squares() -> None:
    logs = numpy.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    scores = numpy.array([2.0, 1.97, 1.99, 1.93, 1.94, 1.9])
    fit = fit_additive(scores, GROUPS, numpy.column_stack([numpy.ones(6), logs]), ratio=0.0)
    slope, intercept = numpy.polyfit(logs, scores, 1)
    assert fit.fixed == pytest.approx([intercept, slope])
    rest = scores - intercept - slope * logs
    expected = math.sqrt(rest @ rest / 4 / (((logs - logs.mean()) ** 2).sum()))
    assert math.sqrt(fit.fixed_covariance[1, 1]) == pytest.approx(expected)


def test_slope_and_effects_are_those_of_the_whole_system_of_equations() -> None:
    """Henderson's equations, solved at once, for a layout without any symmetry."""
    generator = numpy.random.default_rng(3)
    parts = numpy.eye(4)[generator.integers(4, size=15)]
    fixed = numpy.column_stack([numpy.ones(15), generator.standard_normal(15)])
    scores = generator.standard_normal(15)
    fit = fit_additive(scores, parts, fixed, ratio=0.7)
    both = numpy.hstack([fixed, parts])
    left = both.T @ both + numpy.diag([0, 0, *([1 / 0.7] * 4)])
    solved = numpy.linalg.solve(left, both.T @ scores)
    assert numpy.concatenate([fit.fixed, fit.effects]) == pytest.approx(solved)
    covariance = numpy.linalg.inv(left) * fit.residual_sd**2
    assert fit.covariance == pytest.approx(covariance[2:, 2:])
    assert fit.fixed_covariance == pytest.approx(covariance[:2, :2])


def test_a_covariate_that_does_not_vary_is_refused() -> None:
    with pytest.raises(ValueError, match="full rank"):
        fit_additive(ONE_WAY, GROUPS, numpy.ones((6, 2)))


@pytest.mark.parametrize(
    ("count", "trials", "low", "high"),
    [
        # z = 1.959964: z^2 / (n + z^2); 1 - that; the middle one from the formula of Wilson (1927).
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (5, 10, 0.236593, 0.763407),
        (1, 1, 0.206549, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson(count: int, trials: int, low: float, high: float) -> None:
    rate = wilson(count, trials)
    assert (rate.low, rate.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
    assert rate.share == (count / trials if trials else None)


def test_wilson_refuses_what_is_no_count() -> None:
    with pytest.raises(ValueError, match="got count=3, trials=2"):
        wilson(3, 2)


@pytest.mark.parametrize(
    ("knob", "labels", "values"),
    [
        (Knob("a.b", Choice(("x", "y", True))), ("x", "y", "true"), {"x": 0, True: 2, "z": None}),
        (Knob("a.b", IntRange(4, 8)), ("4", "5", "6", "7", "8"), {4: 0, 8: 4, 9: None}),
        (Knob("a.b", FloatRange(0.0, 1.0, step=0.25)), ("0", "0.25", "0.5", "0.75", "1"), {0.75: 3, 0.3: None}),
        (Knob("a.b", FloatRange(0.01, 0.64, log=True)), ("0.01 .. 0.04", "0.04 .. 0.16", "0.16 .. 0.64"), {0.05: 1}),
        (
            Knob("a.b", FloatRange(0.005, 0.135, log=True), or_zero=True),
            ("0", "0.005 .. 0.015", "0.015 .. 0.045", "0.045 .. 0.135"),
            {0.0: 0, 0.005: 1, 0.1: 3},
        ),
        # 1 - value from .001 to .064: a third each is a factor 4 in the distance from 1.
        (
            Knob("a.b", FloatRange(0.936, 0.999, log=True), complement=True),
            ("0.936 .. 0.984", "0.984 .. 0.996", "0.996 .. 0.999"),
            {0.95: 0, 0.99: 1, 0.998: 2},
        ),
        (Knob("a.b", IntRange(1, 16, log=True)), ("1 .. 2.52", "2.52 .. 6.35", "6.35 .. 16"), {2: 0, 4: 1, 16: 2}),
        (Knob("a.b", FloatRange(0.0, 3.0), at_most="c.d"), ("0 .. 1", "1 .. 2", "2 .. 3"), {-0.5: 0, 1.5: 1}),
    ],
)
def test_parts_of_a_domain(knob: Knob, labels: tuple[str, ...], values: dict) -> None:
    bins = bins_of(knob)
    assert bins.labels == labels
    for value, index in values.items():
        assert bins.index(value) == index


def two_by_two(study: KnobStudy, effect: float, runs: int = 4, slope: float = 0.0, faster: float = 1.0) -> None:
    """A balanced layout: float32 is ``effect`` worse, five steps make ``faster`` times as many training steps.

    Runs scatter by +-.001 around their cell.
    """
    for dtype, steps, run in itertools.product(("bfloat16", "float32"), (4, 5), range(runs)):
        trained = 100.0 * (faster if steps == 5 else 1.0) * (1.0 + 0.05 * (run // 2))
        bpb = 2.0 + (effect if dtype == "float32" else 0.0) + 0.001 * (-1) ** run - slope * math.log(trained / 100.0)
        role = "preset" if not study.record.trials else "sampler"
        study.run(bpb, trained, role, muon__ns_dtype=dtype, muon__ns_steps=steps)


@pytest.fixture(scope="module")
def plain():
    """One knob that matters and one that does not; three failures, all with float32."""
    study = KnobStudy(CHOICES)
    two_by_two(study, effect=0.1)
    study.run(2.05, over=True, muon__ns_dtype="float32", muon__ns_steps=4)
    study.end(Kind.DIVERGED, muon__ns_dtype="float32", muon__ns_steps=5)
    study.end(Kind.CRASHED, muon__ns_dtype="float32", muon__ns_steps=5)
    study.end(Kind.PREEMPTED, muon__ns_dtype="float32", muon__ns_steps=5)
    return known_of(study.record, knobs_of(CHOICES))


def test_means_and_counts_are_those_of_the_trials(plain) -> None:
    dtype, steps = plain.knobs
    assert [part.label for part in dtype.parts] == ["bfloat16", "float32"]
    assert [part.scored for part in dtype.parts] == [8, 9]
    assert [part.mean for part in dtype.parts] == [pytest.approx(2.0), pytest.approx((8 * 2.1 + 2.05) / 9)]
    assert [part.rates.trials for part in dtype.parts] == [8, 11], "the preempted one says nothing"
    bad = dtype.parts[1].rates
    assert (bad.over_cap.count, bad.diverged.count, bad.crashed.count) == (1, 1, 1)
    assert (bad.crashed.low, bad.crashed.high) == (wilson(1, 11).low, wilson(1, 11).high)
    assert dtype.parts[0].rates.crashed.high == pytest.approx(3.841459 / 11.841459)
    assert [part.rates.trials for part in steps.parts] == [9, 10]
    assert plain.runs == 17


def test_the_knob_that_matters_is_told_apart_and_the_other_is_not(plain) -> None:
    dtype, steps = plain.knobs
    good, bad = (part.effect for part in dtype.parts)
    assert good.value == pytest.approx(-bad.value)
    assert bad.value == pytest.approx(0.05, abs=0.006)
    assert abs(bad.value) > 5 * bad.sd
    for part in steps.parts:
        assert abs(part.effect.value) < 2 * part.effect.sd


def test_all_trained_alike_so_nothing_is_levelled() -> None:
    study = KnobStudy(CHOICES)
    for number in range(8):
        study.run(
            2.0 + 0.01 * (number % 3),
            role="preset" if not number else "sampler",
            muon__ns_dtype="bfloat16",
            muon__ns_steps=4 + number % 2,
        )
    known = known_of(study.record, knobs_of(CHOICES))
    assert known.slope is None
    assert known.why_no_slope == "all runs trained on the same number of tokens, so there is nothing to level"
    (alone, unseen) = known.knobs[0].parts
    assert alone.effect is None, "there is nothing to compare it with"
    assert (unseen.scored, unseen.mean, unseen.effect) == (0, None, None)


def test_a_knob_that_only_runs_faster_has_no_effect_at_equal_tokens() -> None:
    """Scores fall by .2 a factor e of tokens; five steps train 1.5 times as many, and are no better otherwise."""
    study = KnobStudy(CHOICES)
    two_by_two(study, effect=0.1, runs=8, slope=0.2, faster=1.5)
    known = known_of(study.record, knobs_of(CHOICES))
    assert known.slope.value == pytest.approx(-0.2, abs=0.02)
    dtype, steps = known.knobs
    gained = -0.2 * math.log(1.5) / 2
    assert steps.parts[1].effect.value == pytest.approx(gained, rel=0.05)
    level = steps.parts[1].effect_at_tokens
    assert abs(level.value) < 0.2 * abs(gained)
    assert abs(level.value) < 2 * level.sd
    assert dtype.parts[1].effect_at_tokens.value == pytest.approx(0.05, rel=0.1)


def test_scores_at_equal_tokens_are_moved_along_the_slope() -> None:
    study = KnobStudy(CHOICES)
    two_by_two(study, effect=0.1, runs=8, slope=0.2, faster=1.5)
    record = study.record
    known = known_of(record, knobs_of(CHOICES))
    for entry in known.at_tokens:
        trial = record.trials[entry.trial]
        ratio = trial.outcome.metrics["train/steps"] / 100.0
        assert entry.ratio == pytest.approx(ratio)
        assert entry.score.value == pytest.approx(trial.bpb - known.slope.value * math.log(ratio))
        assert entry.score.sd == pytest.approx(abs(math.log(ratio)) * known.slope.sd)
    assert len(known.at_tokens) == 32


def test_a_slope_that_is_not_clear_is_not_used() -> None:
    study = KnobStudy(CHOICES)
    two_by_two(study, effect=0.1, slope=-0.05, faster=1.5)
    known = known_of(study.record, knobs_of(CHOICES))
    assert known.slope is None
    assert known.why_no_slope.startswith("more tokens do not clearly lower the score here (slope +")
    assert all(part.effect_at_tokens is None for knob in known.knobs for part in knob.parts)
    assert known.at_tokens == ()


def test_equal_scores_have_neither_slope_nor_effects() -> None:
    study = KnobStudy(CHOICES)
    for number in range(10):
        role = "replicate" if number == 1 else "sampler" if number else "preset"
        study.run(2.0, 100.0 + number, role, muon__ns_dtype="bfloat16", muon__ns_steps=4 + number % 2)
    known = known_of(study.record, knobs_of(CHOICES))
    assert known.slope is None
    assert known.residual_sd == pytest.approx(0.0, abs=1e-9)
    assert [part.effect.value for part in known.knobs[1].parts] == [pytest.approx(0.0, abs=1e-9)] * 2


def test_few_runs_are_said_to_be_few() -> None:
    study = KnobStudy(CHOICES)
    for number in range(LEAST_RUNS - 1):
        study.run(2.0 + 0.1 * (number % 2), muon__ns_dtype="bfloat16", muon__ns_steps=4 + number % 2)
    known = known_of(study.record, knobs_of(CHOICES))
    assert known.why_no_effects == known.why_no_slope == "7 scored runs are too few, 8 are needed"
    assert all(part.effect is None for knob in known.knobs for part in knob.parts)
    assert known.knobs[1].parts[0].mean == pytest.approx(2.0)
    empty = known_of(KnobStudy(CHOICES).record, knobs_of(CHOICES))
    assert (empty.runs, empty.why_no_effects) == (0, "0 scored runs are too few, 8 are needed")


def test_trials_outside_the_space_do_not_count() -> None:
    """A trial 0 whose value lies outside, and one that lacks what every other trial implies."""
    study = KnobStudy(RATE, implied={"export.scale_floor": 0.0})
    study.run(2.0, role="preset")
    for rate in (0.02, 0.05, 0.2):
        study.run(2.0, optimizer__matrix_lr=rate)
    record = study.record
    record.trials[3].settings["export"]["scale_floor"] = 0.01
    known = known_of(record, knobs_of(RATE))
    (knob,) = known.knobs
    assert (known.runs, known.outside) == (2, 2)
    assert [part.scored for part in knob.parts] == [1, 1, 0]
    assert [part.rates.trials for part in knob.parts] == [1, 1, 0]
    assert known.points == ({"optimizer.matrix_lr": 0.02}, {"optimizer.matrix_lr": 0.05})


def test_a_conditional_knob_is_counted_where_it_is_searched() -> None:
    entries = dict(CHOICES)
    entries["muon.ns_steps"] = {**CHOICES["muon.ns_steps"], "when": {"muon.ns_dtype": ["float32"]}}
    study = KnobStudy(entries)
    for _ in range(3):
        study.run(2.0, muon__ns_dtype="bfloat16")
    study.run(2.1, muon__ns_dtype="float32", muon__ns_steps=4)
    dtype, steps = known_of(study.record, knobs_of(entries)).knobs
    assert (steps.inactive, [part.scored for part in steps.parts]) == (3, [1, 0])
    assert (dtype.inactive, [part.scored for part in dtype.parts]) == (0, [3, 1])


def test_other_fidelities_and_replicates() -> None:
    """A score of another fidelity is none here; a replicate is a run, but no point of its own."""
    study = KnobStudy(RATE)
    first = study.run(2.0, role="preset", optimizer__matrix_lr=0.02)
    study.run(2.1, role="replicate", optimizer__matrix_lr=0.02)
    study.run(1.0, optimizer__matrix_lr=0.02)
    record = study.record
    other = record.trials[2].attempts[0]
    other.outcome = dataclasses.replace(other.outcome, fidelity={"device": "cuda"})
    known = known_of(record, knobs_of(RATE))
    assert (first, known.runs, known.scores) == (0, 2, (2.0,))
    assert known.knobs[0].parts[0].mean == pytest.approx(2.05)
