"""One pass over the tokens counts what a plain loop over the documents counts, wherever the cuts are."""

import pathlib
import re
import tempfile

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.byte_table import ByteTable
from golfray.core.shards import map_shard
from golfray.data import token_files
from golfray.data.digest import digest_tokens
from golfray.data.errors import DataError
from golfray.data.overlap import Overlap
from golfray.data.sampler import Sampler
from golfray.data.shard_layout import MAX_VOCAB_SIZE
from golfray.data.split_tally import DocumentSpan, OverVocabulary, SplitTally, tally_split
from golfray.data.token_files import read_token_documents, write_shards

BOS = 1
TABLE = ByteTable(
    base_bytes=numpy.arange(MAX_VOCAB_SIZE) % 5,
    has_space=numpy.arange(MAX_VOCAB_SIZE) % 3 == 0,
    is_boundary=numpy.arange(MAX_VOCAB_SIZE) < 4,
)
# What stands behind BOS; the first list is what stands ahead of the first BOS.
BODIES = st.lists(st.lists(st.integers(2, 40), max_size=12), min_size=1, max_size=10)


@given(bodies=BODIES, shard_tokens=st.integers(1, 25), chunk_tokens=st.integers(1, 25))
@settings(max_examples=60)
def test_a_tally_of_documents(bodies: list[list[int]], shard_tokens: int, chunk_tokens: int) -> None:
    lead, *rest = bodies
    documents = [lead, *([BOS, *body] for body in rest)]
    flat = [token for document in documents for token in document]
    if not flat:
        return
    spans: list[DocumentSpan] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_files, "CHUNK_TOKENS", chunk_tokens)
        paths = write_shards(pathlib.Path(folder), "val", documents, shard_tokens)
        tally = SplitTally(TABLE, 30, BOS)
        for path in paths:
            # What a copy reads on changes nothing here.
            tally.copy().read(path, lambda _span: None)
            tally.read(path, spans.append)
        tally.end(spans.append)
        assert tally.scored_bytes == tally_split(paths, TABLE, 50).scored_bytes
        assert [document.tolist() for document in read_token_documents(paths, BOS)] == [d for d in documents if d]
        over = {
            path: [(at, token) for at, token in enumerate(map_shard(path).tolist()) if token >= 30] for path in paths
        }
    assert (tally.tokens, tally.documents, tally.first) == (len(flat), len(rest), flat[0])
    assert tally.counts.tolist() == numpy.bincount(flat, minlength=MAX_VOCAB_SIZE).tolist()
    starts = [len(lead) + sum(len(body) + 1 for body in rest[:number]) for number in range(len(rest))]
    assert spans == [
        DocumentSpan(start, len(body), digest_tokens(body)) for start, body in zip(starts, rest, strict=True) if body
    ]
    assert tally.over == {
        path: OverVocabulary(len(found), found[0][1], found[0][0]) for path, found in over.items() if found
    }


# pad 0, bos 1: boundaries. 2: "ab" in two bytes. 3: the same with a space in front. 4: a byte.
SMALL = ByteTable(
    base_bytes=numpy.array([0, 0, 2, 2, 1]),
    has_space=numpy.array([False, False, False, True, False]),
    is_boundary=numpy.array([True, True, False, False, False]),
)


@pytest.mark.parametrize("shard_tokens", [1, 2, 3, 100])
@pytest.mark.parametrize("chunk_tokens", [1, 2, 1000])
def test_scored_bytes_do_not_depend_on_where_the_cuts_are(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, shard_tokens: int, chunk_tokens: int
) -> None:
    monkeypatch.setattr(token_files, "CHUNK_TOKENS", chunk_tokens)
    paths = write_shards(tmp_path, "val", [[1, 3, 3, 4], [1, 2, 3]], shard_tokens)
    tally = tally_split(paths, SMALL, 5)
    # "ab", " ab", one byte; then "ab", " ab": the space right after BOS does not count, nor does the first token
    assert tally.scored_bytes == 2 + 3 + 1 + 2 + 3
    assert tally.predicted_counts()[:5].tolist() == [0, 1, 1, 3, 1]
    assert tally.documents == 0, "nobody told what BOS is"


def test_a_token_the_tokenizer_lacks_is_refused(tmp_path: pathlib.Path) -> None:
    (path,) = write_shards(tmp_path, "val", [[1, 2, 5]], 10)
    says = f"{path}: token 5 at position 2, but the tokenizer has 5 pieces; data.tokenizer must be the one"
    with pytest.raises(DataError, match=re.escape(says)):
        tally_split([path], None, 5)


def test_overlap_counts_documents_once() -> None:
    one, two, three = (digest_tokens([number]) for number in range(3))
    overlap = Overlap([(one, 0), (two, 1), (three, 1)])
    assert (overlap.documents, overlap.found, overlap.first) == (2, 0, None)
    spans = [DocumentSpan(at, 1, digest) for at, digest in enumerate([digest_tokens([9]), three, two, three])]
    for span in spans:
        overlap.look(span)
    assert (overlap.found, overlap.first) == (1, spans[1])
    overlap.look(DocumentSpan(9, 1, one))
    assert overlap.found == 2


@pytest.mark.parametrize(("count", "starts"), [(4, [0, 30, 50, 80]), (1, [0]), (100, list(range(0, 100, 10)))])
def test_a_sample_is_spread_evenly(count: int, starts: list[int]) -> None:
    sampler = Sampler(count, 100)
    for start in range(0, 100, 10):
        sampler.look(DocumentSpan(start, 9, b""))
    assert [span.start for span in sampler.spans] == starts
