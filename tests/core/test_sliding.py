"""Sliding windows against the reference's evaluator, and every token scored exactly once."""

import math
import pathlib

import numpy
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from golfray.core.byte_table import ByteTable, load_byte_table
from golfray.core.gang import Gang
from golfray.core.model import build_model
from golfray.core.score import score_model
from golfray.core.shards import list_shards, load_validation_tokens, validation_range
from golfray.core.sliding import count_windows, score_sliding, window_at
from golfray.selftest.inputs import formula_tensor

LENGTH, STRIDE, VOCAB = 32, 8, 16

# Of the vector "sliding_window" (the evaluator of R33): predictions -> nats per token, bits per byte.
REFERENCE = {
    161: (3.019810638072328, 2.3149280493309576),
    160: (3.0259055376052855, 2.328244753760852),
    96: (3.0260684291521707, 2.328370088601863),
    31: (3.0485983433261996, 2.3507608458439577),
}
TABLE = ByteTable(
    base_bytes=numpy.array([0, 0, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2]),
    has_space=numpy.array([index >= 2 and index % 3 == 2 for index in range(VOCAB)]),
    is_boundary=numpy.array([index < 2 for index in range(VOCAB)]),
)


def reference_tokens(predictions: int) -> numpy.ndarray:
    j = numpy.arange(predictions + 1)
    return ((3 * j * j + 7 * j + 2) % VOCAB).astype(numpy.uint16)


def reference_logits(inputs: torch.Tensor) -> torch.Tensor:
    """Depends on the position inside the window, so a window that starts elsewhere gives another score."""
    table = formula_tensor(40, [VOCAB, VOCAB], 1.0)
    position = torch.arange(inputs.shape[1], dtype=torch.float32)[:, None]
    return (table[inputs] + 0.01 * position * torch.arange(VOCAB).float().cos()).flatten(0, 1)


@pytest.mark.parametrize("at_once", [1, 3, 64])
@pytest.mark.parametrize("predictions", REFERENCE)
def test_scores_of_the_reference(predictions: int, at_once: int, alone) -> None:
    tokens = reference_tokens(predictions)
    score, share = score_sliding(reference_logits, tokens, TABLE, LENGTH, STRIDE, at_once, alone)
    loss, bits_per_byte = REFERENCE[predictions]
    assert score.loss == pytest.approx(loss, abs=1e-6)
    assert score.bits_per_byte == pytest.approx(bits_per_byte, abs=1e-6)
    assert (score.tokens, share) == (predictions, 1.0)
    assert score.bytes == TABLE.count(tokens[:-1], tokens[1:])


def windows(predictions: int, length: int, stride: int) -> list[tuple[int, int, int]]:
    found = [window_at(i, predictions, length, stride) for i in range(count_windows(predictions, length, stride))]
    return [(window.start, window.first, window.end) for window in found]


def test_windows_of_the_reference() -> None:
    """Its lists of (start, first scored, end) for all four lengths."""
    later = [(start, start + 24, start + 32) for start in range(8, 136, 8)]
    assert windows(161, LENGTH, STRIDE) == [(0, 0, 32), *later, (136, 160, 161)]
    assert windows(160, LENGTH, STRIDE) == [(0, 0, 32), *later]
    assert windows(96, LENGTH, STRIDE) == [(0, 0, 32), *later[:8]]
    assert windows(31, LENGTH, STRIDE) == [(0, 0, 31)]


@given(length=st.integers(1, 40), stride=st.integers(1, 40), predictions=st.integers(1, 200), ranks=st.integers(1, 9))
@example(length=32, stride=8, predictions=24, ranks=1)  # exactly the context: the reference's list would be empty
@example(length=32, stride=8, predictions=25, ranks=2)
@example(length=32, stride=32, predictions=64, ranks=3)
def test_ranks_score_every_prediction_exactly_once(length: int, stride: int, predictions: int, ranks: int) -> None:
    stride = min(stride, length)
    total = count_windows(predictions, length, stride)
    scored: list[int] = []
    for rank in range(ranks):
        for index in range(*validation_range(total, rank, ranks)):
            window = window_at(index, predictions, length, stride)
            assert 0 <= window.start <= window.first < window.end <= predictions
            assert window.end - window.start <= length
            # All but the first window have the whole context before the first that they score.
            assert index == 0 or window.first - window.start == length - stride
            scored += range(window.first, window.end)
    assert scored == list(range(predictions))


@given(length=st.integers(2, 20), stride=st.integers(1, 20), predictions=st.integers(1, 60), at_once=st.integers(1, 9))
def test_each_token_is_scored_with_its_own_context(length: int, stride: int, predictions: int, at_once: int) -> None:
    """A model whose loss says how many tokens it saw, and that knows which target belongs to which input."""
    stride = min(stride, length)
    vocab = predictions + 1

    def logits_of(inputs: torch.Tensor) -> torch.Tensor:
        assert inputs.shape == (at_once, length)
        logits = torch.full((at_once, length, vocab), -1e4)
        seen = torch.arange(1, length + 1).float().expand(at_once, length)
        # The right next token has the logit `seen`, one other 0: the loss is log(1 + exp(-seen)).
        logits.scatter_(2, ((inputs + 2) % vocab)[..., None], 0.0)
        logits.scatter_(2, ((inputs + 1) % vocab)[..., None], seen[..., None])
        return logits.flatten(0, 1)

    table = ByteTable(numpy.ones(vocab, dtype=numpy.int64), numpy.zeros(vocab, bool), numpy.zeros(vocab, bool))
    alone = Gang(0, 1, torch.device("cpu"))
    score, _ = score_sliding(logits_of, numpy.arange(vocab), table, length, stride, at_once, alone)
    context = [*range(1, length + 1)]
    for position in range(length, predictions):
        context.append(length - stride + (position - length) % stride + 1)
    if vocab > 2:
        expected = sum(math.log1p(math.exp(-seen)) for seen in context[:predictions]) / predictions
        assert score.loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert (score.tokens, score.bytes) == (predictions, predictions)


def test_of_a_real_model_on_real_text(trained_folder, tiny_settings, alone) -> None:
    """A stride of the whole window is plain validation; any other is each token predicted from its context alone."""
    settings = tiny_settings()
    model = build_model(settings.model, torch.float32, alone.device)
    model.load_state_dict(torch.load(trained_folder / "checkpoint.pt", weights_only=True))
    length = settings.batch.seq_len
    tokens = load_validation_tokens(list_shards(pathlib.Path(settings.data.folder), "val"), length)
    table = load_byte_table(settings.data.tokenizer, settings.model.vocab_size)
    plain = score_model(model, tokens, table, settings.batch, alone)
    same, _ = score_sliding(model.logits, tokens, table, length, length, 30, alone)
    assert (same.tokens, same.bytes) == (plain.tokens, plain.bytes)
    assert same.bits_per_byte == pytest.approx(plain.bits_per_byte, abs=1e-6)

    tokens, stride = tokens[:151], 12
    sliding, _ = score_sliding(model.logits, tokens, table, length, stride, 4, alone)
    nats = 0.0
    for position in range(150):
        start = 0 if position < length else (position - length) // stride * stride + stride
        context = torch.from_numpy(tokens[start : position + 1].astype(numpy.int64))
        with torch.inference_mode():
            nats -= float(model.logits(context[None])[-1].log_softmax(0)[int(tokens[position + 1])])
    assert sliding.loss == pytest.approx(nats / 150, abs=1e-5)


def test_time_that_is_over_gives_no_score_but_how_far_it_came(alone) -> None:
    calls = 0

    def two_then_late(inputs: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return reference_logits(inputs)

    tokens = reference_tokens(160)
    assert score_sliding(two_then_late, tokens, TABLE, LENGTH, STRIDE, 4, alone, limit_s=-1.0) == (None, 0.0)
    assert calls == 0
    score, share = score_sliding(two_then_late, tokens, TABLE, LENGTH, STRIDE, 4, alone, limit_s=3600.0)
    assert share == 1.0
    assert score.loss == pytest.approx(REFERENCE[160][0], abs=1e-6)


@pytest.mark.parametrize(("predictions", "stride"), [(0, 8), (50, 0), (50, 33)])
def test_what_cannot_be_is_refused(predictions: int, stride: int, alone) -> None:
    with pytest.raises(ValueError, match="1 <= stride <= length and 1 prediction must hold"):
        score_sliding(reference_logits, reference_tokens(predictions), TABLE, LENGTH, stride, 4, alone)
