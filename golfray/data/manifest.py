"""``manifest.json``: what a corpus folder holds, how it was made, and the hashes to check it by."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from typing import Any

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
    """One part of a corpus; ``text_bytes`` are those of the documents as given, ``scored_bytes`` of what is scored."""

    documents: int
    tokens: int
    text_bytes: int
    scored_bytes: int
    shards: list[FileEntry]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Written last into a corpus folder; ``reference_points`` are bits per scored byte of the validation split."""

    name: str
    demo: bool
    contaminated: bool
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


def describe_file(path: pathlib.Path) -> FileEntry:
    """Name, size and hash of a file as it is now."""
    with open(path, "rb") as file:
        return FileEntry(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def write_manifest(folder: pathlib.Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into the folder."""
    text = json.dumps({"format": FORMAT, **dataclasses.asdict(manifest)}, indent=2, ensure_ascii=False)
    (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: pathlib.Path) -> Manifest | None:
    """The folder's manifest, or None where it has none of this format (published data sets have another).

    Raises ``DataError`` naming the file where it cannot be understood.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        return None
    try:
        splits = {
            name: Split(**{**values[name], "shards": [FileEntry(**entry) for entry in values[name]["shards"]]})
            for name in ("train", "val")
        }
        return Manifest(**{**values, **splits, "tokenizer": FileEntry(**values["tokenizer"])})
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: not a manifest of the format {FORMAT}: {error!r}") from error


def check_files(folder: pathlib.Path, manifest: Manifest) -> None:
    """Read every file and compare it with the manifest. Raises ``DataError`` naming the first that differs."""
    for entry in manifest.entries():
        path = folder / entry.file
        if not path.is_file():
            raise DataError(f"{path}: missing, though {FILE_NAME} names it; {_remedy(folder)}")
        if (found := describe_file(path)) != entry:
            raise DataError(
                f"{path}: changed since it was built: {found.bytes} bytes, sha256 {found.sha256}; {FILE_NAME} says "
                f"{entry.bytes} bytes, sha256 {entry.sha256}; {_remedy(folder)}"
            )


def _remedy(folder: pathlib.Path) -> str:
    return f"delete the folder {folder} to have it built anew"
