"""Documents put aside come back, and the same ones are found, as a dictionary would find them."""

import hashlib
import pathlib
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.data.document_spool import DIGEST_BYTES, SpooledDocuments, open_spool
from golfray.data.text_files import Document


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=30))
@settings(max_examples=50)
def test_documents_and_their_doubles(texts: list[str]) -> None:
    first: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, open_spool(pathlib.Path(folder)) as spool:
        for number, text in enumerate(texts):
            first.setdefault(text, number)
            spool.add(Document(text, 0, number), hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest())
        numbers = range(len(texts))[::-1]
        assert list(SpooledDocuments(spool, numbers)) == texts[::-1]
        assert list(SpooledDocuments(spool, numbers)[1:3]) == texts[::-1][1:3]
        assert spool.total_bytes == sum(len(text.encode()) for text in texts)
        assert spool.same_as_earlier() == {n: first[text] for n, text in enumerate(texts) if first[text] != n}
        assert list(pathlib.Path(folder).iterdir()) == [], "no other process sees it"
