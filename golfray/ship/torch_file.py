"""Files that torch.save wrote, read without unpickling them.

torch.load runs a pickle program even with ``weights_only``, and what that allows is not bounded: a file of one kilobyte
can ask it for a bytearray of any length. Here the program is walked opcode by opcode. It may build dicts, lists,
tuples, texts and numbers, and say where in the file a tensor lies; a word of anything else ends it. Nothing of a tensor
is read before its shape has been compared with the bytes that are there.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import pickletools
import struct
import sys
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import torch

# The pickle of a thousand layers has three megabytes, the archive's directory less.
_LARGEST_PICKLE = 2**22
_LARGEST_DIRECTORY = 2**24
_LARGEST_SIZE = 2**40
_MOST_DIMENSIONS = 8

_STORAGES = {
    "torch DoubleStorage": torch.float64,
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
}
_TENSOR = "torch._utils _rebuild_tensor_v2"
_PARAMETER = "torch._utils _rebuild_parameter"
_ORDERED_DICT = "collections OrderedDict"
_KNOWN = frozenset({_TENSOR, _PARAMETER, _ORDERED_DICT, *_STORAGES})


@dataclasses.dataclass(frozen=True)
class Storage:
    """``count`` elements of one dtype in the archive's member data/``key``."""

    key: str
    dtype: torch.dtype
    count: int


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor that has not been read: its elements are contiguous from ``offset`` (elements) of a storage on."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Of the elements."""
        return self.storage.dtype


class TorchFile:
    """A file in the zip form of torch.save; ``content`` is what was saved, with a :class:`StoredTensor` for a tensor.

    Raises ``ValueError`` where it is damaged or cut, needs more than plain data and contiguous tensors, or claims more
    than it holds.
    """

    def __init__(self, file: BinaryIO) -> None:
        bounded = _Bounded(file)
        size = bounded.size
        with _damage_said("holds no saved container"):
            self._archive = zipfile.ZipFile(bounded)
            members = self._archive.infolist()
        bounded.most = size
        self._members = {member.filename: member for member in members}
        if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
            raise ValueError("holds compressed members, which torch.save never writes")
        if any(member.compress_size != member.file_size for member in members):
            raise ValueError("has members of two sizes")
        if len(self._members) < len(members) or sum(member.file_size for member in members) > size:
            raise ValueError("has members that claim more bytes than it has, or stand twice")
        self._loaded: dict[int, dict[str, Any]] = {}
        roots = [name.removesuffix("data.pkl") for name in self._members if name.count("/") == 1]
        self._root = next((root for root in roots if f"{root}data.pkl" in self._members), "")
        if self._members.get(f"{self._root}byteorder") and self._read("byteorder", 16) != b"little":
            raise ValueError("has numbers that are not little-endian")
        self.content = self._checked(walk_pickle(self._read("data.pkl", _LARGEST_PICKLE)), size)

    def load(self, stored: Any) -> Any:
        """A part of ``content`` with real tensors for stored ones; raises ``ValueError`` where bytes are damaged."""
        if isinstance(stored, dict):
            if id(stored) not in self._loaded:
                # Before its parts: a dict may stand in many others, and in itself.
                self._loaded[id(stored)] = found = {}
                found.update({name: self.load(part) for name, part in stored.items()})
            return self._loaded[id(stored)]
        if not isinstance(stored, StoredTensor):
            return stored
        count, size = math.prod(stored.shape), stored.dtype.itemsize
        if not count:
            return torch.empty(stored.shape, dtype=stored.dtype)
        storage = bytearray(self._read(f"data/{stored.storage.key}", _LARGEST_SIZE))
        flat = torch.frombuffer(storage, dtype=stored.dtype, count=count, offset=stored.offset * size)
        return flat.reshape(stored.shape)

    def _read(self, name: str, largest: int) -> bytes:
        member = self._members.get(f"{self._root}{name}")
        if member is None:
            raise ValueError(f"has no {name}")
        if member.file_size > largest:
            raise ValueError(f"has a {name} of {member.file_size:,} bytes, at most {largest:,} are possible")
        with _damage_said(f"has a {name} that is damaged"):
            content = self._archive.read(member)
        if len(content) != member.file_size:
            raise ValueError(f"has a {name} that is cut short")
        return content

    def _checked(self, value: Any, most_bytes: int) -> Any:
        """The value, whose every tensor lies within its storage and every storage is a member of just its size.

        Tensors may share one, but together they may not come to more than ``most_bytes``.
        """
        parts, seen, read = collections.deque([value]), set(), 0
        while parts:
            part = parts.popleft()
            if isinstance(part, dict) and id(part) not in seen:
                seen.add(id(part))
                parts.extend(part.values())
            elif isinstance(part, StoredTensor):
                storage = part.storage
                member = self._members.get(f"{self._root}data/{storage.key}")
                if member is None or member.file_size != storage.count * storage.dtype.itemsize:
                    raise ValueError("has a tensor whose storage is missing, or of another size")
                if part.offset + math.prod(part.shape) > storage.count:
                    raise ValueError("has a tensor that is larger than its storage")
                read += member.file_size
        if read > most_bytes:
            raise ValueError("has tensors that share their bytes; save each as tensor.clone()")
        return value


@contextlib.contextmanager
def _damage_said(what: str) -> Iterator[None]:
    """A damaged archive is a ``ValueError`` that says ``what``; a disk that cannot be read stays the disk's fault."""
    outside = sys.exc_info()[1]  # what a caller is dealing with already is no cause of what happens here
    try:
        yield
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, struct.error, ValueError) as error:
        # zipfile calls what a disk said no zip file.
        cause: BaseException | None = error
        while cause is not None and cause is not outside:
            if isinstance(cause, OSError) and not isinstance(cause, _OutsideError):
                raise cause from None
            cause = cause.__context__
        raise ValueError(f"{what}: {error}") from error


class _OutsideError(OSError):
    """A place outside a file, which damage can name; zipfile expects of a file that it refuses one so."""


class _Bounded:
    """A file of which at most ``most`` bytes can be asked for at once: first those that a directory can have.

    Places outside it are refused here, before the file is asked: no error of the file itself is about one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.most, self.size = file, _LARGEST_DIRECTORY, file.seek(0, 2)
        self.tell, self.seekable = file.tell, file.seekable

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place, from the beginning, here or the end. Raises ``_OutsideError`` outside the file."""
        place += (0, self._file.tell(), self.size)[whence]
        if not 0 <= place <= self.size:
            raise _OutsideError(f"place {place} is outside its {self.size} bytes")
        return self._file.seek(place)

    def read(self, count: int = -1) -> bytes:
        """At most ``count`` bytes, or all that are left where it is negative."""
        if count < 0:
            count = max(self.size - self._file.tell(), 0)
        if count > self.most:
            raise ValueError(f"{count} bytes are wanted of it at once, at most {self.most} are possible")
        return self._file.read(count)


class _Mark:
    """Where a tuple, a list or a run of items begins."""


@dataclasses.dataclass(frozen=True)
class _Word:
    """A name of Python's that a pickle calls; only those in ``_KNOWN``, and they are never looked up."""

    name: str


def walk_pickle(program: bytes) -> Any:
    """What a pickle of dicts, lists, tuples, texts, numbers and torch's tensors describes; nothing is imported or run.

    Raises ``ValueError`` where it is damaged, needs anything else, or has a key that is no text.
    """
    try:
        return _Walk().run(program)
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError("has a pickle that is damaged") from error


class _Walk:
    """The state of a pickle program: what it has built, and what it has given a number."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[Any, Any] = {}

    def run(self, program: bytes) -> Any:
        """Walk to the end of the program."""
        for opcode, argument, _ in pickletools.genops(program):
            name = opcode.name
            if name in _PUSHED:
                self.stack.append(_PUSHED[name])
            elif name in ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"):
                self.stack.append(argument)
            elif name in ("MARK", "EMPTY_DICT", "EMPTY_LIST"):
                self.stack.append({"MARK": _Mark, "EMPTY_DICT": dict, "EMPTY_LIST": list}[name]())
            elif name in ("BINPUT", "LONG_BINPUT"):
                self.memo[argument] = self.stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                self.stack.append(self.memo[argument])
            elif name == "GLOBAL":
                if argument not in _KNOWN:
                    raise ValueError(f"needs {str(argument)[:80].replace(' ', '.')} to be read, which is no plain data")
                self.stack.append(_Word(argument))
            elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
                self.stack.append(tuple(self._pop(int(name[-1]))))
            elif name == "TUPLE":
                self.stack.append(tuple(self._pop_to_mark()))
            elif name in ("SETITEM", "SETITEMS"):
                self._set(self._pop(2) if name == "SETITEM" else self._pop_to_mark())
            elif name in ("APPEND", "APPENDS"):
                items = self._pop(1) if name == "APPEND" else self._pop_to_mark()
                _of(list, self.stack[-1]).extend(items)
            elif name == "BINPERSID":
                self.stack.append(_storage(self.stack.pop()))
            elif name == "REDUCE":
                word, arguments = self._pop(2)
                self.stack.append(_called(_of(_Word, word).name, _of(tuple, arguments)))
            elif name == "BUILD":
                # The versions of the modules that a state dict carries along.
                attributes = _of(dict, self.stack.pop())
                if not isinstance(self.stack[-1], dict) or attributes.keys() - {"_metadata"}:
                    raise ValueError("needs more than plain data to be read")
            elif name not in ("PROTO", "STOP"):
                raise ValueError(f"has the pickle opcode {name}, which torch.save does not write")
        (value,) = self.stack
        return value

    def _pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError("nothing is left")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def _pop_to_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while not isinstance(self.stack[place], _Mark):
            place -= 1
            if place < 0:
                raise IndexError("no mark is left")
        taken = self.stack[place + 1 :]
        del self.stack[place:]
        return taken

    def _set(self, items: list[Any]) -> None:
        target = _of(dict, self.stack[-1])
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise ValueError(f"has a key that is {type(key).__name__}, must be text")
            target[key] = value


_PUSHED = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where {kind.__name__} must be")
    return value


def _storage(place: Any) -> Storage:
    label, word, key, _, count = _of(tuple, place)
    if label != "storage" or word.name not in _STORAGES or not isinstance(key, str) or not _is_size(count):
        raise ValueError("has a storage of an unknown kind")
    return Storage(key, _STORAGES[word.name], count)


def _called(name: str, arguments: tuple[Any, ...]) -> Any:
    if name == _ORDERED_DICT and not arguments:
        return {}
    if name == _PARAMETER:
        return _of(StoredTensor, arguments[0])
    if name != _TENSOR:
        raise ValueError("needs more than plain data to be read")
    storage, offset, shape, strides, *_ = arguments
    shape, strides = _of(tuple, shape), _of(tuple, strides)
    sizes = (offset, *shape, *strides)
    if not all(map(_is_size, sizes)) or len(shape) != len(strides) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError("has a tensor with sizes that no tensor has")
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected and 0 not in shape:
            raise ValueError("must hold plain contiguous tensors; save each as tensor.contiguous()")
        expected *= size
    return StoredTensor(_of(Storage, storage), offset, shape)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST_SIZE
