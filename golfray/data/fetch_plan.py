"""What a fetch is going to do, found out before anything is written: the files, their sizes, and the room they need."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from golfray.config.sizes import size_text
from golfray.data.errors import CannotWriteError, DataError
from golfray.data.fetch_errors import MissingError
from golfray.data.fetch_file import FetchFile, FileKind, Listener, LocalState, local_state
from golfray.data.fetch_ledger import Ledger
from golfray.data.fetch_request import FetchRequest, list_files
from golfray.data.local_source import LocalSource
from golfray.data.manifest import read_manifest
from golfray.data.names import check_path
from golfray.data.published_manifest import (
    FILE_NAME,
    MAX_BYTES,
    PublishedDataset,
    choose_dataset,
    read_published,
)
from golfray.data.shard_header import tokens_in
from golfray.data.shard_layout import shard_name, split_and_number
from golfray.data.sources import Patience, Source, read_whole

DEFAULT_TRAIN_SHARDS = 80
# Key of the recipe in golfray's manifest that tells a fetched folder from a built one.
FETCHED_FROM = "fetched_from"
# Room for what is written besides the files: manifests, a copy of the tokenizer, the ledger.
MARGIN_BYTES = 4 * 2**20


@dataclasses.dataclass(frozen=True)
class FetchPlan:
    """What will be done: ``folder`` is where the shards land, ``states`` what is there of each file now.

    ``need_bytes`` are still to be written, ``free_bytes`` will be there for them.
    """

    request: FetchRequest
    manifest: bytes
    dataset: PublishedDataset
    folder: pathlib.Path
    ledger: Ledger
    files: list[FetchFile]
    states: list[LocalState]
    train_shards: int
    need_bytes: int
    free_bytes: int

    def of_kind(self, kind: FileKind) -> list[FetchFile]:
        """The files of one kind, in order."""
        return [file for file in self.files if file.kind == kind]

    def lines(self) -> list[str]:
        """For a person, before anything is written."""
        dataset = self.dataset
        groups: dict[FileKind, str] = {
            "tokenizer": dataset.tokenizer.name,
            "val": f"all {dataset.files_val:,} shard(s)",
            "train": f"the first {self.train_shards:,} of {dataset.files_train:,} shard(s)",
            "documents": "all",
        }
        lines = [f"{dataset.name} of {self.request.source.name}, into {self.request.to}"]
        for kind, what in groups.items():
            if files := self.of_kind(kind):
                lines.append(f"  {kind:9s}  {size_text(sum(file.size for file in files)):>9s}  {what}")
        there = sum(state.is_there for state in self.states)
        begun = sum(state.have for state in self.states if not state.is_there)
        if there or begun:
            lines.append(f"  {there} file(s) are there, to be verified, and {size_text(begun)} of others")
        lines.append(
            f"  to be written: {size_text(self.need_bytes)} (one copy, here); free: {size_text(self.free_bytes)}"
        )
        return lines

    def file_lines(self) -> list[str]:
        """One line a file."""
        lines = []
        for file, state in zip(self.files, self.states, strict=True):
            what = "there" if state.is_there else f"from byte {state.have:,}" if state.have else state.reason or "new"
            lines.append(f"  {file.size:>15,} bytes  {file.target.relative_to(self.request.to)}  ({what})")
        return lines

    def to_record(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            **self.origin(),
            "folder": str(self.folder),
            "need_bytes": self.need_bytes,
            "free_bytes": self.free_bytes,
            "files": [
                {
                    "file": str(file.target),
                    "kind": file.kind,
                    "bytes": file.size,
                    "have_bytes": state.have,
                    "is_there": state.is_there,
                }
                for file, state in zip(self.files, self.states, strict=True)
            ],
        }

    def origin(self) -> dict[str, Any]:
        """Where all of it is from."""
        source = self.request.source
        return {"source": source.name, "commit": source.commit, "dataset": self.dataset.name}

    def check_room(self) -> None:
        """Raise ``CannotWriteError`` where the disk has too little room."""
        if self.need_bytes and self.need_bytes + MARGIN_BYTES > self.free_bytes:
            more = size_text(self.need_bytes + MARGIN_BYTES - self.free_bytes)
            raise CannotWriteError(
                f"{self.request.to}: {self.need_bytes:,} bytes are needed, but {self.free_bytes:,} are free there; "
                f"free {more}, choose another disk with --to, or take fewer --train-shards"
            )


def plan_fetch(request: FetchRequest, patience: Patience, listener: Listener) -> FetchPlan:
    """Read the manifest and the first bytes of every file at the source, and look at what is here; writes nothing.

    Raises ``DataError`` where the request, the manifest or a file is not what it must be, and ``FetchError`` where the
    source does not answer.
    """
    request = dataclasses.replace(request, to=request.to.absolute())
    check_path("--to", request.to)
    source, where = request.source, request.source.where(FILE_NAME)
    try:
        manifest = patience.run(lambda: read_whole(source, FILE_NAME, MAX_BYTES), listener.say)
    except MissingError as error:
        raise MissingError(f"{error}; {_where_else(source)}") from error
    values = read_published(manifest, where)
    dataset = choose_dataset(values, request.variant, where)
    folder = request.to / "datasets" / dataset.name
    _check_places(request, dataset, folder)
    train_shards = 0 if request.tokenizer_only else _count_train_shards(request, dataset, folder, where)
    files = list_files(request, dataset, folder, train_shards, patience, listener)
    if not request.tokenizer_only:
        _check_counts(dataset, files, train_shards, where)
    ledger = Ledger(request.to, source.name)
    states = [_state_of(file, ledger, source, patience, listener) for file in files]
    return FetchPlan(
        request=request,
        manifest=manifest,
        dataset=dataset,
        folder=folder,
        ledger=ledger,
        files=files,
        states=states,
        train_shards=train_shards,
        need_bytes=sum(file.size - state.have for file, state in zip(files, states, strict=True)),
        free_bytes=_free_bytes(request.to) + sum(state.discarded for state in states),
    )


def _where_else(source: Source) -> str:
    if isinstance(source, LocalSource):
        found = sorted(path.parent.name for path in source.folder.glob(f"*/{FILE_NAME}"))
        if found:
            return f"there is one in {', '.join(found)}: give --root {found[0]}"
    return (
        f"SOURCE must hold {FILE_NAME}: is its name right? --root names the folder of it that does (--root '' the top)"
    )


def _count_train_shards(request: FetchRequest, dataset: PublishedDataset, folder: pathlib.Path, where: str) -> int:
    """How many train shards there will be: as many as asked for, and those that lie here beyond."""
    wanted = request.train_shards
    if wanted is None:
        wanted = min(DEFAULT_TRAIN_SHARDS, dataset.files_train)
    if wanted > dataset.files_train:
        raise DataError(
            f"--train-shards {wanted}: {dataset.name} has {dataset.files_train} train shards "
            f"({dataset.tokens_train:,} tokens), as {where} says"
        )
    here = set()
    for path in folder.glob("fineweb_*.bin"):
        found = split_and_number(path.name)
        if found is None or found[1] >= (dataset.files_train if found[0] == "train" else dataset.files_val):
            raise DataError(f"{path}: not a file of {dataset.name}, but would be read as a part of it; move it away")
        if found[0] == "train":
            here.add(found[1])
    beyond = {number for number in here if number >= wanted}
    last = max(beyond, default=wanted - 1)
    if gap := sorted(set(range(wanted, last)) - here):
        raise DataError(
            f"{folder / shard_name('train', last)}: is there, but {shard_name('train', gap[0])} is not: training reads "
            f"shards in order; --train-shards {last + 1} fetches what is between, or move it away"
        )
    return last + 1


def _check_places(request: FetchRequest, dataset: PublishedDataset, folder: pathlib.Path) -> None:
    source, to = request.source, request.to
    if to.exists() and not to.is_dir():
        raise DataError(f"{to}: must be a folder")
    if isinstance(source, LocalSource):
        models = str(pathlib.PurePosixPath(dataset.tokenizer.model).parent)
        for own, here in ((dataset.path, folder), (models, to / "tokenizers")):
            if here.exists() and (source.folder / own).exists() and (source.folder / own).samefile(here):
                raise DataError(
                    f"{here}: is a folder of the source itself; choose another with --to, or use it where it is: "
                    f"--set data.folder={source.folder / dataset.path} "
                    f"--set data.tokenizer={source.folder / dataset.tokenizer.model}"
                )
    own_manifest = read_manifest(folder)
    if own_manifest is not None:
        fetched_from = own_manifest.recipe.get(FETCHED_FROM)
        if fetched_from is None:
            raise DataError(f"{folder}: this corpus was built here and not fetched; choose another folder with --to")
        if fetched_from != source.name:
            raise DataError(_of_another(folder, str(fetched_from), source))


def _state_of(file: FetchFile, ledger: Ledger, source: Source, patience: Patience, listener: Listener) -> LocalState:
    other = ledger.other_owner(file.target)
    if other is not None and not (
        file.kind == "tokenizer"  # sources share tokenizers, and some have others of the same name
        and file.target.is_file()
        and file.target.stat().st_size == file.size
        and file.target.read_bytes() == patience.run(lambda: read_whole(source, file.path, file.size), listener.say)
    ):
        raise DataError(_of_another(file.target, other, source))
    return local_state(file, ledger)


def _of_another(path: pathlib.Path, other: str, source: Source) -> str:
    return f"{path}: is from {other}, not from {source.name}; choose another folder with --to, or delete it"


def _check_counts(dataset: PublishedDataset, files: Sequence[FetchFile], train_shards: int, where: str) -> None:
    """Hold the tokens that the headers announce against ``stats``."""
    found = {kind: sum(tokens_in(file.size) for file in files if file.kind == kind) for kind in ("val", "train")}
    if found["val"] != dataset.tokens_val:
        raise DataError(
            f"the val shards hold {found['val']:,} tokens, but stats.tokens_val in {where} says {dataset.tokens_val:,}"
        )
    is_all = train_shards == dataset.files_train
    if found["train"] != dataset.tokens_train if is_all else found["train"] >= dataset.tokens_train:
        raise DataError(
            f"{'all' if is_all else 'the first'} {train_shards} train shards hold {found['train']:,} tokens, but "
            f"stats.tokens_train in {where} says {dataset.tokens_train:,}{'' if is_all else ' for all of them'}"
        )


def _free_bytes(folder: pathlib.Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
