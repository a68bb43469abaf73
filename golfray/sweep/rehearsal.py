"""A few real steps and validation batches: how fast this machine trains a model, found out before a study begins.

As many processes compute at once as the study will have ranks, each with one CPU thread as a rank has, in gangs that
average their gradients. Their inputs are random tokens, nothing is compiled and nothing is written: only time matters.
``python -m golfray.sweep.rehearsal`` is one such process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from golfray.core.settings import RunSettings, settings_from_dict, settings_to_json

if TYPE_CHECKING:
    from golfray.core.gang import Gang

# Processes beyond these would tell no more than that the machine is full.
MOST_RANKS = 8

# Where torch would keep what it compiles. Making an optimizer makes this folder even though nothing is compiled; this
# one is there, and nobody can make a file in it: whatever did compile would fail and not be written in silence.
NO_CACHE = "/proc"

# Each of the three measurements repeats for this long, and at least once.
_SECONDS = 0.8
# Largest piece of work that is measured as a whole; larger micro-batches and validation batches are scaled up from it.
_MICRO_TOKENS = 2048
_SCORE_TOKENS = 8192
_LIMIT_SECONDS = 180.0
_POLL_SECONDS = 0.05
_PARENT_SECONDS = 1.0


class RehearsalFailed(RuntimeError):
    """This machine did not get through a few steps; the message has why."""

    exit_code = 4


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """What was measured, as means over the ranks, in seconds of a CPU that a rank had for itself.

    ``micro_s_per_token``: forward and backward pass, not compiled. ``update_s``: averaging gradients and one step of
    the optimizers. ``score_s_per_token``: forward pass of validation. ``slowdown``: seconds that passed for each of
    these, 1 on an idle machine.
    """

    micro_s_per_token: float
    update_s: float
    score_s_per_token: float
    slowdown: float

    def step_s(self, settings: RunSettings, workers: int) -> float:
        """CPU seconds of one optimizer step on one rank, not compiled."""
        return self.micro_s_per_token * settings.batch.tokens / workers + self.update_s


def rehearse(settings: RunSettings, workers: int, lanes: int) -> Rehearsal:
    """Measure ``lanes`` gangs of ``workers`` CPU ranks at once, as many of them as make :data:`MOST_RANKS`.

    Takes a few seconds where a step takes less than one. Raises :class:`RehearsalFailed`.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # a compiled class

    text = settings_to_json(settings)
    gangs = min(lanes, max(MOST_RANKS // workers, 1))
    # Port 0: the kernel chooses a free one.
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(gangs)]
    with contextlib.ExitStack() as running:
        ranks = [
            running.enter_context(_process(rank, workers, store.port)) for store in stores for rank in range(workers)
        ]
        # All are started before the first is waited for: the ranks of a gang wait for each other.
        for process in ranks:
            _hand_over(process, text)
        measured = _results(ranks, workers, time.monotonic() + _LIMIT_SECONDS)
    names = [field.name for field in dataclasses.fields(Rehearsal)]
    return Rehearsal(**{name: statistics.fmean(values[name] for values in measured) for name in names})


@contextlib.contextmanager
def _process(rank: int, workers: int, port: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        # -B: not even compiled modules are written.
        [sys.executable, "-B", "-m", "golfray.sweep.rehearsal", str(rank), str(workers), str(port), str(os.getpid())],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCHINDUCTOR_CACHE_DIR": NO_CACHE,
        },
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _hand_over(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died already; its exit code says so
        process.stdin.write(text + "\n")
        process.stdin.flush()


def _results(ranks: list[subprocess.Popen[str]], workers: int, deadline: float) -> list[dict[str, float]]:
    """What the ranks print once all have ended; raises as soon as one has failed, for the others then wait for it."""
    printed: dict[int, str] = {}
    while len(printed) < len(ranks):
        for number, process in enumerate(ranks):
            if number in printed:
                continue
            try:
                out, _ = process.communicate(timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            if process.returncode != 0:
                raise _why_failed(ranks, workers)
            printed[number] = out
        if time.monotonic() > deadline and len(printed) < len(ranks):
            raise RehearsalFailed(
                f"one training step of this configuration takes longer than {_LIMIT_SECONDS:g} s on this machine's CPUs"
            )
    return [json.loads(printed[number]) for number in range(len(ranks))]


def _why_failed(ranks: list[subprocess.Popen[str]], workers: int) -> RehearsalFailed:
    """The error of the ranks that have failed by now. A signal is named before what its peers say of a lost peer."""
    failed = [(number % workers, process) for number, process in enumerate(ranks) if process.poll()]
    for rank, process in failed:
        if process.returncode == -signal.SIGKILL:
            return RehearsalFailed(
                f"rank {rank} of a training step was killed on this machine (SIGKILL), most likely because memory ran "
                f"out for {len(ranks)} such processes at once; free memory, or make the model, batch.seq_len or "
                "workers smaller"
            )
        if process.returncode < 0:
            name = signal.Signals(-process.returncode).name
            return RehearsalFailed(f"rank {rank} of a training step was ended on this machine by {name}")
    ends = []
    for _, process in failed:
        _, err = process.communicate()
        last = (err.strip().splitlines() or ["nothing was printed"])[-1]
        ends.append(f"(exit code {process.returncode}): {last}")
    return RehearsalFailed(f"a training step failed on this machine {'; '.join(dict.fromkeys(ends))}")


def main(arguments: list[str]) -> int:
    """One rank: settings come as a line of JSON on standard input, the measurements go to standard output."""
    from torch import device, distributed
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # a compiled class

    from golfray.core.gang import Gang
    from golfray.core.train import leave_process

    rank, workers, port, parent = map(int, arguments)
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    settings = settings_from_dict(json.loads(sys.stdin.readline()))
    store = TCPStore("127.0.0.1", port, is_master=False)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=workers)
    measured = _measure(settings, Gang(rank, workers, device("cpu")))
    distributed.destroy_process_group()
    print(json.dumps(dataclasses.asdict(measured)))
    leave_process(0)
    return 0


def end_with(parent: int) -> None:
    """End this process once ``parent`` is gone: killed, it cannot end its ranks, and a large step takes minutes."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


def _measure(settings: RunSettings, gang: Gang) -> Rehearsal:
    import torch

    from golfray.core.loop import average_gradients
    from golfray.core.model import build_model
    from golfray.core.optimizers import Optimizers

    batch = settings.batch
    dtype = torch.bfloat16 if settings.runtime.dtype == "bfloat16" else torch.float32
    model = build_model(settings.model, dtype, gang.device)
    optimizers = Optimizers(model, settings, gang)

    def sequences(tokens: int, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        count = max(min(tokens, most) // batch.seq_len, 1)
        drawn = torch.randint(settings.model.vocab_size, (count, batch.seq_len + 1))
        return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()

    micro_batch = sequences(batch.tokens // batch.slices, _MICRO_TOKENS)
    score_batch = sequences(batch.val_tokens // batch.slices, _SCORE_TOKENS)

    def micro() -> None:
        model(*micro_batch).backward()

    def update() -> None:
        # Gradients are there from the last micro-batch; a rate of 0 leaves the weights as they are.
        gradients = [parameter.grad for parameter in optimizers.parameters]
        average_gradients(optimizers.parameters, gang)
        optimizers.step(0.0, settings.muon.momentum_end)
        for parameter, gradient in zip(optimizers.parameters, gradients, strict=True):
            parameter.grad = gradient

    def score() -> None:
        with torch.inference_mode():
            model(*score_batch).item()

    stopwatch = _Stopwatch(gang)
    micro_s, update_s, score_s = stopwatch.cpu_s(micro), stopwatch.cpu_s(update), stopwatch.cpu_s(score)
    return Rehearsal(
        micro_s_per_token=micro_s / micro_batch[0].numel(),
        update_s=update_s,
        score_s_per_token=score_s / score_batch[0].numel(),
        slowdown=stopwatch.passed / stopwatch.cpu,
    )


class _Stopwatch:
    """Times calls that all ranks make equally often, and keeps what passed and what of it this process had a CPU."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang
        self.passed = 0.0
        self.cpu = 0.0

    def cpu_s(self, call: Callable[[], None]) -> float:
        """Mean CPU seconds of a call, after a first one that is not counted."""
        call()
        begin, cpu, count, enough = time.perf_counter(), time.process_time(), 0, False
        while not enough:
            call()
            count += 1
            (late,) = self._gang.broadcast_floats([float(time.perf_counter() - begin >= _SECONDS)])
            enough = bool(late)
        passed, had = time.perf_counter() - begin, time.process_time() - cpu
        self.passed += passed
        self.cpu += had
        return had / count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
