"""Which documents of a split are decoded to see whether their tokenizer is theirs."""

from __future__ import annotations

from golfray.data.split_tally import DocumentSpan


class Sampler:
    """About ``count`` documents, evenly spread over ``tokens`` tokens."""

    def __init__(self, count: int, tokens: int) -> None:
        self.spans: list[DocumentSpan] = []
        self._step = max(tokens / count, 1)

    def look(self, span: DocumentSpan) -> None:
        """The next document; it is taken where the last one taken is far enough behind."""
        if span.start >= len(self.spans) * self._step:
            self.spans.append(span)
