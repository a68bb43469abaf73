"""``manifest.json`` of the published FineWeb exports: what it must say before anything can be fetched by it.

It has neither sizes nor hashes of files; the counts of ``stats`` are what the files are held against.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from golfray.data.errors import DataError
from golfray.data.shard_layout import MAX_VOCAB_SIZE, shard_name
from golfray.data.sources import joined, relative_path

# Where the challenge publishes its exports: a dataset repository of the Hub.
DEFAULT_REPOSITORY = "willdepueoai/parameter-golf"
FILE_NAME = "manifest.json"
MAX_BYTES = 16 * 2**20
# Each file is asked for before the first is fetched.
MAX_FILES = 10**5
SENTENCEPIECE = "sentencepiece"

# Read by golfray nowhere: they give the bytes of each validation token where the tokenizer cannot.
VAL_BYTES_KEY = "val_bytes_glob"


@dataclasses.dataclass(frozen=True)
class PublishedTokenizer:
    """``model`` is the file to tokenize with, ``files`` all that belong to it; paths below the root."""

    name: str
    kind: str
    model: str
    files: tuple[str, ...]

    @property
    def is_sentencepiece(self) -> bool:
        """Whether golfray can count bytes with it."""
        return self.kind.startswith(SENTENCEPIECE)


@dataclasses.dataclass(frozen=True)
class PublishedDataset:
    """One dataset of the manifest. ``path`` is its folder below the root; counts are those of ``stats``."""

    name: str
    path: str
    vocab_size: int
    bos_id: int | None
    files_val: int
    files_train: int
    tokens_val: int
    tokens_train: int
    docs_val: int | None
    has_own_byte_counts: bool
    tokenizer: PublishedTokenizer

    def shard(self, split: str, number: int) -> str:
        """Path of one shard below the root."""
        return joined(self.path, shard_name(split, number))


def read_published(content: bytes, where: str) -> dict[str, Any]:
    """The manifest as a dictionary. Raises ``DataError`` naming ``where`` where it is no JSON object."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        beginning = content[:40].decode("utf-8", "replace")
        raise DataError(f"{where}: must be JSON, but begins with {beginning!r} ({error})") from error
    if not isinstance(values, dict):
        raise DataError(f"{where}: must be a JSON object, got {type(values).__name__}")
    return values


def choose_dataset(values: Mapping[str, Any], variant: str, where: str) -> PublishedDataset:
    """The dataset that ``variant`` names: by its whole name, or by what follows the first "_" of it.

    Raises ``DataError`` naming the nearest where there is none, and what the manifest lacks or has wrong.
    """
    datasets = _named(values, "datasets", where)
    entry = datasets.get(variant)
    if entry is None:
        candidates = [name for name in datasets if name.partition("_")[2] == variant]
        preferred = f"fineweb{values.get('version')}_{variant}"
        if len(candidates) > 1 and preferred in candidates:
            candidates = [preferred]
        if len(candidates) != 1:
            raise DataError(_no_such_variant(variant, candidates, list(datasets), where))
        entry = datasets[candidates[0]]
    return _dataset(entry, values, where)


def _no_such_variant(variant: str, candidates: Sequence[str], names: Sequence[str], where: str) -> str:
    if candidates:
        return f"{where}: --variant {variant!r} could be any of {', '.join(candidates)}; give the whole name"
    variants = {name.partition("_")[2] or name: name for name in names}
    near = difflib.get_close_matches(variant, [*variants, *names], n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{where}: has no dataset for --variant {variant!r}{hint} It has {', '.join(names) or 'none'}"


def _dataset(entry: Mapping[str, Any], values: Mapping[str, Any], where: str) -> PublishedDataset:
    name = str(entry["name"])
    place = f"{where}: datasets[{name!r}]"
    if not name or relative_path(name, f"{place}.name") != name or "/" in name:
        raise DataError(f"{place}.name: must be the name of one folder")
    stats = entry.get("stats")
    if not isinstance(stats, dict):
        raise DataError(f"{place}: the manifest lacks the key stats, which says how many files and tokens there are")
    needed = ("files_val", "files_train", "tokens_val", "tokens_train")
    if missing := [key for key in needed if stats.get(key) is None]:
        raise DataError(f"{place}.stats: the manifest lacks the key(s) {', '.join(missing)}; it has {_keys(stats)}")
    counts = {
        key: _whole_number(stats[key], f"{place}.stats.{key}", 1, MAX_FILES if key.startswith("files") else 2**63)
        for key in needed
    }
    docs_val, bos_id = stats.get("docs_val"), entry.get("bos_id")
    if entry.get("vocab_size") is None:
        raise DataError(f"{place}: the manifest lacks the key vocab_size; it has {_keys(entry)}")
    vocab_size = _whole_number(entry["vocab_size"], f"{place}.vocab_size", 2, MAX_VOCAB_SIZE)
    return PublishedDataset(
        name=name,
        path=relative_path(_text(entry, "path", place, joined("datasets", name)), f"{place}.path"),
        vocab_size=vocab_size,
        bos_id=None if bos_id is None else _whole_number(bos_id, f"{place}.bos_id", 0, vocab_size - 1),
        docs_val=None if docs_val is None else _whole_number(docs_val, f"{place}.stats.docs_val", 0, 2**63),
        has_own_byte_counts=bool(entry.get(VAL_BYTES_KEY)),
        tokenizer=_tokenizer(entry, values, place, where),
        **counts,
    )


def _tokenizer(entry: Mapping[str, Any], values: Mapping[str, Any], place: str, where: str) -> PublishedTokenizer:
    tokenizers = _named(values, "tokenizers", where)
    name = _text(entry, "tokenizer_name", place, None)
    found = tokenizers.get(name)
    if found is None:
        raise DataError(
            f"{place}.tokenizer_name: {name!r} is not among the tokenizers, which are {', '.join(tokenizers) or 'none'}"
        )
    place = f"{where}: tokenizers[{name!r}]"
    keys = [key for key in ("model_path", "path", "vocab_path") if found.get(key) is not None]
    if not keys or keys == ["vocab_path"]:
        raise DataError(f"{place}: the manifest lacks the key model_path (or path); it has {_keys(found)}")
    paths = [relative_path(_text(found, key, place, None), f"{place}.{key}") for key in keys]
    if "" in paths:
        raise DataError(f"{place}: the paths of its files must not be empty")
    return PublishedTokenizer(name, _text(found, "kind", place, None), paths[0], tuple(dict.fromkeys(paths)))


def _named(values: Mapping[str, Any], key: str, where: str) -> dict[str, Mapping[str, Any]]:
    """The entries of a list of objects by their names."""
    entries = values.get(key)
    if entries is None:
        raise DataError(f"{where}: the manifest lacks the key {key}; it has {_keys(values)}")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{where}: {key} must be a list of objects")
    named: dict[str, Mapping[str, Any]] = {}
    for number, entry in enumerate(entries):
        name = _text(entry, "name", f"{where}: {key}[{number}]", None)
        if not name.isprintable():
            raise DataError(f"{where}: {key}[{number}].name: must be printable, got {name!r:.80}")
        if name in named:
            raise DataError(f"{where}: {key} has {name!r} twice")
        named[name] = entry
    return named


def _text(entry: Mapping[str, Any], key: str, place: str, default: str | None) -> str:
    value = entry.get(key, default)
    if value is None and default is None:
        raise DataError(f"{place}: the manifest lacks the key {key}; it has {_keys(entry)}")
    if not isinstance(value, str):
        raise DataError(f"{place}.{key}: must be a text, got {value!r:.80}")
    return value


def _whole_number(value: object, place: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise DataError(f"{place}: must be a whole number from {low:,} to {high:,}, got {value!r:.40}")
    return value


def _keys(entry: Mapping[str, Any]) -> str:
    keys = sorted(key if key.isprintable() else repr(key) for key in entry)
    return ", ".join(keys[:20]) or "no keys"
