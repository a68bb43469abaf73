"""The broker as a state machine: whatever dies, whatever is cancelled, every job ends once and runs at most once."""

import asyncio
import collections
import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from golfray.cluster.broker import NO_MORE_JOBS, Broker
from golfray.cluster.ledger import MOVES, Stage
from golfray.cluster.ranks import RankError, Seat
from golfray.sweep.executor import Finished, Job, Started
from golfray.sweep.outcome import Kind

WORKERS = 2
LANES = ["lane-0", "lane-1"]


class Process:
    """A rank's process, seen from the broker: it can be killed, and asked how it fares."""

    def __init__(self, pid):
        self.pid, self.node, self.alive = pid, "node", True

    def kill(self):
        self.alive = False

    async def probe(self):
        return None if self.alive else RankError("died", "it was killed")


class BrokerMachine(RuleBasedStateMachine):
    """Plays the study, Tune and the ranks, one step of one of them at a time."""

    @initialize()
    def start(self):
        self.loop = asyncio.new_event_loop()
        self.broker = self.do(self.make())
        self.jobs, self.tasks, self.running = [], [], {}
        self.ran, self.finished, self.started = collections.Counter(), collections.Counter(), set()
        self.groups = dict.fromkeys(LANES, 0)
        self.processes = {}
        self.calls = {}
        for lane in LANES:
            self.join(lane)

    async def make(self):
        return Broker(WORKERS, LANES, cancel_grace_s=1e9, silence_s=1e9)

    def do(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 30))

    def spin(self):
        for _ in range(12):
            self.do(asyncio.sleep(0))

    def join(self, lane):
        self.groups[lane] += 1
        for rank in range(WORKERS):
            process = self.processes[lane, rank] = Process(1000 * self.groups[lane] + rank)
            self.do(self.broker.join(self.seat(lane, rank), process))
            self.calls[lane, rank] = self.loop.create_task(self.serve(self.seat(lane, rank)))
        self.spin()

    def seat(self, lane, rank):
        return Seat(lane, f"group-{self.groups[lane]}", rank)

    async def serve(self, seat):
        """A rank's loop up to the moment it begins to run a job."""
        index = 0
        while (job := await self.broker.next_job(seat, index)) is not None:
            index += 1
            if await self.broker.begin(seat, job.job_id):
                if seat.rank == 0:
                    self.ran[job.job_id] += 1
                self.running[seat] = released = asyncio.Event(), job.job_id
                await released[0].wait()

    @rule()
    def submit(self):
        job_id = f"job-{len(self.jobs)}"
        self.jobs.append(job_id)
        self.do(self.broker.submit(Job(job_id, {}, "somewhere")))

    @rule()
    def tune_carries_one(self):
        job_id = self.do(self.broker.take(0.0))
        if job_id not in (None, NO_MORE_JOBS):
            self.tasks.append(self.loop.create_task(self.broker.pass_on(job_id)))
        self.spin()

    @rule()
    def tune_loses_one(self):
        job_id = self.do(self.broker.take(0.0))
        if job_id not in (None, NO_MORE_JOBS):
            self.do(self.broker.abandon(job_id, "its trial died"))

    @rule(lane=st.sampled_from(LANES), kind=st.sampled_from(["scored", "stopped", "diverged"]))
    def lane_ends_its_job(self, lane, kind):
        current = [self.running.pop(self.seat(lane, rank), None) for rank in range(WORKERS)]
        for rank, entry in enumerate(current):
            if entry is not None:
                released, job_id = entry
                outcome = {"kind": kind, "reason": "it ended"} if rank == 0 else None
                self.do(self.broker.end(self.seat(lane, rank), job_id, outcome, None))
                released.set()
        self.spin()

    @rule(lane=st.sampled_from(LANES), rank=st.integers(0, WORKERS - 1), raised=st.booleans())
    def lane_fails(self, lane, rank, raised):
        entry = self.running.get(self.seat(lane, rank))
        if raised and entry is not None:
            self.do(self.broker.end(self.seat(lane, rank), entry[1], None, "ValueError: bad luck"))
        if not raised:
            self.processes[lane, rank].kill()
        error = RankError("raised", "ValueError: bad luck") if raised else RankError("died", "end of file")
        self.do(self.broker.group_failed(lane, {rank: error}))
        for each in range(WORKERS):
            self.calls[lane, each].cancel()
            self.running.pop(self.seat(lane, each), None)
        self.join(lane)

    @rule(data=st.data())
    def cancel(self, data):
        if self.jobs:
            self.do(self.broker.cancel(data.draw(st.sampled_from(self.jobs)), "enough"))

    @rule(lane=st.sampled_from(LANES))
    def report(self, lane):
        entry = self.running.get(self.seat(lane, 0))
        if entry is not None:
            self.do(self.broker.report(self.seat(lane, 0), entry[1], {"step": 1, "train/loss": 2.0}))

    @invariant()
    def each_job_ends_once_and_runs_once(self):
        if not hasattr(self, "broker"):
            return
        for event in self.do(self.broker.events(0.0)):
            if isinstance(event, Finished):
                self.finished[event.job_id] += 1
                assert event.outcome.reason
            elif isinstance(event, Started):
                assert event.job_id not in self.finished
                self.started.add(event.job_id)
        assert all(count == 1 for count in self.finished.values())
        assert all(count == 1 for count in self.ran.values())

    def teardown(self):
        if not hasattr(self, "broker"):
            return
        closing = self.loop.create_task(self.broker.close("the end"))
        self.spin()
        for lane in LANES:
            self.do(self.broker.lane_ended(lane, "the end"))
        self.do(closing)
        self.each_job_ends_once_and_runs_once()
        assert set(self.finished) == set(self.jobs)
        for task in [*self.tasks, *self.calls.values()]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self.do(task)
        self.loop.close()


TestBrokerMachine = BrokerMachine.TestCase
TestBrokerMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_job_that_ran_never_goes_back():
    assert MOVES[Stage.RUNNING] == {Stage.FINISHED}
    assert MOVES[Stage.FINISHED] == frozenset()


def finished(events):
    (event,) = [event for event in events if isinstance(event, Finished)]
    return event.outcome


async def lane_with_running_job(**deadlines):
    """A broker of one lane whose two ranks have begun the job "a"; returns it with their seats and processes."""
    broker = Broker(WORKERS, ["lane-0"], **{"cancel_grace_s": 1e9, "silence_s": 1e9, **deadlines})
    seats = [Seat("lane-0", "first", rank) for rank in range(WORKERS)]
    processes = [Process(rank) for rank in range(WORKERS)]
    for seat, process in zip(seats, processes, strict=True):
        assert await broker.join(seat, process)
    await broker.submit(Job("a", {}, "somewhere"))
    trial = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
    await asyncio.sleep(0)
    for seat in seats:
        assert (await broker.next_job(seat, 0)).job_id == "a"
    assert await asyncio.gather(*(broker.begin(seat, "a") for seat in seats)) == [True, True]
    return broker, seats, processes, trial


def test_the_dead_rank_is_named_even_if_only_its_peer_complained():
    async def play():
        broker, seats, processes, trial = await lane_with_running_job()
        processes[1].kill()
        await broker.end(seats[0], "a", None, "RuntimeError: connection closed by peer")
        await broker.group_failed("lane-0", {0: RankError("raised", "connection closed by peer")})
        assert (await trial)["kind"] == "crashed"
        return finished(await broker.events(0.0))

    assert asyncio.run(play()).reason == "rank 1 died: it was killed"


def test_the_first_exception_is_the_reason_not_its_echo():
    async def play():
        broker, seats, _, _ = await lane_with_running_job()
        await broker.end(seats[1], "a", None, "ValueError: bad data (shards.py:7)")
        await broker.end(seats[0], "a", None, "RuntimeError: connection closed by peer")
        await broker.group_failed("lane-0", {rank: RankError("raised", "something") for rank in range(WORKERS)})
        return finished(await broker.events(0.0))

    assert asyncio.run(play()).reason == "rank 1: ValueError: bad data (shards.py:7)"


def test_a_silent_job_is_asked_then_killed_and_counts_as_hung():
    async def play():
        broker, _, processes, _ = await lane_with_running_job(cancel_grace_s=0.0, silence_s=0.0)
        watching = asyncio.create_task(broker.watch())
        outcome = finished(await wait_for_end(broker))
        await broker.close("the end")
        await watching
        return outcome, processes

    async def wait_for_end(broker):
        events = []
        while not any(isinstance(event, Finished) for event in events):
            events += await broker.events(5.0)
        return events

    outcome, processes = asyncio.run(play())
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason.startswith("hung: no report for 0 s")
    assert not any(process.alive for process in processes)


def test_a_lane_that_only_fails_is_given_up_and_its_jobs_are_told():
    async def play():
        broker = Broker(1, ["lane-0"], cancel_grace_s=1e9, silence_s=1e9)
        await broker.submit(Job("a", {}, "somewhere"))
        welcome = []
        for attempt in range(4):
            welcome.append(await broker.join(Seat("lane-0", f"group-{attempt}", 0), Process(attempt)))
            await broker.group_failed("lane-0", {0: RankError("died", "out of memory")})
        return welcome, finished(await broker.events(0.0))

    welcome, outcome = asyncio.run(play())
    assert welcome == [True, True, True, False]
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason == "no lane is left: lane-0 failed 3 times without a job (rank 0 died: out of memory)"
