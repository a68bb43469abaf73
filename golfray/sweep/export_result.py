"""What a search over exports found: the front of bits per byte against bytes, and the best at or under any size."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from golfray.core.settings import ExportSettings
from golfray.sweep.export_space import CLASSES

if TYPE_CHECKING:
    from golfray.core.score import Score


@dataclasses.dataclass(frozen=True)
class Tried:
    """One export setting and what is known of it.

    ``export``: complete, format "flat", with the codec that makes it smallest. ``bytes``: of the artifact under that;
    ``codecs``: under each of them. ``bits_per_byte`` on the first ``sequences`` of the reserved slice; ``added``: what
    it is above the float weights' there, and ``error`` the standard error of that. ``landed``: its k was turned to end
    just below the cap.
    """

    export: ExportSettings
    bytes: int
    codecs: dict[str, int]
    bits_per_byte: float
    added: float
    error: float
    sequences: int
    landed: bool = False


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found.

    ``tried``: every setting, by rising bytes. ``sequences``: length of the reserved slice; ``reserve``: which tokens it
    has, and ``trained_on`` whether the run may have learned them. ``unquantized``: bits per byte of the float weights
    on it. ``chosen``: the best at or under ``max_bytes``, None where nothing fits; ``artifact``: its bytes, or where
    nothing fits those of the smallest; ``validation``: the score of the one chosen on the validation tokens, the only
    thing that was computed on them, None where it was not asked for. ``landing``: how near to the cap k was turned.
    ``seconds``: by stage.
    """

    tried: tuple[Tried, ...]
    max_bytes: int
    sequences: int
    reserve: str
    trained_on: bool
    unquantized: float
    chosen: Tried | None
    artifact: bytes
    validation: Score | None
    landing: str
    seconds: dict[str, float]

    @property
    def exported(self) -> Tried:
        """What ``artifact`` is: the setting chosen, or where nothing fits the smallest of the front."""
        return self.chosen or self.front()[0]

    def front(self) -> list[Tried]:
        """The settings that no other beats in both, by rising bytes; of those scored on the whole slice.

        Every next one is larger and better than the one before it.
        """
        return front_of(self.tried, self.sequences)

    def best_at(self, most_bytes: int) -> Tried | None:
        """The best of the front at or under ``most_bytes``; None where none is that small."""
        fitting = [tried for tried in self.front() if tried.bytes <= most_bytes]
        return fitting[-1] if fitting else None

    def summary(self) -> dict[str, Any]:
        """What an event log keeps: the setting that is exported, also in words, and for the front what differs."""
        export = dataclasses.asdict(self.exported.export)
        return {
            "tried": len(self.tried),
            "reserve": self.reserve,
            "unquantized": self.unquantized,
            "landing": self.landing,
            "words": export_words(self.exported.export),
            "export": export,
            "bits_per_byte": self.exported.bits_per_byte,
            "front": [
                {
                    "bytes": each.bytes,
                    "bits_per_byte": each.bits_per_byte,
                    "export": {
                        name: value for name, value in dataclasses.asdict(each.export).items() if value != export[name]
                    },
                }
                for each in self.front()
            ],
        }

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: plain lists, numbers and texts. The artifact is left out, and named by its size."""
        return {
            "max_bytes": self.max_bytes,
            "chosen": None if self.chosen is None else dataclasses.asdict(self.chosen),
            "validation": None if self.validation is None else dataclasses.asdict(self.validation),
            "unquantized": self.unquantized,
            "reserve": {"sequences": self.sequences, "trained_on": self.trained_on, "description": self.reserve},
            "landing": self.landing,
            "front": [dataclasses.asdict(tried) for tried in self.front()],
            "tried": [dataclasses.asdict(tried) for tried in self.tried],
            "seconds": self.seconds,
        }


def export_words(export: ExportSettings) -> str:
    """An export in few words, such as "attention 4 bits std 3.1, ..., brotli shuffled, GPTQ"."""
    words = []
    for kind in CLASSES:
        bits, clip = getattr(export, f"bits_{kind}"), getattr(export, f"clip_{kind}")
        k = f" {getattr(export, f'clip_k_{kind}'):.4g}" if clip == "std" else ""
        words.append(f"{kind} {bits} bits" + (f" {clip}{k}" if bits <= 8 else ""))
    words.append(export.codec + (" shuffled" if export.shuffle else ""))
    words += ["GPTQ"] * export.gptq + [f"groups of {export.group_size}"] * bool(export.group_size)
    return ", ".join(words)


def front_of(tried: tuple[Tried, ...] | list[Tried], sequences: int) -> list[Tried]:
    """The settings that no other beats in both bytes and bits per byte, of those known in full, by rising bytes."""
    known = [each for each in tried if each.sequences == sequences]
    front: list[Tried] = []
    for each in sorted(known, key=lambda each: (each.bytes, each.bits_per_byte)):
        if not front or each.bits_per_byte < front[-1].bits_per_byte:
            front.append(each)
    return front
