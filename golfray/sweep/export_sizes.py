"""How large an export is under each codec: predicted from its classes, each compressed once, or measured as a whole.

Classes hardly help each other under any codec, so the sizes of the three add up to the whole but for a share that
hardly depends on the settings. It is learned from whole artifacts: before the race from a few, and by everything that
is measured later. The entropy of the packed bytes is what a class costs before that: it needs no codec, and ranks.
"""

from __future__ import annotations

import dataclasses
import statistics

import numpy

from golfray.core.codec import compress
from golfray.core.container import Kept, Quantized, seal, write_content
from golfray.core.exporter import choose_digits
from golfray.core.settings import ExportSettings
from golfray.sweep.export_space import CLASSES, STRONGEST
from golfray.sweep.export_tensors import ExportTensors, Key


def with_codec(export: ExportSettings, codec: str, shuffle: bool) -> ExportSettings:
    """The same weights under another codec, at its strongest."""
    return dataclasses.replace(export, codec=codec, codec_level=STRONGEST[codec], shuffle=shuffle)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A whole export under the codec that makes it smallest."""

    export: ExportSettings
    content: bytes


class ExportSizes:
    """Sizes of the exports of one checkpoint, each class and each artifact compressed once."""

    def __init__(self, tensors: ExportTensors, codecs: tuple[str, ...], shuffles: tuple[bool, ...]) -> None:
        self.tensors, self.codecs, self.shuffles = tensors, codecs, shuffles
        self.ratios: dict[str, list[float]] = {codec: [] for codec in codecs}
        self.misses: dict[str, list[float]] = {codec: [] for codec in codecs}
        self._entropies: dict[tuple[Key, ...], float] = {}
        self._classes: dict[tuple[tuple[Key, ...], str], int] = {}
        self._digits: dict[tuple[Key, str], int] = {}
        self._artifacts: dict[ExportSettings, Artifact] = {}

    def class_entropy(self, kind: str, export: ExportSettings) -> float:
        """Bytes of a class by the entropy of its packed integers; steps and kept tensors count whole."""
        key = self.tensors.class_key(kind, export)
        if key not in self._entropies:
            self._entropies[key] = sum(entropy_bytes(self.tensors.stored(part)) for part in key)
        return self._entropies[key]

    def predicted(self, export: ExportSettings, codec: str) -> int:
        """Bytes of the artifact under one codec, unshuffled."""
        ratio = statistics.fmean(self.ratios[codec]) if self.ratios[codec] else 1.0
        return round(self._sum(export, codec) * ratio)

    def smallest(self, export: ExportSettings) -> int:
        """Bytes under the best codec: measured where the artifact has been made, else predicted."""
        made = self._artifacts.get(export)
        return len(made.content) if made else min(self.predicted(export, codec) for codec in self.codecs)

    def measured(self, export: ExportSettings) -> bool:
        """Whether the artifact has been made."""
        return export in self._artifacts

    def make(self, export: ExportSettings, *, every_codec: bool = False) -> Artifact:
        """The artifact under the codec, and shuffling, that make it smallest.

        Codecs that are predicted more than 1.5 % above the best, three times the error of a prediction, are left out
        unless ``every_codec``. What is measured is held against the prediction, and learned from.
        """
        if export in self._artifacts and not every_codec:
            return self._artifacts[export]
        guesses = {codec: self.predicted(export, codec) for codec in self.codecs}
        near = [codec for codec in self.codecs if every_codec or guesses[codec] <= 1.015 * min(guesses.values())]
        stored, found = self.tensors.artifact_tensors(export), []
        for codec in near:
            chosen = with_codec(export, codec, False)
            content = write_content(stored, self._choose_digits(export, codec))
            # One size is needed as it was predicted: without shuffling.
            plain = seal(content, codec, chosen.codec_level, False)
            if self.ratios[codec]:
                self.misses[codec].append(guesses[codec] / len(plain) - 1)
            self.ratios[codec].append(len(plain) / self._sum(export, codec))
            for shuffle in self.shuffles:
                sealed = seal(content, codec, chosen.codec_level, True) if shuffle else plain
                found.append(Artifact(with_codec(export, codec, shuffle), sealed))
        self._artifacts[export] = min(found, key=lambda artifact: len(artifact.content))
        return self._artifacts[export]

    def _sum(self, export: ExportSettings, codec: str) -> int:
        return sum(self._class_bytes(kind, export, codec) for kind in CLASSES)

    def _class_bytes(self, kind: str, export: ExportSettings, codec: str) -> int:
        key = self.tensors.class_key(kind, export)
        if (key, codec) not in self._classes:
            stored = {part[0]: self.tensors.stored(part) for part in key}
            digits = {part[0]: self._digits_of(part, codec) for part in key if isinstance(stored[part[0]], Quantized)}
            self._classes[key, codec] = len(compress(write_content(stored, digits), codec, STRONGEST[codec]))
        return self._classes[key, codec]

    def _choose_digits(self, export: ExportSettings, codec: str) -> dict[str, int]:
        keys = (self.tensors.key(name, export) for name in self.tensors.state)
        return {key[0]: self._digits_of(key, codec) for key in keys if isinstance(self.tensors.stored(key), Quantized)}

    def _digits_of(self, key: Key, codec: str) -> int:
        # Only zlib is measured with its own coder; the others share the choice.
        group = "zlib" if codec == "zlib" else "other"
        if (key, group) not in self._digits:
            name, stored = key[0], self.tensors.stored(key)
            chosen = choose_digits({name: stored}, with_codec(ExportSettings(format="flat"), codec, False))
            self._digits[key, group] = chosen[name]
        return self._digits[key, group]


def entropy_bytes(stored: Quantized | Kept) -> float:
    """Bytes that a tensor cannot fall short of under a code of single bytes: its packed integers' entropy, and the
    rest as it is.
    """
    if isinstance(stored, Kept):
        return float(stored.values.numel() * stored.values.element_size())
    codes = stored.codes.cpu().numpy().reshape(-1)
    counts = numpy.bincount(codes.astype(numpy.int64) + 128, minlength=1)
    shares = counts[counts > 0] / max(codes.size, 1)
    bits = float(-(shares * numpy.log2(shares)).sum()) * codes.size
    return bits / 8 + 2.0 * stored.scales.numel()
