"""A copy of a corpus on a node's own disk, made once for all who read it there, verified, within a budget of bytes.

A mirror is a folder named after the sums of its files, so that another corpus, or a changed one, is another mirror.
None is ever deleted: somebody may be training on it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import shutil
from collections.abc import Callable, Sequence

from golfray.config.sizes import size_text
from golfray.data.errors import CannotWriteError, DataError
from golfray.data.file_sums import sum_of
from golfray.data.write_once import make_folder_once, only_one

PIECE_BYTES = 32 * 1024 * 1024
_LOCK = ".golfray-mirror.lock"

# (number of the file, offset, most bytes) -> that piece of the original.
Read = Callable[[int, int, int], bytes]


@dataclasses.dataclass(frozen=True)
class Original:
    """A file to be mirrored: its name in the mirror, its size in bytes, its sha256."""

    name: str
    size: int
    sha256: str


def mirror_folder(parent: pathlib.Path, originals: Sequence[Original]) -> pathlib.Path:
    """Where the mirror of these files is, or would be."""
    digest = hashlib.sha256("\n".join(f"{original.name} {original.sha256}" for original in originals).encode())
    return parent / f"corpus-{digest.hexdigest()[:16]}"


def make_mirror(parent: pathlib.Path, originals: Sequence[Original], budget: int, read: Read) -> pathlib.Path:
    """The folder with a copy of every file; made from ``read`` where it is not there yet, verified in any case.

    ``budget``: bytes that all mirrors below ``parent`` may take together. Of several processes one copies while the
    others wait. Raises ``DataError`` where the budget or the disk has no room, or a copy is not what it must be.
    """
    folder = mirror_folder(parent, originals)
    try:
        if not folder.exists():
            parent.mkdir(parents=True, exist_ok=True)
            with only_one(parent / _LOCK):
                if not folder.exists():
                    _check_room(parent, sum(original.size for original in originals), budget)
                    remedy = "make room there, or choose another folder as nodes.mirror"
                    make_folder_once(folder, lambda place: _copy(place, originals, read), remedy)
    except OSError as error:
        raise CannotWriteError(f"cannot be a mirror: {error.strerror}", where=parent) from error
    for original in originals:
        _verify(folder / original.name, original)
    return folder


def foresee_mirror(parent: pathlib.Path, originals: Sequence[Original], budget: int) -> None:
    """Raise ``DataError`` where :func:`make_mirror` would find no room; writes nothing."""
    try:
        if not mirror_folder(parent, originals).exists():
            _check_room(parent, sum(original.size for original in originals), budget)
    except OSError as error:
        raise CannotWriteError(f"cannot be a mirror: {error.strerror}", where=parent) from error


def _check_room(parent: pathlib.Path, need: int, budget: int) -> None:
    mirrors = {path: _bytes_below(path) for path in sorted(parent.glob("corpus-*"))}
    taken = sum(mirrors.values())
    if taken + need > budget:
        others = f", and {', '.join(path.name for path in mirrors)} take {size_text(taken)} of that" if taken else ""
        raise DataError(
            f"a mirror of {size_text(need)} does not fit: nodes.mirror_gb allows {size_text(budget)}{others}",
            where=parent,
            remedy="allow more, or delete mirrors that no study reads",
        )
    free = shutil.disk_usage(next(path for path in (parent, *parent.parents) if path.exists())).free
    if need > free:
        what = f"a mirror of {size_text(need)} does not fit: this disk has {size_text(free)} free"
        raise DataError(what, where=parent, remedy="make room there, or choose another folder as nodes.mirror")


def _bytes_below(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _copy(place: pathlib.Path, originals: Sequence[Original], read: Read) -> None:
    for number, original in enumerate(originals):
        digest, offset = hashlib.sha256(), 0
        with (place / original.name).open("wb") as file:
            while offset < original.size:
                piece = read(number, offset, min(PIECE_BYTES, original.size - offset))
                if not piece:
                    break
                file.write(piece)
                digest.update(piece)
                offset += len(piece)
        if offset != original.size or digest.hexdigest() != original.sha256:
            raise DataError(
                f"what was read of it is not the driver's file: {offset:,} bytes, sha256 {digest.hexdigest()}; must "
                f"be {original.size:,} bytes, sha256 {original.sha256}",
                where=original.name,
                remedy="`golfray data check` says whether the driver's own is whole",
            )


def _verify(path: pathlib.Path, original: Original) -> None:
    try:
        whole = path.stat().st_size == original.size and sum_of(path) == original.sha256
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=path, remedy=_again(path)) from error
    if not whole:
        raise DataError("is not what was copied here", where=path, remedy=_again(path))


def _again(path: pathlib.Path) -> str:
    return f"delete the folder {path.parent}, and it is copied again"
