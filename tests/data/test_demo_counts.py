import pytest

from golfray.data.corpus import demo_corpus
from golfray.data.demo_counts import DEMO_TRAIN_TOKENS, DEMO_UNSEEN, DEMO_VAL_TOKENS, demo_is_built
from golfray.sweep.size import unseen_tokens


def test_a_home_without_it_has_none(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GOLFRAY_HOME", str(tmp_path / "home"))
    assert not demo_is_built()
    assert not (tmp_path / "home").exists()


def test_the_known_counts_are_those_of_the_built_corpus() -> None:
    corpus = demo_corpus()
    assert demo_is_built()
    # Another version of SentencePiece may cut the text a little differently.
    assert corpus.train_tokens == pytest.approx(DEMO_TRAIN_TOKENS, rel=0.001)
    assert corpus.val_tokens == pytest.approx(DEMO_VAL_TOKENS, rel=0.001)
    unseen = unseen_tokens(corpus.folder, corpus.vocab_size, corpus.train_tokens)
    assert len(set(unseen) ^ set(DEMO_UNSEEN)) < 30
