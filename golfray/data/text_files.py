"""Documents from a person's own files: .txt or JSON lines, plain or compressed, read one document at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import lzma
import pathlib
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, cast

from golfray.data.errors import DataError

# Encoding a document takes about 60 times its bytes of memory; this many keep that at 1 GB.
MAX_DOCUMENT_BYTES = 2**24
# JSON may write a character of 1 byte as 6.
_MAX_LINE_BYTES = 6 * MAX_DOCUMENT_BYTES
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KINDS = (".txt", ".jsonl")
_SUFFIXES = "must end in .txt or .jsonl, or in one of these and .gz or .xz"


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """How files are cut into documents: ``text_key`` is where a line of JSON has its text.

    In a .txt file a line equal to ``separator`` (white space around it aside, so that "" is a blank line) ends a
    document; None makes each .txt file one document.
    """

    text_key: str = "text"
    separator: str | None = None


@dataclasses.dataclass(frozen=True)
class Document:
    """A text, its file as the number in the list of files, and the line it begins on, from 1. The text may be empty."""

    text: str
    file: int
    line: int


def read_text_files(paths: Sequence[pathlib.Path], form: TextFormat) -> Iterator[Document]:
    """The documents of the files, file after file. One document is held in memory.

    Line breaks at the ends of a .txt document and a byte order mark are no part of it; a document of a .txt file is
    never empty. Raises ``DataError`` naming file, line or byte, and what to do, for a file that is missing, of another
    kind, empty, not UTF-8, cut short or damaged, for a line that is no JSON object with the text, and for a document
    above ``MAX_DOCUMENT_BYTES``.
    """
    for number, path in enumerate(paths):
        kind = _kind(path)
        found = False
        with _opened(path) as file:
            documents = (
                _json_lines(path, file, form.text_key) if kind == ".jsonl" else _texts(path, file, form.separator)
            )
            for line, text in documents:
                found = True
                yield Document(text, number, line)
        if not found:
            raise DataError(f"{path}: no document in it; leave it out")


def _kind(path: pathlib.Path) -> str:
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name the files themselves, such as {path}/*.txt")
    if not path.is_file():
        raise DataError(f"{path}: not a file; name a .txt or .jsonl file")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] in ([".gz"], [".xz"]):
        suffixes.pop()
    if not suffixes or suffixes[-1] not in _KINDS:
        raise DataError(f"{path}: {_SUFFIXES}; rename it to what it is")
    return suffixes[-1]


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """The file's bytes as written, unpacked where its name says it is compressed."""
    try:
        raw = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    with raw, _unpacked(raw, path.suffix.lower()) as file:
        try:
            yield file
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
            raise DataError(f"{path}: cut short or damaged: {error}; fetch or pack it again") from error


def _unpacked(raw: IO[bytes], suffix: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if suffix == ".gz":
        return cast(contextlib.AbstractContextManager[IO[bytes]], gzip.GzipFile(fileobj=raw))
    if suffix == ".xz":
        return lzma.LZMAFile(raw)
    return contextlib.nullcontext(raw)


def _json_lines(path: pathlib.Path, file: IO[bytes], key: str) -> Iterator[tuple[int, str]]:
    number = 0
    while line := file.readline(_MAX_LINE_BYTES):
        number += 1
        where = f"{path}:{number}"
        if len(line) == _MAX_LINE_BYTES:
            raise DataError(f"{where}: a line above {_MAX_LINE_BYTES:,} bytes; {_TOO_LONG}")
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line.strip():
            yield number, _text_of(where, _decode(where, line), key)


def _text_of(where: str, line: str, key: str) -> str:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error.msg} at column {error.colno}; a line must be one object") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: must be an object with the key {key!r}, got {line.strip()[:40]}")
    if key not in value:
        keys = ", ".join(map(repr, list(value)[:8])) or "none"
        raise DataError(f"{where}: no key {key!r}; its keys: {keys}; say with --text-key which one holds the text")
    text = value[key]
    if not isinstance(text, str):
        raise DataError(f"{where}: {key!r} must be a string, got {json.dumps(text)[:40]}")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: half a surrogate pair (\\u{ord(text[error.start]):04x}) at character {error.start} of {key!r}, "
            "which is no character; write the text with another program"
        ) from error
    _check_size(where, size)
    return text


def _texts(path: pathlib.Path, file: IO[bytes], separator: str | None) -> Iterator[tuple[int, str]]:
    """Line numbers and texts of the documents that are not empty."""
    lines: list[bytes] = []
    mark = None if separator is None else separator.strip().encode("utf-8")
    first, number, start, size = 1, 0, 0, 0

    def document() -> Iterator[tuple[int, str]]:
        content = b"".join(lines)
        text = _decode(str(path), content, first, start)
        skipped = len(text) - len(text.lstrip("\r\n"))
        if text.strip():
            yield first + text[:skipped].count("\n"), text.strip("\r\n")

    while line := file.readline(MAX_DOCUMENT_BYTES + 1):
        number += 1
        if number == 1 and line.startswith(_BYTE_ORDER_MARK):
            line, start = line.removeprefix(_BYTE_ORDER_MARK), len(_BYTE_ORDER_MARK)
        if mark is not None and line.strip() == mark:
            yield from document()
            start += size + len(line)
            lines, first, size = [], number + 1, 0
            continue
        lines.append(line)
        size += len(line)
        _check_size(f"{path}:{first}", size)
    yield from document()


_TOO_LONG = "cut it into several documents (in a .txt file: --separator)"


def _check_size(where: str, size: int) -> None:
    if size > MAX_DOCUMENT_BYTES:
        raise DataError(f"{where}: a document above {MAX_DOCUMENT_BYTES:,} bytes; {_TOO_LONG}")


def _decode(where: str, content: bytes, first_line: int | None = None, start: int = 0) -> str:
    """UTF-8 text. ``start`` is where in the file the content begins, ``first_line`` the number of its first line."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = "" if first_line is None else f"line {first_line + content[: error.start].count(10)}, "
        what = f"{line}byte {start + error.start:,}" if line else f"byte {error.start:,} of the line"
        raise DataError(
            f"{where}: not UTF-8 at {what}: 0x{content[error.start]:02x}; convert the file, such as with iconv -t utf-8"
        ) from error
