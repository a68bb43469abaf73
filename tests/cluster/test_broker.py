"""The broker as a state machine: whatever dies, whatever is cancelled, every job ends once and runs at most once."""

import asyncio
import collections
import contextlib
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from golfray.cluster.broker import NO_MORE_JOBS
from golfray.cluster.ledger import MOVES, Stage
from golfray.cluster.ranks import UNEXPLAINED, RankError, Seat
from golfray.sweep.executor import Entered, Finished, Job, Progress, Started
from tests.cluster.broker_play import WORKERS, LostMachine, Process, ThisMachine, broker_of

LANES = ["lane-0", "lane-1"]


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
        self.calls, self.lost = {}, {}
        for lane in LANES:
            self.join(lane)

    async def make(self):
        return broker_of(LANES)

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
            if await self.broker.begin(seat, job.job_id, {}):
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
            self.do(self.broker.end(self.seat(lane, rank), entry[1], None, RankError("raised", "ValueError: bad luck")))
        if not raised:
            self.processes[lane, rank].alive = False
        error = RankError("raised", "ValueError: bad luck") if raised else RankError("died", "end of file", "gone")
        self.do(self.broker.group_failed(lane, {rank: error}))
        for each in range(WORKERS):
            self.calls[lane, each].cancel()
            self.running.pop(self.seat(lane, each), None)
        self.join(lane)

    @rule(lane=st.sampled_from(LANES))
    def lane_loses_a_node(self, lane):
        """Rank 1's; the cluster hears of it long after rank 0 has complained of a closed connection."""
        entry = self.running.get(self.seat(lane, 0))
        if entry is None:
            return
        self.broker._nodes = gone = LostMachine()
        dead = RankError("died", "end of file", UNEXPLAINED)
        failing = self.loop.create_task(self.broker.group_failed(lane, {1: dead}))
        self.spin()
        self.do(self.broker.end(self.seat(lane, 0), entry[1], None, RankError("raised", "connection closed by peer")))
        for open_entry in self.broker._ledger.unfinished():
            self.broker._enforcer._enforce(open_entry, time.monotonic() + 1000.0)
            if open_entry.job.job_id == entry[1]:
                self.lost[entry[1]] = "cancelled" if open_entry.cancelled else "preempted"
        gone.verdict.set()
        self.do(failing)
        self.broker._nodes = ThisMachine()
        for each in range(WORKERS):
            self.calls[lane, each].cancel()
            self.running.pop(self.seat(lane, each), None)
        self.join(lane)

    @rule(data=st.data())
    def cancel(self, data):
        if self.jobs:
            self.do(self.broker.cancel(data.draw(st.sampled_from(self.jobs)), "enough"))

    @rule(lane=st.sampled_from(LANES))
    def trainer_ends(self, lane):
        self.do(self.broker.lane_ended(lane, "Train failed"))
        for rank in range(WORKERS):
            self.calls[lane, rank].cancel()
            self.running.pop(self.seat(lane, rank), None)
        self.join(lane)

    @rule(lane=st.sampled_from(LANES), phase=st.sampled_from(["data", "train", "score"]))
    def enter(self, lane, phase):
        entry = self.running.get(self.seat(lane, 0))
        if entry is not None:
            self.do(self.broker.enter(self.seat(lane, 0), entry[1], phase))

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
                assert event.outcome.kind.value == self.lost.get(event.job_id, event.outcome.kind.value)
            elif isinstance(event, Started):
                assert event.job_id not in self.finished
                self.started.add(event.job_id)
            elif isinstance(event, Entered):
                assert event.job_id in self.started - self.finished.keys()
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
TestBrokerMachine.settings = settings(max_examples=40, stateful_step_count=30)


def test_what_ranks_say_twice_counts_once():
    """As they do when the network was cut, and nobody can tell whether the broker heard it the first time."""

    async def play():
        broker = broker_of(["lane-0"], workers=1)
        seat = Seat("lane-0", "first", 0)
        point = {"step": 1, "train/loss": 2.0}

        async def twice(call, *arguments):
            answers = [await call(seat, *arguments), await call(seat, *arguments)]
            assert answers[0] == answers[1]
            return answers[0]

        assert await twice(broker.join, Process(1))
        for job_id in ("a", "b"):
            await broker.submit(Job(job_id, {}, "somewhere"))
            trial = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
            await asyncio.sleep(0)
            assert (await twice(broker.next_job, "ab".index(job_id))).job_id == job_id
            assert await twice(broker.begin, job_id, {})
            await twice(broker.enter, job_id, "train")
            await broker.report(seat, job_id, point)
            assert await broker.report(seat, job_id, {**point, "step": 2}) is None
            assert await broker.report(seat, job_id, {**point, "step": 2}) is None
            await twice(broker.enter, job_id, "score")
            await twice(broker.end, job_id, {"kind": "scored", "reason": "ran"}, None)
            await trial
        return await broker.events(0.0)

    events = asyncio.run(play())
    of_one = [Started, Entered, Progress, Progress, Entered, Finished]
    assert [(type(event), event.job_id) for event in events] == [(kind, job) for job in "ab" for kind in of_one]


def test_a_job_that_ran_never_goes_back():
    assert MOVES[Stage.RUNNING] == {Stage.FINISHED}
    assert MOVES[Stage.FINISHED] == frozenset()
