"""What a corpus asks of the settings, looked at in every configuration that a space can come to."""

from __future__ import annotations

import dataclasses

from golfray.config.errors import ConfigError
from golfray.config.resolve import Resolved
from golfray.config.schema import Config
from golfray.sweep.knobs import Choice, IntRange, Knob
from golfray.sweep.possible import impossible_values
from golfray.sweep.space import Space

_SEQ_LEN, _VOCAB_SIZE = "batch.seq_len", "model.vocab_size"


@dataclasses.dataclass(frozen=True)
class CorpusLimits:
    """A corpus as settings meet it: ``corpus`` and ``tokenizer`` are what messages call it and its tokenizer."""

    corpus: str
    tokenizer: str
    val_tokens: int
    pieces: int

    def check(self, resolved: Resolved) -> None:
        """Raise ``ConfigError``, placed where the value was written, for a setting that this corpus cannot serve."""
        config = resolved.config
        for path, value in ((_VOCAB_SIZE, config.model.vocab_size), (_SEQ_LEN, config.batch.seq_len)):
            if why := self._why_not(path, value, config):
                raise resolved.error(path, why)

    def check_space(self, space: Space) -> None:
        """:meth:`check` of trial 0, and of every length of a sequence that some trial can have."""
        self.check(space.base)
        for knob in space.knobs:
            if knob.path == _SEQ_LEN:
                self._check_seq_lens(space, knob)

    def _check_seq_lens(self, space: Space, knob: Knob) -> None:
        config = space.searched().config
        refused = [value for value in _values(knob, space) if self._why_not(knob.path, value, config)]
        if not refused:
            return
        # What no trial can have because of the other settings is no reason to refuse the space.
        impossible = [found for found in impossible_values(space.knobs, config) if found.knob is knob]
        never = {value for found in impossible for value in found.values}
        if possible := [value for value in refused if value not in never]:
            why = self._why_not(knob.path, max(possible), config)
            raise ConfigError(f"its largest value {why}", path=f"knobs.{knob.path}", file=space.places[knob.path][-1])

    def _why_not(self, path: str, value: int, config: Config) -> str | None:
        if path == _VOCAB_SIZE:
            return (
                f"must be >= {self.pieces}, the pieces of {self.tokenizer}, got {value}"
                if value < self.pieces
                else None
            )
        most = self.val_tokens - 1
        if value <= most:
            return None
        batch = config.batch
        micro_batch = batch.tokens // batch.slices
        fits = next((length for length in range(most, 0, -1) if micro_batch % length == 0), None)
        lower = "" if fits is None else f"set it to {fits}, which divides batch.tokens / batch.slices, or "
        return (
            f"must be <= {most}, as a validation sequence and the token after it must fit into the {self.val_tokens:,} "
            f"validation tokens of {self.corpus}, got {value}; {lower}validate on more text"
        )


def _values(knob: Knob, space: Space) -> list[int]:
    """All values that the knob can have in a trial, as far as its own range and ``at_most`` say."""
    domain = knob.domain
    if isinstance(domain, Choice):
        values = list(domain.choices)
    else:
        assert isinstance(domain, IntRange), "it is an integer"
        values = list(range(domain.low, domain.high + 1, domain.step))
    if knob.when:
        values.append(knob.preset_value)
    if knob.at_most is not None:
        (bound,) = (other.domain for other in space.knobs if other.path == knob.at_most)
        assert isinstance(bound, IntRange), "checked when the space was read"
        values = sorted({min(value, end) for value in values for end in (bound.low, bound.high)})
    return values
