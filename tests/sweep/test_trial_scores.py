"""A trial and its repetitions as one side of a claim: which scores count, and what speaks against it."""

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.outcome import Kind
from golfray.sweep.scores import ClaimRefused
from golfray.sweep.trial_scores import trial_scores
from tests.sweep.evidence_studies import FIDELITY, VAL_BYTES, loss_of, searched


def side(study, number, **kwargs):
    return trial_scores(study.record, study.record.trials[number], study="muon", **kwargs)


def left_out(scores):
    return {run.label: run.left_out for run in scores.runs if run.left_out is not None}


def test_trial_0_counts_with_its_replicates():
    scores = side(searched(), 0)
    assert (scores.sample.n, scores.sample.mean, scores.sample.sd) == (3, pytest.approx(2.0), pytest.approx(0.01))
    assert (scores.chosen_of, scores.objections, left_out(scores)) == (None, (), {})
    assert scores.implied_bytes == pytest.approx(VAL_BYTES)
    assert scores.bytes_per_token == pytest.approx(2.5)
    assert scores.fidelity == {"preset": "parameter-golf", "scale": "laptop", **FIDELITY, "budget": "15 s"}


def test_the_score_that_a_trial_was_chosen_by_counts_only_alone():
    study = searched()
    alone = side(study, 4)
    assert (alone.sample.n, alone.sample.mean, alone.chosen_of) == (1, 1.95, 4)
    assert alone.objections == (
        "the only score of muon/t004 is the one it was chosen by: `golfray confirm muon/t004` runs fresh seeds",
    )
    for seed, bpb in enumerate((1.962, 1.968), 9000):
        study.run(bpb, "confirm", of=4, seed=seed, lr=0.06)
    confirmed = side(study, 4)
    assert (confirmed.sample.n, confirmed.sample.mean, confirmed.chosen_of) == (2, pytest.approx(1.965), None)
    assert left_out(confirmed) == {"t004, seed 1337": "a score that the trial was chosen by"}
    assert len(confirmed.runs) == 3
    assert confirmed.objections == ()


def test_noise_is_pooled_over_everything_that_ran_on_several_seeds():
    study = searched()
    assert list(side(study, 4).repeats) == ["muon/t000"]
    for seed, bpb in enumerate((1.962, 1.968), 9000):
        study.run(bpb, "confirm", of=4, seed=seed)
    repeats = side(study, 5).repeats
    # Without the chosen score, which lies too low.
    assert {name: sample.n for name, sample in repeats.items()} == {"muon/t000": 3, "muon/t004": 2}


def test_seeds_that_failed_are_listed_and_speak_against_it():
    study = searched()
    study.run(1.96, "confirm", of=4, seed=9000)
    study.run(1.97, "confirm", of=4, seed=9001, total=300_001)
    study.run(0.0, "confirm", of=4, seed=9002, kind=Kind.DIVERGED)
    study.run(0.0, "confirm", of=4, seed=9003, kind=Kind.CRASHED)
    study.run(1.90, "confirm", of=4, seed=9004, fidelity={**FIDELITY, "workers": 1})
    scores = side(study, 4)
    assert len(scores.runs) == 6
    assert (scores.sample.n, scores.sample.mean) == (2, pytest.approx(1.965))
    assert left_out(scores) == {
        "t004, seed 1337": "a score that the trial was chosen by",
        "t008, seed 9002": "diverged",
        "t009, seed 9003": "crashed",
        "t010, seed 9004": "ran at another fidelity",
    }
    assert scores.objections == (
        "t007 on seed 9001 is over the cap: it could not be handed in",
        "t008 on seed 9002 diverged: a seed that fails counts as well",
    )


def test_sliding_windows_are_another_score():
    study = searched()
    with pytest.raises(ConfigError, match="no run of it was scored sliding: has no bpb/sliding"):
        side(study, 0, evaluation="sliding")
    number = study.run(1.9, **{"bpb/sliding": 1.85, "val_loss/sliding": loss_of(1.85)})
    scores = side(study, number, evaluation="sliding")
    assert (scores.evaluation, scores.sample.mean) == ("sliding s64", 1.85)


def test_bytes_that_are_not_those_of_the_corpus_are_refused():
    study = searched()
    # As if every leading space were counted twice.
    number = study.run(1.7, **{"val_loss/roundtrip": loss_of(1.99)})
    with pytest.raises(ClaimRefused, match=r"t006, seed 1337: loss and score imply 29,265 bytes, but kjv has 25,000"):
        side(study, number)


def test_a_log_that_does_not_say_how_long_its_text_is():
    scores = side(searched(val_tokens=None, val_bytes=None, contaminated=None), 0)
    assert (scores.implied_bytes, scores.text.contaminated) == (None, None)
    assert scores.bytes_per_token == pytest.approx(2.5)


def test_what_has_no_scores_of_its_own():
    study = searched()
    with pytest.raises(ConfigError, match="muon/t001: is t000 on another seed; name t000"):
        side(study, 1)
    number = study.run(0.0, kind=Kind.CRASHED)
    with pytest.raises(ConfigError, match="muon/t006: has no score: it ended as crashed"):
        side(study, number)
