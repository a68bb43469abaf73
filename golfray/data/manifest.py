"""``manifest.json``: what a corpus folder holds, how it was made, and the hashes to check it by."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

from golfray.config.sizes import count_text
from golfray.data.durable import write_whole
from golfray.data.errors import DataError

FILE_NAME = "manifest.json"
FORMAT = "golfray-corpus/1"


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """One file of the folder."""

    file: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Split:
    """One part of a corpus, in UTF-8 bytes: ``text_bytes`` of the documents as given, ``normalised_bytes`` of what they
    are to the tokenizer (None where that was not counted), ``scored_bytes`` of what bits per byte divides by.
    """

    documents: int
    tokens: int
    text_bytes: int
    scored_bytes: int
    shards: list[FileEntry]
    normalised_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Written last into a corpus folder; ``reference_points`` are bits per scored byte of the validation split.

    ``contaminated``: whether validation documents are training documents too; None where that could not be found out.
    """

    name: str
    demo: bool
    contaminated: bool | None
    warning: str
    recipe: dict[str, Any]
    documents_sha256: str
    tokenizer: FileEntry
    vocab_size: int
    train: Split
    val: Split
    reference_points: dict[str, float]

    def entries(self) -> list[FileEntry]:
        """Every file that the manifest speaks for."""
        return [self.tokenizer, *self.train.shards, *self.val.shards]

    @property
    def digest(self) -> str:
        """sha256 over the hashes of all files: equal for two folders that hold the same corpus, wherever they lie."""
        return hashlib.sha256("\n".join(entry.sha256 for entry in self.entries()).encode()).hexdigest()

    def describe(self) -> list[str]:
        """Lines for a person: how much there is, what it scores without a model, and what to know of it."""
        points = ", ".join(f"{name} {value:.2f}" for name, value in self.reference_points.items())
        return [
            *(
                f"{name}: {count_text(split.documents, 'document')}, {split.tokens:,} tokens of {self.vocab_size:,} "
                f"pieces, {split.scored_bytes:,} bytes, {count_text(len(split.shards), 'shard')}"
                for name, split in (("train", self.train), ("val", self.val))
            ),
            f"on its validation text, in bits per byte: {points}",
            *([self.warning] if self.warning else []),
        ]


def describe_file(path: pathlib.Path) -> FileEntry:
    """Name, size and hash of a file as it is now."""
    with open(path, "rb") as file:
        return FileEntry(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def write_manifest(folder: pathlib.Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into the folder, whole, in place of one that is there; raises ``OSError``."""
    text = json.dumps({"format": FORMAT, **dataclasses.asdict(manifest)}, indent=2, ensure_ascii=False)
    write_whole(folder / FILE_NAME, f"{text}\n".encode())


def read_manifest(folder: pathlib.Path) -> Manifest | None:
    """The folder's manifest, or None where it has none of this format (published data sets have another).

    Raises ``DataError`` naming the file where it cannot be understood.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None
    if not path.is_file():
        raise _refused(path, "must be a file")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _refused(path, f"not readable as JSON (cut short?): {error}") from error
    except RecursionError as error:
        raise _refused(path, "not readable as JSON: nested too deeply") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        return None
    try:
        splits = {
            name: Split(**{**values[name], "shards": [FileEntry(**entry) for entry in values[name]["shards"]]})
            for name in ("train", "val")
        }
        manifest = Manifest(**{**values, **splits, "tokenizer": FileEntry(**values["tokenizer"])})
        _check_types(manifest)
    except (KeyError, TypeError) as error:
        raise _refused(path, f"not a manifest of the format {FORMAT}: {error}") from error
    return manifest


def _check_types(manifest: Manifest) -> None:
    """Raise ``TypeError`` naming the first value that is of another type than its field."""
    for part in (manifest, manifest.train, manifest.val, *manifest.entries()):
        for name, kind in get_type_hints(type(part)).items():
            value = getattr(part, name)
            plain = get_origin(kind) if get_origin(kind) in (list, dict) else kind
            takes_bool = bool in (kind, *get_args(kind))
            if not isinstance(value, plain) or (isinstance(value, bool) and not takes_bool):
                raise TypeError(f"{name} must be {getattr(kind, '__name__', kind)}, got {value!r:.60}")
            if isinstance(part, FileEntry) and name == "file" and pathlib.Path(value).name != value:
                raise TypeError(f"file must be a name without folders, got {value!r:.60}")
    for name, value in manifest.reference_points.items():
        if not isinstance(value, float | int):
            raise TypeError(f"reference_points.{name} must be a number, got {value!r:.60}")


def differences(folder: pathlib.Path, manifest: Manifest) -> Iterator[tuple[FileEntry, str]]:
    """Read every file and compare it with the manifest: the entries that differ, and how, for a person."""
    for entry in manifest.entries():
        path = folder / entry.file
        if not path.is_file():
            yield entry, f"missing, though {FILE_NAME} names it"
        elif (found := describe_file(path)) != entry:
            yield (
                entry,
                f"changed since it was built: {found.bytes} bytes, sha256 {found.sha256}; {FILE_NAME} says "
                f"{entry.bytes} bytes, sha256 {entry.sha256}",
            )


def check_files(folder: pathlib.Path, manifest: Manifest) -> None:
    """Read every file and compare it with the manifest. Raises ``DataError`` naming the first that differs."""
    for entry, how in differences(folder, manifest):
        raise DataError(how, where=folder / entry.file, remedy=remedy(folder))


def _refused(path: pathlib.Path, what: str) -> DataError:
    return DataError(what, where=path, remedy=remedy(path.parent))


def remedy(folder: pathlib.Path) -> str:
    """What to do about a folder that is not as it was built."""
    return f"delete the folder {folder} and have it built anew"
