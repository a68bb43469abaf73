"""How large an export is under each codec, ever more exactly: by entropy, from its classes, or as a whole.

*By entropy*: of the integers, plus steps and kept tensors as they are; it needs no codec, and ranks proposals. *From
its classes*: each compressed once under each codec, however many settings share it; classes hardly help each other, so
their sizes add up to the whole but for a share that whole artifacts show. *As a whole*: the artifact itself. Every size
that is measured is held against what was predicted of it.
"""

from __future__ import annotations

import dataclasses
import lzma
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy

from golfray.core.codec import LZMA_FILTER, compress
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

    ``codecs``: all are predicted; ``likely`` are those of which artifacts are made, once :meth:`learn` has seen which
    have a chance. ``threads`` compress side by side; ``pulse`` is called as each is done. ``errors``: of predictions
    from classes, as shares of what was then measured, by codec.
    """

    def __init__(
        self,
        tensors: ExportTensors,
        codecs: tuple[str, ...],
        shuffles: tuple[bool, ...],
        threads: int = 1,
        pulse: Callable[[], None] = lambda: None,
    ) -> None:
        self.tensors, self.codecs, self.shuffles = tensors, codecs, shuffles
        self._threads, self._pulse = threads, pulse
        self.likely = codecs
        self.errors: dict[str, list[float]] = {}
        self._ratios: dict[str, list[float]] = {codec: [] for codec in codecs}
        self._entropies: dict[tuple[Key, ...], float] = {}
        self._classes: dict[tuple[tuple[Key, ...], str], int] = {}
        self._digits: dict[tuple[Key, bool], int] = {}
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

    def learn(self, exports: list[ExportSettings], anchors: list[ExportSettings]) -> None:
        """Compress the classes of ``exports`` under every codec, and ``anchors`` among them as a whole.

        By what these show, the others are predicted from now on.
        """
        keys = dict.fromkeys(self.tensors.class_key(kind, export) for export in exports for kind in CLASSES)
        jobs = [(key, codec) for key in keys for codec in self.codecs]
        contents = [self._class_content(key, codec) for key, codec in jobs]
        self._classes.update(zip(jobs, self._in_parallel(compressed_size, contents, jobs), strict=True))
        whole = [(export, codec, False) for export in anchors for codec in self.codecs]
        found = {job[:2]: size for job, size in zip(whole, self._seal_all(whole), strict=True)}
        for codec in self.codecs:
            ratios = [found[export, codec] / self._class_sum(export, codec) for export in anchors]
            self._ratios[codec] = ratios
            for place, ratio in enumerate(ratios[: len(ratios) if len(ratios) > 1 else 0]):
                # What the other anchors say of this one.
                others = statistics.median(ratios[:place] + ratios[place + 1 :])
                self.errors.setdefault(codec, []).append(others / ratio - 1)
        excess = {
            codec: statistics.fmean(
                found[export, codec] / min(found[export, other] for other in self.codecs) for export in anchors
            )
            for codec in self.codecs
        }
        self.likely = tuple(codec for codec in self.codecs if excess[codec] <= max(_HOPELESS, min(excess.values())))

    def predicted(self, export: ExportSettings) -> dict[str, int]:
        """Bytes under each codec, from the classes."""
        return {
            codec: round(self._class_sum(export, codec) * statistics.median(self._ratios[codec]))
            for codec in self.codecs
        }

    def smallest(self, export: ExportSettings) -> int:
        """Bytes under the best codec, as exactly as they are known."""
        if export in self._artifacts:
            return len(self._artifacts[export].content)
        return min(self.predicted(export).values())

    def measured(self, export: ExportSettings) -> bool:
        """Whether the artifact has been made."""
        return export in self._artifacts

    def best_export(self, export: ExportSettings) -> ExportSettings:
        """The settings under the codec that makes, or is predicted to make, the artifact smallest."""
        if export in self._artifacts:
            return self._artifacts[export].export
        sizes = self.predicted(export)
        return with_codec(export, min(sizes, key=lambda codec: sizes[codec]), False)

    def make(self, exports: list[ExportSettings], *, shuffled: bool) -> None:
        """Make artifacts, each under those likely codecs whose prediction is close to the best one's.

        With ``shuffled`` both orders of bytes are tried, where the space has them.
        """
        jobs, guesses = [], {}
        for export in exports:
            if export not in self._artifacts:
                guesses[export] = {
                    codec: size for codec, size in self.predicted(export).items() if codec in self.likely
                }
                best = min(guesses[export].values())
                jobs += [(export, codec, False) for codec, size in guesses[export].items() if size <= _CLOSE * best]
        for (export, codec, _), size in zip(jobs, self._seal_all(jobs), strict=True):
            self.errors.setdefault(codec, []).append(guesses[export][codec] / size - 1)
            self._ratios[codec].append(size / self._class_sum(export, codec))
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
    if job[1] == "lzma":
        # The same bytes as with a dictionary of 16 MiB, of which there are then no tables to clear.
        small = {**LZMA_FILTER, "dict_size": min(max(len(content), 4096), 2**24), "preset": STRONGEST["lzma"]}
        return len(lzma.compress(content, lzma.FORMAT_RAW, filters=[small]))
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
