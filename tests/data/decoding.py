"""The text that shards stand for."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import sentencepiece

from golfray.data.token_files import read_token_documents


def decode_documents(paths: Sequence[pathlib.Path], tokenizer: sentencepiece.SentencePieceProcessor) -> list[str]:
    """A text wherever BOS stands: exactly what is scored."""
    documents = read_token_documents(paths, tokenizer.bos_id())
    return [str(tokenizer.decode(document.tolist())) for document in documents]
