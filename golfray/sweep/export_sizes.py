"""How large an export is under each codec, ever more exactly: by entropy, from its classes, or as a whole.

*By entropy*: of the integers, plus steps and kept tensors as they are, times what a few whole artifacts showed the best
codec to make of that. It needs no codec. *From its classes*: each compressed once, however many settings share it;
classes hardly help each other, so their sizes add up to the whole but for a share that whole artifacts show. *As a
whole*: the artifact itself. Every size that is measured is held against what was predicted of it.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy

from golfray.core.codec import compress
from golfray.core.container import Kept, Quantized, seal, write_content
from golfray.core.exporter import choose_digits
from golfray.core.settings import ExportSettings
from golfray.sweep.export_space import CLASSES, STRONGEST
from golfray.sweep.export_tensors import ExportTensors, Key

Job = TypeVar("Job")
Result = TypeVar("Result")

# A codec that makes the first artifacts this much larger in the mean than the best one does is not tried again.
_HOPELESS = 1.03
# Codecs predicted this near to the best are tried on an artifact.
_CLOSE = 1.015


def with_codec(export: ExportSettings, codec: str, shuffle: bool) -> ExportSettings:
    """The same weights under another codec, at its strongest."""
    return dataclasses.replace(export, codec=codec, codec_level=STRONGEST[codec], shuffle=shuffle)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A whole export under the codec that has made it smallest so far."""

    export: ExportSettings
    content: bytes


class ExportSizes:
    """Sizes of the exports of one checkpoint; each class and each artifact is compressed once under each codec.

    ``codecs`` shrinks to those that have a chance. ``threads``: that compress side by side, None: as many as there are
    cores; ``pulse`` is called as each is done. ``errors``: of predictions, as shares of what was then measured, by
    "entropy" (of the best codec) or codec (from classes).
    """

    def __init__(
        self,
        tensors: ExportTensors,
        codecs: tuple[str, ...],
        shuffles: tuple[bool, ...],
        threads: int | None = None,
        pulse: Callable[[], None] = lambda: None,
    ) -> None:
        self.tensors, self.codecs, self.shuffles = tensors, codecs, shuffles
        self._threads = len(os.sched_getaffinity(0)) if threads is None else threads
        self._pulse = pulse
        self.errors: dict[str, list[float]] = {}
        self._anchors: list[tuple[float, float, str]] = []
        self._ratios: dict[str, list[float]] = {codec: [] for codec in codecs}
        self._entropies: dict[tuple[Key, ...], float] = {}
        self._classes: dict[tuple[tuple[Key, ...], str], int] = {}
        self._digits: dict[tuple[Key, bool], int] = {}
        self._sharp: set[ExportSettings] = set()
        self._done: set[ExportSettings] = set()
        self._artifacts: dict[ExportSettings, Artifact] = {}

    def entropy(self, export: ExportSettings) -> float:
        """Bytes of all classes by entropy."""
        return sum(self.class_entropy(kind, export) for kind in CLASSES)

    def class_entropy(self, kind: str, export: ExportSettings) -> float:
        """Bytes of one class by entropy."""
        key = self.tensors.class_key(kind, export)
        if key not in self._entropies:
            self._entropies[key] = sum(entropy_bytes(self.tensors.stored(part)) for part in key)
        return self._entropies[key]

    def learn(self, exports: list[ExportSettings]) -> None:
        """Make whole artifacts of ``exports`` under every codec; what they show, predictions go by from now on."""
        sizes = []
        for export in exports:
            found = dict(
                zip(self.codecs, self._seal_all([(export, codec, False) for codec in self.codecs]), strict=True)
            )
            best = min(found, key=lambda codec: found[codec])
            self._anchors.append((self.entropy(export), found[best] / self.entropy(export), best))
            sizes.append(found)
        self._anchors.sort()
        excess = {codec: statistics.fmean(found[codec] / min(found.values()) for found in sizes) for codec in sizes[0]}
        self.codecs = tuple(codec for codec in self.codecs if excess[codec] <= max(_HOPELESS, min(excess.values())))
        self.sharpen(exports)
        for export, found in zip(exports, sizes, strict=True):
            for codec in self.codecs:
                self._ratios[codec].append(found[codec] / self._class_sum(export, codec))

    def sharpen(self, exports: list[ExportSettings]) -> None:
        """Predict these from their classes from now on."""
        self._sharp.update(exports)
        keys = dict.fromkeys(self.tensors.class_key(kind, export) for export in exports for kind in CLASSES)
        missing = [(key, codec) for key in keys for codec in self.codecs if (key, codec) not in self._classes]
        contents = [self._class_content(key, codec) for key, codec in missing]
        self._classes.update(zip(missing, self._in_parallel(compressed_size, contents, missing), strict=True))

    def smallest(self, export: ExportSettings) -> int:
        """Bytes under the best codec, as exactly as they are known. Before :meth:`learn` only what is made is known."""
        if export in self._artifacts:
            return len(self._artifacts[export].content)
        if export in self._sharp:
            return min(self._from_classes(export, codec) for codec in self.codecs)
        return self._from_entropy(export)

    def measured(self, export: ExportSettings) -> bool:
        """Whether the artifact has been made."""
        return export in self._artifacts

    def best_export(self, export: ExportSettings) -> ExportSettings:
        """The settings under the codec that makes, or is predicted to make, the artifact smallest."""
        if export in self._artifacts:
            return self._artifacts[export].export
        if export in self._sharp:
            return with_codec(export, min(self.codecs, key=lambda codec: self._from_classes(export, codec)), False)
        entropy = self.entropy(export)
        return with_codec(export, min(self._anchors, key=lambda anchor: abs(anchor[0] - entropy))[2], False)

    def make(self, exports: list[ExportSettings], *, shuffled: bool) -> None:
        """Make artifacts, each under those codecs whose prediction is close to the best one's.

        With ``shuffled`` both orders of bytes are tried, where the space has them.
        """
        self.sharpen(exports)
        plain, guesses = [], {}
        for export in exports:
            guesses[export] = {codec: self._from_classes(export, codec) for codec in self.codecs}
            near = [codec for codec in self.codecs if guesses[export][codec] <= _CLOSE * min(guesses[export].values())]
            if export not in self._artifacts:
                plain += [(export, codec, False) for codec in near]
        rough = {export: self._from_entropy(export) for export in exports}
        made = dict(zip(plain, self._seal_all(plain), strict=True))
        for (export, codec, _), size in made.items():
            self.errors.setdefault(codec, []).append(guesses[export][codec] / size - 1)
            self._ratios[codec].append(size / self._class_sum(export, codec))
        for export in dict.fromkeys(export for export, _, _ in plain):
            best = len(self._artifacts[export].content)
            self.errors.setdefault("entropy", []).append(rough[export] / best - 1)
        if shuffled and True in self.shuffles:
            # What shuffling gains is less than what parts two codecs.
            left = [export for export in exports if export not in self._done]
            self._done.update(left)
            self._seal_all([(export, self._artifacts[export].export.codec, True) for export in left])

    def _seal_all(self, jobs: list[tuple[ExportSettings, str, bool]]) -> list[int]:
        """Make artifacts side by side; keeps the smallest of each export and returns the size of each."""
        contents = [self._content(export, codec) for export, codec, _ in jobs]
        sealed = self._in_parallel(seal_job, contents, jobs)
        for (export, codec, shuffle), content in zip(jobs, sealed, strict=True):
            best = self._artifacts.get(export)
            if best is None or len(content) < len(best.content):
                self._artifacts[export] = Artifact(with_codec(export, codec, shuffle), content)
        return [len(content) for content in sealed]

    def make_under(self, export: ExportSettings, codec: str, shuffle: bool) -> Artifact:
        """The artifact under one codec, whatever others would do."""
        if export not in self._artifacts:
            self._seal_all([(export, codec, shuffle)])
        return self._artifacts[export]

    def _content(self, export: ExportSettings, codec: str) -> bytes:
        """The uncompressed artifact."""
        stored = self.tensors.artifact_tensors(export)
        keys = (self.tensors.key(name, export) for name in stored)
        digits = {key[0]: self._digits_of(key, codec) for key in keys if isinstance(stored[key[0]], Quantized)}
        return write_content(stored, digits)

    def _from_entropy(self, export: ExportSettings) -> int:
        entropy = self.entropy(export)
        places, ratios, _ = zip(*self._anchors, strict=True)
        return round(entropy * float(numpy.interp(entropy, places, ratios)))

    def _from_classes(self, export: ExportSettings, codec: str) -> int:
        return round(self._class_sum(export, codec) * statistics.median(self._ratios[codec]))

    def _class_sum(self, export: ExportSettings, codec: str) -> int:
        return sum(self._classes[self.tensors.class_key(kind, export), codec] for kind in CLASSES)

    def _class_content(self, key: tuple[Key, ...], codec: str) -> bytes:
        stored = {part[0]: self.tensors.stored(part) for part in key}
        whole = [part for part in key if isinstance(stored[part[0]], Quantized)]
        return write_content(stored, {part[0]: self._digits_of(part, codec) for part in whole})

    def _digits_of(self, key: Key, codec: str) -> int:
        # Only zlib is measured with its own coder; the others share the choice.
        place = key, codec == "zlib"
        if place not in self._digits:
            chosen = choose_digits({key[0]: self.tensors.stored(key)}, with_codec(ExportSettings(), codec, False))
            self._digits[place] = chosen[key[0]]
        return self._digits[place]

    def _in_parallel(
        self, work: Callable[[bytes, Job], Result], contents: list[bytes], jobs: list[Job]
    ) -> list[Result]:
        """``work(content, job)`` of each, in order, side by side: codecs work without the interpreter's lock."""
        done = []
        with ThreadPoolExecutor(self._threads) as pool:
            for result in pool.map(work, contents, jobs):
                done.append(result)
                self._pulse()
        return done


def compressed_size(content: bytes, job: tuple[object, str]) -> int:
    """Bytes of a class under the codec of a job."""
    return len(compress(content, job[1], STRONGEST[job[1]]))


def seal_job(content: bytes, job: tuple[object, str, bool]) -> bytes:
    """An artifact under the codec and order of bytes of a job."""
    return seal(content, job[1], STRONGEST[job[1]], job[2])


def entropy_bytes(stored: Quantized | Kept) -> float:
    """Bytes of a tensor: its integers under an ideal code that knows how often each occurs, and the rest as it is."""
    if isinstance(stored, Kept):
        return float(stored.values.numel() * stored.values.element_size())
    counts = numpy.bincount(stored.codes.cpu().numpy().reshape(-1).astype(numpy.int64) + 128)
    counts = counts[counts > 0]
    bits = float((counts * numpy.log2(counts.sum() / counts)).sum()) if len(counts) else 0.0
    return bits / 8 + 2.0 * stored.scales.numel()
