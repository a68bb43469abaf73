"""How large an export is under each codec, to the byte: an artifact is a line and its classes, each packed by itself.

So each class is compressed once under each codec, however many settings share it, and no artifact is made to know its
size. *By entropy* a class needs no codec at all: bytes of its integers under an ideal code, plus steps and kept tensors
as they are; that ranks proposals.
"""

from __future__ import annotations

import dataclasses
import lzma
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy

from golfray.core.codec import LZMA_FILTER, compress
from golfray.core.container import Kept, Quantized, first_line, seal, write_part
from golfray.core.exporter import choose_digits
from golfray.core.settings import ExportSettings
from golfray.sweep.export_space import CLASSES, STRONGEST
from golfray.sweep.export_tensors import ExportTensors, Key

# Digits of the CRC32 and the end of the line that first_line leaves out.
_LINE_END = 9


def with_codec(export: ExportSettings, codec: str, shuffle: bool) -> ExportSettings:
    """The same weights under another codec, at its strongest."""
    return dataclasses.replace(export, codec=codec, codec_level=STRONGEST[codec], shuffle=shuffle)


@dataclasses.dataclass(frozen=True)
class Packing:
    """How the bytes of a class are packed: the codec, and whether floating-point planes are shuffled."""

    codec: str
    shuffle: bool


# A class as one rule a tensor makes it, and how it is packed.
_Job = tuple[tuple[Key, ...], Packing]


class ExportSizes:
    """Sizes of the exports of one checkpoint; each class is compressed once under each codec and order of bytes.

    ``threads`` compress side by side; ``pulse`` is called as each is done.
    """

    def __init__(
        self,
        tensors: ExportTensors,
        codecs: tuple[str, ...],
        shuffles: tuple[bool, ...],
        threads: int = 1,
        pulse: Callable[[], None] = lambda: None,
    ) -> None:
        self.tensors = tensors
        self.packings = tuple(Packing(codec, shuffle) for codec in codecs for shuffle in shuffles)
        self._threads, self._pulse = threads, pulse
        self._entropies: dict[tuple[Key, ...], float] = {}
        self._packed: dict[_Job, tuple[int, int]] = {}
        self._digits: dict[tuple[tuple[Key, ...], bool], dict[str, int]] = {}

    def entropy(self, export: ExportSettings) -> float:
        """Bytes of all classes by entropy."""
        return sum(self.class_entropy(kind, export) for kind in CLASSES)

    def class_entropy(self, kind: str, export: ExportSettings) -> float:
        """Bytes of one class by entropy."""
        key = self.tensors.class_key(kind, export)
        if key not in self._entropies:
            self._entropies[key] = sum(entropy_bytes(self.tensors.stored(part)) for part in key)
        return self._entropies[key]

    def learn(self, exports: list[ExportSettings], packings: tuple[Packing, ...] | None = None) -> None:
        """Compress the classes of some exports side by side, under every packing unless told otherwise."""
        waiting: deque[tuple[_Job, int, Future[int]]] = deque()

        def settle() -> None:
            job, length, packed = waiting.popleft()
            self._packed[job] = length, packed.result()
            self._pulse()

        with ThreadPoolExecutor(self._threads) as pool:
            for job in self._jobs(exports, self.packings if packings is None else packings):
                # No more parts in memory than keep all threads busy.
                if len(waiting) > 4 * self._threads:
                    settle()
                part = self._part(*job)
                waiting.append((job, len(part), pool.submit(packed_size, part, job[1].codec)))
            while waiting:
                settle()

    def _jobs(self, exports: list[ExportSettings], packings: tuple[Packing, ...]) -> list[_Job]:
        """What has not been compressed yet."""
        keys = dict.fromkeys(key for export in exports for key in self._keys(export))
        return [(key, packing) for key in keys for packing in packings if (key, packing) not in self._packed]

    def sizes(self, export: ExportSettings) -> dict[Packing, int]:
        """Bytes of the artifact under each codec and order of bytes."""
        self.learn([export])
        return {packing: self.size(export, packing) for packing in self.packings}

    def size(self, export: ExportSettings, packing: Packing) -> int:
        """Bytes of the artifact under one packing, for which no other is tried."""
        self.learn([export], (packing,))
        sizes = [self._packed[key, packing] for key in self._keys(export)]
        return len(first_line(sizes, packing.codec, packing.shuffle)) + _LINE_END + sum(packed for _, packed in sizes)

    def smallest(self, export: ExportSettings) -> int:
        """Bytes of the artifact under the codec that makes it smallest."""
        return min(self.sizes(export).values())

    def best_export(self, export: ExportSettings) -> ExportSettings:
        """The settings under the codec and the order of bytes that make the artifact smallest."""
        best = self.best_packing(export)
        return with_codec(export, best.codec, best.shuffle)

    def best_packing(self, export: ExportSettings) -> Packing:
        """The codec and the order of bytes that make the artifact smallest."""
        sizes = self.sizes(export)
        return min(sizes, key=lambda packing: sizes[packing])

    def by_codec(self, export: ExportSettings) -> dict[str, int]:
        """Bytes of the artifact under each codec, in its better order of bytes."""
        found: dict[str, int] = {}
        for packing, size in self.sizes(export).items():
            found[packing.codec] = min(size, found.get(packing.codec, size))
        return found

    def artifact(self, export: ExportSettings) -> bytes:
        """The artifact under the codec that the settings name, equal to what they make of the checkpoint elsewhere."""
        packing = Packing(export.codec, export.shuffle)
        parts = [self._part(key, packing) for key in self._keys(export)]
        with ThreadPoolExecutor(self._threads) as pool:
            packed = list(pool.map(lambda part: compress(part, packing.codec, STRONGEST[packing.codec]), parts))
        return seal(parts, packed, packing.codec, packing.shuffle)

    def _keys(self, export: ExportSettings) -> list[tuple[Key, ...]]:
        """Keys of the classes that have tensors, in the order of their parts."""
        return [key for kind in sorted(CLASSES) if (key := self.tensors.class_key(kind, export))]

    def _part(self, key: tuple[Key, ...], packing: Packing) -> bytes:
        """A class, uncompressed."""
        stored = self.tensors.class_tensors(key)
        # Only zlib is measured with its own coder; the others share the choice.
        place = key, packing.codec == "zlib"
        if place not in self._digits:
            self._digits[place] = choose_digits(stored, with_codec(ExportSettings(), packing.codec, packing.shuffle))
        return write_part(stored, self._digits[place], packing.shuffle)


def packed_size(content: bytes, codec: str) -> int:
    """Bytes of a part under a codec at its strongest."""
    if codec == "lzma":
        # The same bytes as with a dictionary of 16 MiB, of which there are then no tables to clear.
        small = {**LZMA_FILTER, "dict_size": min(max(len(content), 4096), 2**24), "preset": STRONGEST["lzma"]}
        return len(lzma.compress(content, lzma.FORMAT_RAW, filters=[small]))
    return len(compress(content, codec, STRONGEST[codec]))


def entropy_bytes(stored: Quantized | Kept) -> float:
    """Bytes of a tensor: its integers under an ideal code that knows how often each occurs, and the rest as it is."""
    if isinstance(stored, Kept):
        return float(stored.values.numel() * stored.values.element_size())
    counts = numpy.bincount(stored.codes.cpu().numpy().reshape(-1).astype(numpy.int64) + 128)
    counts = counts[counts > 0]
    bits = float((counts * numpy.log2(counts.sum() / counts)).sum()) if len(counts) else 0.0
    return bits / 8 + 2.0 * stored.scales.numel()
