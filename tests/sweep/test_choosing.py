import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.sweep.choosing import best_feasible, choose
from golfray.sweep.outcome import Kind
from golfray.sweep.statistics import claim
from tests.sweep.evidence_studies import EvidenceStudy


def studied(*configurations: list[float], noise: tuple[float, ...] = (2.01, 1.99)) -> EvidenceStudy:
    """Trial 0 at 2.0 and on two more seeds, then each configuration on as many seeds as it has scores."""
    study = EvidenceStudy()
    study.run(2.0, "preset")
    for number, score in enumerate(noise, 1):
        study.run(score, "replicate", of=0, seed=1337 + number)
    for number, (first, *others) in enumerate(configurations):
        root = study.run(first, lr=0.05 + number / 100)
        for seed, score in enumerate(others, 5000):
            study.run(score, "extra_seed", of=root, seed=seed, lr=0.05 + number / 100)
    return study


def test_the_posterior_is_the_one_of_a_normal_with_a_normal_prior() -> None:
    # Noise .01 over three seeds. Means 2.0, 1.9, 1.8, 2.3: the median is 1.95, and the better half lies .05 and .15
    # below it, so the spread is (.05^2 + .15^2) / 2 - .01^2 = .0124.
    choice = choose(studied([1.9], [1.8], [2.3]).record)
    assert choice.noise.sd == pytest.approx(0.01)
    assert choice.noise.df == 2
    best = choice.best
    own, others = 1 / 0.01**2, 1 / 0.0124
    assert best.posterior == pytest.approx((own * 1.8 + others * 1.95) / (own + others))
    assert best.sd == pytest.approx(1 / math.sqrt(own + others))
    assert [standing.trial.number for standing in choice.standings] == [4, 3, 0, 5]
    assert [standing.seeds for standing in choice.standings] == [1, 1, 3, 1]


def test_one_lucky_seed_loses_against_three_good_ones() -> None:
    choice = choose(studied([1.970], [1.975, 1.970, 1.965, 1.968], [2.02], [2.03]).record)
    assert (choice.best.trial.number, choice.best.seeds) == (4, 4)
    assert choice.lowest.number == 3
    assert choice.best.mean > choice.lowest.bpb - 1e-3


def test_equal_numbers_of_seeds_keep_the_order_of_the_scores() -> None:
    choice = choose(studied([1.95], [1.93], [1.97], [1.91]).record)
    singles = [standing.trial.bpb for standing in choice.standings if standing.seeds == 1]
    assert singles == sorted(singles)


def test_without_noise_the_scores_decide() -> None:
    record = studied([1.9], [1.8], noise=()).record
    choice = choose(record)
    assert choice.noise is None
    assert [standing.posterior for standing in choice.standings] == [1.8, 1.9, 2.0]
    assert all(standing.sd is None for standing in choice.standings)
    assert choice.near_ties() == []


def test_the_same_configuration_is_ranked_once_whoever_asked_for_it_and_the_same_seed_counts_once() -> None:
    study = studied([1.95])
    study.run(1.85, lr=0.05, seed=7)  # a log that does not say that this is t003 again
    study.run(1.00, lr=0.05)  # nor that this is t003 on its own seed
    choice = choose(study.record)
    (standing,) = [standing for standing in choice.standings if standing.trial.number == 3]
    assert (standing.seeds, standing.mean) == (2, pytest.approx(1.90))
    assert len(choice.standings) == 2
    assert claim(study.record).candidates == 2


def test_a_configuration_of_which_a_seed_diverged_comes_last() -> None:
    study = studied([1.90], [1.95])
    study.run(9.0, "extra_seed", of=3, seed=5001, lr=0.05, kind=Kind.DIVERGED)
    assert [standing.trial.number for standing in choose(study.record).standings] == [4, 0, 3]


def test_confirmations_choose_nothing() -> None:
    study = studied([1.95], [1.96])
    before = choose(study.record)
    for seed, (bad, good) in enumerate([(2.5, 1.5), (2.6, 1.4)], 6000):
        study.run(bad, "confirm", of=3, seed=seed, lr=0.05)
        study.run(good, "confirm", of=4, seed=seed, lr=0.06)
    after = choose(study.record)
    assert after.best.trial.number == before.best.trial.number == 3
    assert (after.best.posterior, after.noise) == (before.best.posterior, before.noise)


def test_over_the_cap_is_never_best_and_its_score_is_as_good_a_measure() -> None:
    study = studied([1.95], [1.90])
    study.run(1.50, lr=0.2, total=300_001)
    study.run(1.80, "extra_seed", of=3, seed=5001, lr=0.05, total=300_001)
    best = choose(study.record).best
    assert (best.trial.number, best.seeds, best.mean) == (3, 2, pytest.approx(1.875))


def test_near_ties_are_what_the_noise_does_not_set_apart() -> None:
    choice = choose(studied([1.900], [1.908], [1.960], [2.2]).record)
    assert [standing.trial.number for standing in choice.near_ties()] == [3, 4]
    assert choose(studied([1.90], [1.95], [2.2]).record).near_ties() == []


@given(st.lists(st.lists(st.floats(1.5, 2.5), min_size=1, max_size=3), min_size=1, max_size=6))
def test_whatever_the_scores_the_choice_fits_and_lies_between_them(configurations: list[list[float]]) -> None:
    record = studied(*configurations).record
    choice = choose(record)
    assert choice.best.trial is best_feasible(record)
    scores = [trial.bpb for trial in record.trials]
    assert all(min(scores) - 1e-9 <= standing.posterior <= max(scores) + 1e-9 for standing in choice.standings)
    assert [standing.posterior for standing in choice.standings] == sorted(
        standing.posterior for standing in choice.standings
    )


def test_what_is_chosen_is_better_on_average_than_the_lowest_score() -> None:
    """120 studies of eight configurations whose true means differ by as much as their seeds do."""
    draw, gains = random.Random(3), []
    for _ in range(120):
        mean_of = {0: 2.0} | {number: draw.gauss(1.95, 0.01) for number in range(3, 11)}
        noise = (draw.gauss(2.0, 0.01), draw.gauss(2.0, 0.01))
        study = studied(*([draw.gauss(mean_of[number], 0.01)] for number in range(3, 11)), noise=noise)
        lowest = choose(study.record).lowest.number
        for seed in (5000, 5001):
            for standing in choose(study.record).near_ties()[:4]:
                of = standing.trial.number
                lr = standing.trial.setting("optimizer.matrix_lr")
                study.run(draw.gauss(mean_of[of], 0.01), "extra_seed", of=of, seed=seed, lr=lr)
        gains.append(mean_of[lowest] - mean_of[best_feasible(study.record).number])
    error = statistics.stdev(gains) / len(gains) ** 0.5
    assert statistics.fmean(gains) > 3 * error
