"""Scores from files and the published rows: what is read, and what is refused."""

import json
import os

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.scores import ClaimRefused
from golfray.sweep.scores_file import read_scores, reference_ids, reference_noise, reference_scores_of

CLAIMED = {
    "name": "a run of shards that were transformed, with the tokenizer's own byte table",
    "text": {"name": "fineweb-val"},
    "evaluation": "phased TTT",
    "fidelity": {"device": "H100", "workers": 8, "stop": "wallclock", "budget": "600 s"},
    "tokens": 47_851_520,
    "runs": [{"seed": 42, "bpb": 1.00692894, "val_loss": 2.40073153}],
}


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "scores.json"
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_every_published_row_is_one(written):
    rows = {row: reference_scores_of(row) for row in reference_ids()}
    assert len(rows) == 34
    assert {scores.kind for scores in rows.values()} == {"reference"}
    assert (rows["R33"].sample.n, rows["R33"].sample.mean, rows["R33"].sample.sd) == (3, 1.081, 0.0002)
    # Bytes are the invariant of the text, whatever the tokenizer.
    known = [scores.implied_bytes for scores in rows.values() if scores.implied_bytes is not None]
    assert len(known) > 25
    assert all(151.07e6 < count < 151.08e6 for count in known)


def test_single_runs_give_the_published_means_and_sds():
    for row, mean, sd in (("R40", 1.06549, 0.00070), ("R44", 1.06108, 0.00111), ("R45", 1.06143, 0.00073)):
        sample = reference_scores_of(row).sample
        assert (round(sample.mean, 5), round(sample.sd, 5)) == (mean, sd)
    # Of seven runs the record reported the best five.
    best = sorted(run.bpb for run in reference_scores_of("R41").runs)[:5]
    assert round(sum(best) / 5, 5) == 1.06453
    assert round(reference_scores_of("R41").sample.mean, 5) == 1.06477


def test_the_noise_of_the_published_rows():
    assert (reference_noise().sd, reference_noise().df) == (0.00077, 71)


def test_bytes_off_the_invariant_are_refused(written):
    with pytest.raises(ClaimRefused, match="seed 42: loss and score imply 164,594,398 bytes, but fineweb-val has"):
        read_scores(written(CLAIMED))
    # No file changes what this text has.
    with pytest.raises(ClaimRefused, match="164,594,398"):
        read_scores(written({**CLAIMED, "text": {"name": "fineweb-val", "bytes": 164_594_398}}))
    summary = {"n": 3, "mean": 1.0066, "sd": 0.0005}
    changed = {**CLAIMED, "runs": [], "summary": summary, "bytes_per_token": 3.43969}
    with pytest.raises(ClaimRefused, match=r"1\.0066 is no score on it"):
        read_scores(written(changed))


def test_a_file_of_ones_own(written):
    text = {"name": "mine", "digest": "ab" * 32, "bytes": 25_000, "contaminated": False}
    values = {**CLAIMED, "text": text, "tokens": 10_000, "runs": [{"bpb": 2.0, "val_loss": 3.4657359}, {"bpb": 2.1}]}
    scores = read_scores(written({**values, "settings": {"muon": {"momentum_end": 0.95}}, "best_of": 2}))
    assert scores.implied_bytes == pytest.approx(25_000, rel=1e-6)
    assert [run.label for run in scores.runs] == ["run 1", "run 2"]
    assert (scores.sample.n, scores.sample.mean) == (2, pytest.approx(2.05))
    assert (scores.settings, scores.objections) == ({"muon.momentum_end": 0.95}, ())
    chosen = read_scores(written({**values, "best_of": 7}))
    assert chosen.objections == (f"{CLAIMED['name']} has the best 2 of 7 runs: list all of them",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r":1:2: is not JSON: "),
        ("[]", "Input should be a valid dictionary"),
        ({**CLAIMED, "runs": []}, "either runs, a list with at least one, or summary must be given"),
        ({**CLAIMED, "best_of": 0}, "best_of: Input should be greater than 0"),
        ({**CLAIMED, "scores": []}, "scores: Extra inputs are not permitted"),
        ({**CLAIMED, "runs": [{"bpb": "1.0"}]}, r"runs.0.bpb: Input should be a valid number"),
        ({**CLAIMED, "runs": [{"bpb": -1.0}]}, r"runs.0.bpb: Input should be greater than 0"),
        ({**CLAIMED, "runs": [{"bpb": 1e308}, {"bpb": 1e308}]}, r"runs.0.bpb: Input should be less than 1000000"),
        ({**CLAIMED, "tokens": 10**400}, "tokens: Input should be less than 9223372036854775808"),
        ({**CLAIMED, "runs": [], "summary": {"n": 10**400, "mean": 1.0}}, "summary.n: Input should be less than"),
        ({**CLAIMED, "runs": [], "summary": {"n": 2, "mean": 1.0, "sd": 1e308}}, "summary.sd: Input should be less"),
        (b"\xff\xfe", "is not JSON: 'utf-"),
        pytest.param("[" * 100_000, "is not JSON: maximum recursion depth", id="deep"),
    ],
)
def test_what_is_no_file_of_scores(written, content, message):
    path = written(content)
    with pytest.raises(ConfigError, match=message) as refused:
        read_scores(path)
    assert str(refused.value).startswith(str(path))


def test_what_is_too_large_is_not_read(written):
    with pytest.raises(ConfigError, match=r"scores\.json: is larger than 20,000,000 bytes"):
        read_scores(written(" " * 20_000_001))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ConfigError, match=r"pipe\.json: is no regular file"):
        read_scores(tmp_path / "pipe.json")


def test_files_and_rows_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.json: cannot be read: No such file"):
        read_scores(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="R43: no published row of that name; did you mean R"):
        reference_scores_of("R43")
