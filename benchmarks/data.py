"""Tokens/s and resident memory of the loader on a shard of 200 MB, against its alternatives: ``make bench``.

Three ways for a rank to get its micro-batches of a step of 524,288 tokens in 8 slices, on 1, 2 and 8 ranks:

- own slices: the memory map of the shard, of which a rank touches its own slices only (``TokenStream``);
- every rank's tokens: the same map, but each rank makes the tokens of all ranks and takes its part;
- whole shard: each rank reads the shard into memory with ``numpy.fromfile``, then takes its own slices.

All pass over the shard once, in turn, in the same run, and the shard is in the page cache. The machine may be busy, so
only ratios mean anything, and those of CPU seconds (of all ranks together) the most. Memory is that of all ranks
together at the end of the pass, above what they had before: PSS, in which a page that several ranks map counts once,
and of that the anonymous part, which the kernel cannot drop and read again as it can the pages of a mapped file. Needs
Linux (``/proc/self/smaps_rollup``).
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import numpy
import torch

from golfray.core.shards import SHARD_HEADER_INTS, TokenStream, list_shards
from golfray.data.token_files import write_shards

SHARD_TOKENS = 100_000_000
VOCAB_SIZE = 1024
BATCH_TOKENS, SLICES, SEQ_LEN = 524_288, 8, 1024
SLICE_TOKENS = BATCH_TOKENS // SLICES
STEPS = SHARD_TOKENS // (SLICES * (SLICE_TOKENS + 1))
ROUNDS = 3
RANKS = (1, 2, 8)

# One rank's work at a step: returns a number that depends on every token it got.
Load = Callable[[int, int, int], int]


def own_slices(folder: pathlib.Path) -> Load:
    """As golfray does."""
    stream = TokenStream(list_shards(folder, "train"))

    def load(step: int, rank: int, ranks: int) -> int:
        numbers = range(step * SLICES + rank, (step + 1) * SLICES, ranks)
        return sum(int(stream.slice_batch(number, SLICE_TOKENS, SEQ_LEN)[1].sum()) for number in numbers)

    return load


def every_ranks_tokens(folder: pathlib.Path) -> Load:
    """Each rank makes a micro-step's tokens of all ranks."""
    stream = TokenStream(list_shards(folder, "train"))

    def load(step: int, rank: int, ranks: int) -> int:
        total = 0
        for first in range(step * SLICES, (step + 1) * SLICES, ranks):
            everything = stream.read(first * (SLICE_TOKENS + 1), ranks * (SLICE_TOKENS + 1))
            total += sum_of_targets(everything[rank * (SLICE_TOKENS + 1) :][: SLICE_TOKENS + 1])
        return total

    return load


def whole_shard(folder: pathlib.Path) -> Load:
    """Each rank holds the shard."""
    (path,) = list_shards(folder, "train")
    tokens = numpy.fromfile(path, dtype="<u2", offset=4 * SHARD_HEADER_INTS)

    def load(step: int, rank: int, ranks: int) -> int:
        total = 0
        for number in range(step * SLICES + rank, (step + 1) * SLICES, ranks):
            start = number * (SLICE_TOKENS + 1)
            total += sum_of_targets(tokens[start : start + SLICE_TOKENS + 1].astype(numpy.int64))
        return total

    return load


FORMS = {"own slices": own_slices, "every rank's tokens": every_ranks_tokens, "whole shard": whole_shard}


def sum_of_targets(slice_tokens: numpy.ndarray) -> int:
    """Inputs and targets of a slice, as ``TokenStream.slice_batch`` gives them; the sum of the targets."""
    flat = torch.from_numpy(slice_tokens)
    flat[:-1].reshape(-1, SEQ_LEN)
    return int(flat[1:].reshape(-1, SEQ_LEN).sum())


def resident() -> dict[str, int]:
    """PSS of this process and its anonymous part, in kB."""
    fields = dict(line.split(":") for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return {name: int(fields[name].split()[0]) for name in ("Pss", "Pss_Anon")}


def rank_process(form: str, folder: pathlib.Path, rank: int, ranks: int, together: Barrier, answer: Connection) -> None:
    """One rank: wait for the others, pass over the shard, wait again; sends seconds, kB and the sum of the tokens."""
    torch.set_num_threads(1)
    gc.collect()
    together.wait()
    before = resident()
    together.wait()
    started, used = time.perf_counter(), time.process_time()
    load = FORMS[form](folder)
    total = sum(load(step, rank, ranks) for step in range(STEPS))
    seconds, used = time.perf_counter() - started, time.process_time() - used
    together.wait()
    after = resident()
    together.wait()
    answer.send((seconds, used, {name: after[name] - before[name] for name in after}, total))


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass of all ranks: tokens/s until the last has ended, CPU seconds, MB of memory, the sum of all targets."""

    rate: float
    cpu_s: float
    pss: float
    anonymous: float
    total: int


def measure(form: str, folder: pathlib.Path, ranks: int) -> Pass:
    """Run one pass."""
    context = multiprocessing.get_context("fork")
    together = context.Barrier(ranks)
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    processes = [
        context.Process(target=rank_process, args=(form, folder, rank, ranks, together, pipes[rank][1]))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    seconds, used, memory, totals = zip(*(receiver.recv() for receiver, _ in pipes), strict=True)
    for process in processes:
        process.join()
    return Pass(
        rate=STEPS * BATCH_TOKENS / max(seconds),
        cpu_s=sum(used),
        pss=sum(kilobytes["Pss"] for kilobytes in memory) / 1000,
        anonymous=sum(kilobytes["Pss_Anon"] for kilobytes in memory) / 1000,
        total=sum(totals),
    )


def compare(folder: pathlib.Path, ranks: int) -> None:
    """Print a line a form for a number of ranks; medians over rounds, ratios within a round."""
    found: dict[str, list[Pass]] = {form: [] for form in FORMS}
    for number in range(ROUNDS):
        for form in list(FORMS) if number % 2 == 0 else reversed(list(FORMS)):
            found[form].append(measure(form, folder, ranks))
    sums = {one.total for passes in found.values() for one in passes}
    assert len(sums) == 1, f"the forms read different tokens: {sums}"
    print(f"\n{ranks} rank(s), {STEPS} steps of {BATCH_TOKENS:,} tokens, median of {ROUNDS} passes:")
    for form, passes in found.items():
        middle = {
            name: statistics.median(getattr(one, name) for one in passes)
            for name in ("rate", "cpu_s", "pss", "anonymous")
        }
        pairs = list(zip(found["own slices"], passes, strict=True))
        faster = statistics.median(own.rate / other.rate for own, other in pairs)
        cheaper = statistics.median(other.cpu_s / own.cpu_s for own, other in pairs)
        speed, memory = (
            f"{middle['rate'] / 1e6:6.1f} M tokens/s, {middle['cpu_s']:6.2f} CPU s",
            f"{middle['pss']:7.1f} MB",
        )
        print(
            f"  {form:20s} {speed}, PSS {memory} (anonymous {middle['anonymous']:7.1f}); "
            f"own slices: {faster:5.2f}x the speed, 1/{cheaper:.2f} of the CPU"
        )


def main() -> None:
    """Print all comparisons."""
    with tempfile.TemporaryDirectory(prefix="golfray-bench-") as name:
        folder = pathlib.Path(name)
        tokens = numpy.random.default_rng(0).integers(0, VOCAB_SIZE, SHARD_TOKENS, dtype=numpy.uint16)
        (path,) = write_shards(folder, "train", [tokens], SHARD_TOKENS)
        del tokens
        print(f"a shard of {path.stat().st_size:,} bytes, in the page cache")
        for ranks in RANKS:
            compare(folder, ranks)


if __name__ == "__main__":
    main()
