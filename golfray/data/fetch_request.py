"""What is asked for, and the files that it takes, as the source has them."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from golfray.data.errors import DataError
from golfray.data.fetch_errors import MissingError
from golfray.data.fetch_file import FetchFile, FileKind, Listener
from golfray.data.fetch_ledger import part_of
from golfray.data.manifest import FILE_NAME
from golfray.data.published_manifest import PublishedDataset
from golfray.data.shard_header import could_be_tokens, diagnose_start, header_for
from golfray.data.shard_layout import TOKEN_BYTES, shard_name
from golfray.data.sources import Patience, Source, probe

DOCUMENTS = ("docs_selected.jsonl", "docs_selected.source_manifest.json")
PROBES_AT_ONCE = 8

T = TypeVar("T")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class FetchRequest:
    """What a person asks for. ``train_shards`` None: the first 80, or all where there are fewer."""

    source: Source
    to: pathlib.Path
    variant: str
    train_shards: int | None = None
    tokenizer_only: bool = False
    documents: bool = False
    no_header: bool = False


def list_files(
    request: FetchRequest,
    dataset: PublishedDataset,
    folder: pathlib.Path,
    train_shards: int,
    patience: Patience,
    listener: Listener,
) -> list[FetchFile]:
    """Every file that the request takes, its size and its first bytes having been asked for.

    The tokenizer comes first: it is small, and the bytes of the shards are counted with it as they come. Raises
    ``DataError`` naming a file that the source has not, or that is not what it must be, and two that would have one
    place here.
    """
    jobs = list(_jobs(request, dataset, folder, train_shards))
    _check_targets(jobs, dataset, folder)
    return _in_threads(lambda job: _look_at(job, request, dataset, patience, listener), jobs)


def _in_threads(action: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """``[action(item) for item in items]``, several at once; raises what the first item that fails raises.

    The threads do not outlive the process: whoever interrupts it does not wait for a server that does not answer.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[int, R | Exception]] = queue.SimpleQueue()
    for index in range(len(items)):
        waiting.put(index)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                index = waiting.get_nowait()
                try:
                    answers.put((index, action(items[index])))
                except Exception as error:  # noqa: BLE001 - raised where the answers are taken
                    answers.put((index, error))

    for _ in range(PROBES_AT_ONCE):
        threading.Thread(target=work, daemon=True).start()
    found: dict[int, R | Exception] = {}
    results: list[R] = []
    while len(results) < len(items):
        index, answer = answers.get()
        found[index] = answer
        while len(results) in found:
            result = found[len(results)]
            if isinstance(result, Exception):
                with contextlib.suppress(queue.Empty):
                    while True:
                        waiting.get_nowait()
                raise result
            results.append(result)
    return results


@dataclasses.dataclass(frozen=True)
class _Job:
    kind: FileKind
    path: str
    target: pathlib.Path


def _jobs(request: FetchRequest, dataset: PublishedDataset, folder: pathlib.Path, train_shards: int) -> Iterator[_Job]:
    for path in dataset.tokenizer.files:
        yield _Job("tokenizer", path, request.to / "tokenizers" / pathlib.PurePosixPath(path).name)
    if request.tokenizer_only:
        return
    for number in range(dataset.files_val):
        yield _Job("val", dataset.shard("val", number), folder / shard_name("val", number))
    for number in range(train_shards):
        yield _Job("train", dataset.shard("train", number), folder / shard_name("train", number))
    if request.documents:
        for name in DOCUMENTS:
            yield _Job("documents", name, request.to / name)


def _check_targets(jobs: Sequence[_Job], dataset: PublishedDataset, folder: pathlib.Path) -> None:
    """Raise ``DataError`` where two files would be written to one place, while they are fetched or afterwards."""
    model = dataset.tokenizer.model
    copy = folder / pathlib.PurePosixPath(model).name
    taken: dict[pathlib.Path, str] = {folder / FILE_NAME: f"golfray's own {FILE_NAME}"}
    # The copy beside the shards is there in the end only, so nothing continues it.
    places = [(copy, model), *((place, job.path) for job in jobs for place in (job.target, part_of(job.target)))]
    for place, path in places:
        other = taken.setdefault(place, path)
        if other != path:
            raise DataError(
                f"{place}: {other} and {path} of {dataset.name} would both be written there; such a source cannot be "
                "fetched: its files must have names of their own"
            )


def _look_at(
    job: _Job, request: FetchRequest, dataset: PublishedDataset, patience: Patience, listener: Listener
) -> FetchFile:
    source, where = request.source, request.source.where(job.path)
    try:
        remote = patience.run(lambda: probe(source, job.path), listener.say)
    except MissingError as error:
        raise MissingError(f"{error}; {_why_missing(job, dataset)}") from error
    if job.kind not in ("val", "train"):
        if remote.size == 0:
            raise DataError(f"{where}: is empty")
        return FetchFile(job.kind, job.path, job.target, remote)
    finding = diagnose_start(where, remote.head, remote.size)
    if finding is None:
        if request.no_header:
            raise DataError(f"{where}: has a header; leave --no-header out")
        return FetchFile(job.kind, job.path, job.target, remote)
    if finding.code != "shard-headerless" or not could_be_tokens(remote.head, remote.size, dataset.vocab_size):
        raise DataError(f"{where}: {finding.what}; it is so at the source")
    if not request.no_header:
        raise DataError(f"{where}: {finding.what}; --no-header imports such files and writes the header in front")
    return FetchFile(job.kind, job.path, job.target, remote, header_for(remote.size // TOKEN_BYTES))


def _why_missing(job: _Job, dataset: PublishedDataset) -> str:
    if job.kind == "documents":
        return "this source publishes no documents; leave --documents out"
    if job.kind == "tokenizer":
        return f"the manifest names it for the tokenizer {dataset.tokenizer.name}, so the source is not complete"
    number = int(job.path[-10:-4])
    counted = dataset.files_val if job.kind == "val" else dataset.files_train
    if job.kind == "train" and number:
        return f"the manifest counts {counted} train shards; --train-shards {number} takes those before it"
    return (
        f"the manifest counts {counted} {job.kind} shard(s) of {dataset.name}, but this source does not hold them: "
        "choose another --variant or another source"
    )
