"""Carrying a fetch out: every file into its place and verified, then golfray's own manifest beside the shards."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import pathlib
import shlex
from collections.abc import Iterator
from typing import Any

import sentencepiece

from golfray.core.byte_table import build_byte_table
from golfray.data.byte_accounting import find_inexact
from golfray.data.errors import DataError
from golfray.data.fetch_errors import FetchLockedError
from golfray.data.fetch_file import FetchFile, FileFetcher, Listener, disk_errors
from golfray.data.fetch_plan import FetchPlan
from golfray.data.fetch_shards import ShardFetcher
from golfray.data.fetched_manifest import write_fetched_manifest
from golfray.data.manifest import Manifest, describe_file
from golfray.data.published_manifest import SENTENCEPIECE, PublishedDataset
from golfray.data.shard_layout import MAX_VOCAB_SIZE
from golfray.data.sources import Patience
from golfray.data.tokenizer import load_tokenizer

LOCK_NAME = ".fetch.lock"
LICENCE = "FineWeb is published under ODC-By 1.0; the pages stay their authors'."


@dataclasses.dataclass(frozen=True)
class Fetched:
    """What lies where now. ``manifest`` is None where there is nothing to train on; ``notes`` say why, and more."""

    plan: FetchPlan
    tokenizer: pathlib.Path
    manifest: Manifest | None
    notes: list[str]

    @property
    def folder(self) -> pathlib.Path:
        """The dataset's folder."""
        return self.plan.folder

    def settings(self) -> list[str]:
        """The settings that use it, as PATH=VALUE; none where it cannot be trained on."""
        if self.manifest is None:
            return []
        return [f"data.folder={self.folder}", f"model.vocab_size={self.manifest.vocab_size}"]

    def to_record(self) -> dict[str, Any]:
        """For a program."""
        return {
            **self.plan.origin(),
            "folder": str(self.folder),
            "tokenizer": str(self.tokenizer),
            "settings": self.settings(),
            "manifest": dataclasses.asdict(self.manifest) if self.manifest else None,
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """For a person, at the end."""
        if self.manifest is None:
            return [f"tokenizer: {self.tokenizer}", *self.notes]
        train, val = self.manifest.train, self.manifest.val
        sets = " ".join(f"--set {shlex.quote(setting)}" for setting in self.settings())
        return [
            f"{self.folder}: {train.tokens:,} training tokens in {len(train.shards)} shard(s), {val.tokens:,} "
            f"validation tokens ({val.scored_bytes:,} bytes), all verified",
            *self.notes,
            "the text is held against the tokenizer by:",
            f"  golfray data check {shlex.quote(str(self.folder))}",
            "to train on it:",
            f"  golfray tune search_spaces/muon.yaml {sets}",
        ]


def run_fetch(plan: FetchPlan, patience: Patience, listener: Listener) -> Fetched:
    """Do what the plan says, from wherever an earlier fetch stopped.

    Raises ``FetchLockedError`` where another process fetches into the same folder, ``FetchError`` where network or
    server fail, ``CannotWriteError`` where the disk does, and ``DataError`` where a file is not what manifest and
    tokenizer say.
    """
    plan.check_room()
    to, dataset, request = plan.request.to, plan.dataset, plan.request
    with disk_errors(to), _only_one(to):
        plan.ledger.keep_manifest(plan.manifest)
        fetcher = FileFetcher(request.source, plan.ledger, patience, listener)
        model, *others = plan.of_kind("tokenizer")
        tokenizer = model.target
        loaded = fetcher.obtain(model, lambda path: _verify_tokenizer(path, dataset))
        _obtain_others(fetcher, others)
        if request.tokenizer_only:
            return Fetched(plan, tokenizer, None, [])
        table = None if loaded is None else build_byte_table(loaded, MAX_VOCAB_SIZE)
        shards = ShardFetcher(fetcher, dataset, table, -1 if loaded is None else int(loaded.bos_id()))
        val = shards.obtain_val(plan.of_kind("val"))
        train = shards.obtain_train(plan.of_kind("train"))
        _obtain_others(fetcher, plan.of_kind("documents"))
        if loaded is None:
            note = (
                f"{plan.folder}: fetched and verified, but golfray cannot train on it: its tokenizer is of the kind "
                f"{dataset.tokenizer.kind}, and golfray counts bytes with {SENTENCEPIECE} models only"
            )
            return Fetched(plan, tokenizer, None, [note])
        manifest = write_fetched_manifest(plan, tokenizer, val, train, shards.overlap)
    return Fetched(plan, tokenizer, manifest, _notes(plan, manifest, loaded))


def _obtain_others(fetcher: FileFetcher, files: list[FetchFile]) -> None:
    for file in files:
        fetcher.obtain(file, lambda path: (describe_file(path).sha256, None))


def _verify_tokenizer(
    path: pathlib.Path, dataset: PublishedDataset
) -> tuple[str, sentencepiece.SentencePieceProcessor | None]:
    """Hash of the file, and the tokenizer where it is of the kind that golfray counts bytes with."""
    sha256 = describe_file(path).sha256
    if not dataset.tokenizer.is_sentencepiece:
        return sha256, None
    tokenizer = load_tokenizer(path)
    for what, found, said in (
        ("pieces", int(tokenizer.vocab_size()), dataset.vocab_size),
        ("as the id of BOS", int(tokenizer.bos_id()), dataset.bos_id),
    ):
        if said not in (None, found):
            raise DataError(
                f"this tokenizer has {found} {what}, but the manifest says {said} for {dataset.name}: these shards "
                "were made with another one",
                where=path,
            )
    return sha256, tokenizer


def _notes(plan: FetchPlan, manifest: Manifest, tokenizer: sentencepiece.SentencePieceProcessor) -> list[str]:
    notes = [manifest.warning] if manifest.warning else []
    notes += [
        f"bytes cannot be counted exactly with this tokenizer: {inexact.why}" for inexact in find_inexact(tokenizer)
    ]
    said, found = plan.dataset.docs_val, manifest.val.documents
    if said not in (None, found):
        notes.append(
            f"the manifest counts {said:,} validation documents, but {found:,} begin with BOS: where documents run "
            "together, bytes at their borders are counted otherwise than upstream does"
        )
    if plan.dataset.name.startswith("fineweb"):
        notes.append(LICENCE)
    return notes


@contextlib.contextmanager
def _only_one(folder: pathlib.Path) -> Iterator[None]:
    """Hold the folder for this process; the kernel lets go of it however the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK_NAME, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FetchLockedError(f"{folder}: another golfray data fetch is at work in this folder") from None
        yield
