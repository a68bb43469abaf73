"""A validation split that holds no whole sequence is told of where data are made and checked."""

import pathlib

from golfray.data.check import CheckRequest, check_corpus
from golfray.data.corpus import Corpus
from golfray.data.sequences import judge_length


def test_one_token_more_than_a_sequence_is_enough(tmp_path: pathlib.Path) -> None:
    lengths = {"small": 128, "large": 1024}
    assert judge_length(tmp_path, 1025, lengths) == []
    (finding,) = judge_length(tmp_path, 1024, lengths)
    assert (finding.severity, finding.code) == ("warning", "validation-short")
    assert finding.line() == (
        f"{tmp_path}/fineweb_val_*.bin: its 1,024 token(s) are too few for one sequence, and the token after it, of "
        "large (1,024); set batch.seq_len to at most 1,023, or validate on more text"
    )
    (finding,) = judge_length(tmp_path, 100, lengths)
    assert "of small (128), large (1,024); set batch.seq_len to at most 99, or" in finding.line()


def test_a_check_knows_the_lengths_it_is_told(tiny_corpus: Corpus) -> None:
    def codes(length: int) -> list[str]:
        result = check_corpus(CheckRequest(tiny_corpus.folder, seq_lens={"mine": length}))
        return [finding.code for finding in result.findings]

    assert codes(tiny_corpus.val_tokens - 1) == []
    assert codes(tiny_corpus.val_tokens) == ["validation-short"]
