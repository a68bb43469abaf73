"""The broker as a state machine: whatever dies, whatever is cancelled, every job ends once and runs at most once."""

import asyncio
import collections
import contextlib
import dataclasses
import pathlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from golfray.cluster.broker import NO_MORE_JOBS, Broker
from golfray.cluster.ledger import MOVES, Stage
from golfray.cluster.ranks import RankError, Seat
from golfray.sweep.executor import Entered, Finished, Job, Started
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.outcome import Kind

WORKERS = 2
LANES = ["lane-0", "lane-1"]


FOREVER = PhaseLimits(*[1e9] * 10)


@pytest.fixture(autouse=True)
def watchful(monkeypatch):
    """Nothing here takes long enough to be looked at twice a second."""
    monkeypatch.setattr("golfray.cluster.broker._WATCH_SECONDS", 0.05)


class Process:
    """A rank's process, seen from the broker: it can be killed, and asked how it fares."""

    def __init__(self, pid):
        self.pid, self.node, self.alive = pid, "node", True

    async def kill(self, nodes):
        self.alive = False

    async def probe(self):
        return None if self.alive else RankError("died", "it was killed", "rank died: at a guess")


class ThisMachine:
    """Every node is this one."""

    async def ask(self, node, question, *arguments, limit_s):
        return question(*arguments)

    async def has_left(self, node):
        return False


def broker_of(lanes, workers=WORKERS, limits=FOREVER, folder=pathlib.Path("somewhere"), grace=1e9):
    return Broker(workers, lanes, grace, limits, folder, ThisMachine())


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
TestBrokerMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_job_that_ran_never_goes_back():
    assert MOVES[Stage.RUNNING] == {Stage.FINISHED}
    assert MOVES[Stage.FINISHED] == frozenset()


def finished(events):
    (event,) = [event for event in events if isinstance(event, Finished)]
    return event.outcome


async def lane_with_running_job(folder=pathlib.Path("somewhere"), **deadlines):
    """A broker of one lane whose two ranks have begun the job "a"; returns it with their seats and processes."""
    broker = broker_of(["lane-0"], folder=folder, **deadlines)
    seats = [Seat("lane-0", "first", rank) for rank in range(WORKERS)]
    processes = [Process(2**30 + rank) for rank in range(WORKERS)]
    for seat, process in zip(seats, processes, strict=True):
        assert await broker.join(seat, process)
    await broker.submit(Job("a", {}, str(folder / "trials" / "a")))
    trial = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
    await asyncio.sleep(0)
    for seat in seats:
        assert (await broker.next_job(seat, 0)).job_id == "a"
    assert await asyncio.gather(*(broker.begin(seat, "a", {}) for seat in seats)) == [True, True]
    return broker, seats, processes, trial


async def outcome_of_watched(broker):
    """The end that the broker's own watch brings about."""
    watching, events = asyncio.create_task(broker.watch()), []
    while not any(isinstance(event, Finished) for event in events):
        events += await broker.events(5.0)
    await broker.close("the end")
    await watching
    return finished(events)


def test_the_dead_rank_is_named_even_if_only_its_peer_complained():
    async def play():
        broker, seats, processes, trial = await lane_with_running_job()
        await processes[1].kill(None)
        await broker.end(seats[0], "a", None, RankError("raised", "RuntimeError: connection closed by peer"))
        await broker.group_failed("lane-0", {0: RankError("raised", "connection closed by peer")})
        assert (await trial)["kind"] == "crashed"
        return finished(await broker.events(0.0))

    outcome = asyncio.run(play())
    assert (outcome.reason, outcome.error) == ("rank 1 died: it was killed", "rank died: at a guess")


def test_the_first_exception_is_the_reason_not_its_echo():
    async def play():
        broker, seats, _, _ = await lane_with_running_job()
        cause = RankError("raised", "ValueError: bad data (shards.py:7)", "ValueError at shards.py:7")
        await broker.end(seats[1], "a", None, cause)
        await broker.end(seats[0], "a", None, RankError("raised", "RuntimeError: connection closed by peer"))
        await broker.group_failed("lane-0", {rank: RankError("raised", "something") for rank in range(WORKERS)})
        return finished(await broker.events(0.0))

    outcome = asyncio.run(play())
    assert outcome.reason == "rank 1: ValueError: bad data (shards.py:7)"
    assert outcome.error == "ValueError at shards.py:7"


def test_a_death_without_a_sign_is_looked_into(tmp_path):
    async def play():
        broker, _, _, _ = await lane_with_running_job(tmp_path)
        (tmp_path / "trials" / "a").mkdir(parents=True)
        (tmp_path / "trials" / "a" / "rank-1.log").write_text("Fatal Python error: Aborted\n")
        await broker.group_failed("lane-0", {rank: RankError("died", "?", "rank died") for rank in range(WORKERS)})
        return finished(await broker.events(0.0))

    outcome = asyncio.run(play())
    assert outcome.reason == "rank 0 died: its process ended without a word, as after SIGKILL"
    assert outcome.error == "rank died: SIGKILL"


def test_a_preempted_node_is_no_crash_of_the_job():
    async def play():
        broker, _, _, _ = await lane_with_running_job()
        await broker.group_failed("lane-0", {1: RankError("preempted", "its node has left the cluster", "node lost")})
        return finished(await broker.events(0.0))

    outcome = asyncio.run(play())
    assert (outcome.kind, outcome.error) == (Kind.PREEMPTED, "node lost")
    assert outcome.reason == "rank 1 preempted: its node has left the cluster"


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
        while (reason := await broker.report(seats[0], "a", {"step": 1.0})) is None:
            await asyncio.sleep(0.1)
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


def test_a_lane_that_only_fails_is_given_up_and_its_jobs_are_told():
    async def play():
        broker = broker_of(["lane-0"], workers=1)
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


def test_a_trainer_that_never_ran_a_job_is_not_started_again():
    async def play():
        broker = broker_of(["lane-0"])
        await broker.submit(Job("a", {}, "somewhere"))
        return await broker.lane_ended("lane-0", "ended by ValueError: no room"), finished(await broker.events(0.0))

    (again, group), outcome = asyncio.run(play())
    assert (again, group) == (False, None)
    assert outcome.reason == "no lane is left: lane-0 ended by ValueError: no room"
    assert outcome.error == "no lane is left"


def test_a_trainer_that_was_of_use_is_replaced_and_its_job_has_crashed():
    async def play():
        broker, _, _, _ = await lane_with_running_job()
        first = await broker.lane_ended("lane-0", "ended by ActorDiedError: it died")
        outcome = finished(await broker.events(0.0))
        return first, outcome, await broker.lane_ended("lane-0", "ended by ValueError: no room")

    first, outcome, second = asyncio.run(play())
    assert first == (True, "first")
    assert outcome.reason == "lane-0 failed while it ran this job: ended by ActorDiedError: it died"
    assert outcome.error == "lane lost"
    assert second == (False, "first"), "it ran nothing in between"
