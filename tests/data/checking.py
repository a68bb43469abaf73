"""What the tests of `data check` share: a corpus to damage, and its findings."""

import dataclasses
import json
import pathlib
import struct
from collections.abc import Callable
from typing import Any

from golfray.core.shards import list_shards
from golfray.data.check import CheckRequest, CheckResult, check_corpus
from golfray.data.manifest import describe_file
from golfray.data.token_files import read_token_documents, write_shards
from golfray.findings import Finding

TRAIN = ("fineweb_train_000000.bin", "fineweb_train_000001.bin")
VAL = "fineweb_val_000000.bin"


def found(result: CheckResult) -> list[tuple[str, str]]:
    """Code and file of every finding."""
    return [(finding.code, pathlib.Path(finding.where).name) for finding in result.findings]


def check(folder: pathlib.Path, **options: Any) -> CheckResult:
    return check_corpus(CheckRequest(folder, **options))


def only(result: CheckResult) -> Finding:
    (finding,) = result.findings
    return finding


def change_manifest(folder: pathlib.Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit the manifest, its sums of the shards made true again."""
    values = json.loads((folder / "manifest.json").read_text())
    for split in ("train", "val"):
        shards = [dataclasses.asdict(describe_file(path)) for path in list_shards(folder, split)]
        values[split]["shards"] = shards
    change(values)
    (folder / "manifest.json").write_text(json.dumps(values))


def rewrite(folder: pathlib.Path, split: str, documents: list[list[int]]) -> None:
    """Other documents, in one shard."""
    for path in list_shards(folder, split):
        path.unlink()
    write_shards(folder, split, documents, 10**9)


def documents_of(folder: pathlib.Path, split: str) -> list[list[int]]:
    return [document.tolist() for document in read_token_documents(list_shards(folder, split), 1)]


def set_token(path: pathlib.Path, position: int, token: int) -> None:
    with open(path, "r+b") as file:
        file.seek(1024 + 2 * position)
        file.write(struct.pack("<H", token))
