"""One pass over the tokens counts what a plain loop over the documents counts, wherever the cuts are."""

import pathlib
import tempfile

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.byte_table import ByteTable
from golfray.data import token_files
from golfray.data.scan import ALL_IDS, DocumentSpan, Overlap, OverVocabulary, Sampler, digest_tokens, scan_split
from golfray.data.token_files import count_scored_bytes, read_token_documents, write_shards

BOS = 1
TABLE = ByteTable(
    base_bytes=numpy.arange(ALL_IDS) % 5,
    has_space=numpy.arange(ALL_IDS) % 3 == 0,
    is_boundary=numpy.arange(ALL_IDS) < 4,
)
# What stands behind BOS; the first list is what stands ahead of the first BOS.
BODIES = st.lists(st.lists(st.integers(2, 40), max_size=12), min_size=1, max_size=10)


@given(bodies=BODIES, shard_tokens=st.integers(1, 25), chunk_tokens=st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_a_scan_of_documents(bodies: list[list[int]], shard_tokens: int, chunk_tokens: int) -> None:
    lead, *rest = bodies
    documents = [lead, *([BOS, *body] for body in rest)]
    flat = [token for document in documents for token in document]
    if not flat:
        return
    spans: list[DocumentSpan] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_files, "CHUNK_TOKENS", chunk_tokens)
        paths = write_shards(pathlib.Path(folder), "val", documents, shard_tokens)
        scan = scan_split(paths, TABLE, 30, BOS, spans.append)
        assert scan.scored_bytes == count_scored_bytes(paths, TABLE)
        assert [document.tolist() for document in read_token_documents(paths, BOS)] == [d for d in documents if d]
        over = {
            path: [(at, token) for at, token in enumerate(token_files.map_shard(path).tolist()) if token >= 30]
            for path in paths
        }
    assert (scan.tokens, scan.documents, scan.first) == (len(flat), len(rest), flat[0])
    assert scan.counts.tolist() == numpy.bincount(flat, minlength=ALL_IDS).tolist()
    starts = [len(lead) + sum(len(body) + 1 for body in rest[:number]) for number in range(len(rest))]
    assert spans == [
        DocumentSpan(start, len(body), digest_tokens(body)) for start, body in zip(starts, rest, strict=True) if body
    ]
    assert scan.over == {
        path: OverVocabulary(len(found), found[0][1], found[0][0]) for path, found in over.items() if found
    }


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
