"""Jobs that are late: looked at while they hang, asked to stop, killed at last; and those that only seem to be late."""

import asyncio
import dataclasses

import pytest

from golfray.cluster.ranks import Seat
from golfray.sweep.executor import Finished, Job
from golfray.sweep.outcome import Kind
from tests.cluster.broker_play import (
    FOREVER,
    WATCH_SECONDS,
    WORKERS,
    Process,
    broker_of,
    finished,
    lane_with_running_job,
    outcome_of_watched,
)


@pytest.fixture(autouse=True)
def watchful(monkeypatch):
    """The broker looks at once."""
    monkeypatch.setattr(*WATCH_SECONDS)


@pytest.mark.parametrize(
    "phase", ["start", "data", "compile", "train", "validate", "calibrate", "export", "score", "sliding"]
)
def test_a_job_that_hangs_is_looked_at_asked_and_killed(tmp_path, phase):
    async def play():
        limits = dataclasses.replace(FOREVER, **{phase: 0.0})
        broker, seats, processes, _ = await lane_with_running_job(tmp_path, grace=0.0, limits=limits)
        if phase != "start":
            await broker.enter(seats[0], "a", phase)
        return await outcome_of_watched(broker), processes

    outcome, processes = asyncio.run(play())
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason.startswith(f"hung in {phase}: ")
    assert f"(limit {phase}); stacks in trials/a/stacks.txt (it did not stop within 0 s" in outcome.reason
    assert outcome.error == f"phase limit: {phase}"
    # These processes do not exist, and that is what was found.
    assert (tmp_path / "trials" / "a" / "stacks.txt").read_text().count("no stack: Error: ") == WORKERS
    assert not any(process.alive for process in processes)


def test_a_job_that_hangs_and_then_answers_is_not_killed(tmp_path):
    async def play():
        broker, seats, processes, _ = await lane_with_running_job(
            tmp_path, limits=dataclasses.replace(FOREVER, progress=0.0)
        )
        await broker.enter(seats[0], "a", "train")
        watching = asyncio.create_task(broker.watch())
        while not (tmp_path / "trials" / "a" / "stacks.txt").exists():
            await asyncio.sleep(0.05)
        reason = await broker.report(seats[0], "a", {"step": 1.0})
        await broker.end(seats[0], "a", {"kind": "stopped", "reason": reason, "metrics": {"train/steps": 1.0}}, None)
        outcome = finished(await broker.events(0.0))
        await broker.close("the end")
        await watching
        return outcome, processes

    outcome, processes = asyncio.run(play())
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason == "hung in train: no report for 0 s (limit progress); stacks in trials/a/stacks.txt"
    assert (outcome.error, outcome.metrics) == ("phase limit: train", {"train/steps": 1.0})
    assert all(process.alive for process in processes)


def test_a_job_that_a_free_lane_never_takes(tmp_path):
    async def play():
        broker = broker_of(["lane-0"], folder=tmp_path, limits=dataclasses.replace(FOREVER, start=0.0))
        await broker.submit(Job("a", {}, "somewhere"))
        return await outcome_of_watched(broker)

    outcome = asyncio.run(play())
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason == "hung in start: no lane took it, though one was free for 0 s (limit start)"


def test_ranks_that_do_not_take_their_job_are_looked_at_and_killed(tmp_path):
    async def play():
        broker = broker_of(["lane-0"], folder=tmp_path, limits=dataclasses.replace(FOREVER, start=0.6))
        seats = [Seat("lane-0", "first", rank) for rank in range(WORKERS)]
        processes = [Process(2**30 + rank) for rank in range(WORKERS)]
        for seat, process in zip(seats, processes, strict=True):
            assert await broker.join(seat, process)
        await broker.submit(Job("a", {}, str(tmp_path / "a")))
        trial = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
        await asyncio.sleep(0)
        # Rank 1 hears of it and is never heard of again.
        waiting = asyncio.create_task(broker.begin(seats[0], (await broker.next_job(seats[0], 0)).job_id, {}))
        outcome = await outcome_of_watched(broker)
        assert not await waiting
        assert (await trial)["kind"] == "crashed"
        return outcome, processes

    outcome, processes = asyncio.run(play())
    assert outcome.reason == "hung in start: not every rank took it for 0.6 s (limit start); stacks in a/stacks.txt"
    assert not any(process.alive for process in processes)


def test_a_job_waits_without_limit_while_every_lane_is_at_work(tmp_path):
    async def play():
        broker, seats, _, _ = await lane_with_running_job(limits=dataclasses.replace(FOREVER, start=0.2))
        await broker.enter(seats[0], "a", "train")
        await broker.submit(Job("b", {}, "somewhere"))
        watching = asyncio.create_task(broker.watch())
        await asyncio.sleep(0.5)
        assert not any(isinstance(event, Finished) for event in await broker.events(0.0))
        await broker.end(seats[0], "a", {"kind": "scored", "reason": "it ended"}, None)
        events = []
        while sum(isinstance(event, Finished) for event in events) < 2:
            events += await broker.events(5.0)
        await broker.close("the end")
        await watching
        return [(event.job_id, event.outcome.error) for event in events if isinstance(event, Finished)]

    # Once the lane is free, it is the ranks, which this test does not play, that do not come.
    assert asyncio.run(play()) == [("a", None), ("b", "phase limit: start")]
