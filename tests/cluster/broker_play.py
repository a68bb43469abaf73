"""The broker with nothing real around it: ranks that can be killed, machines that get lost, a lane at work."""

import asyncio
import pathlib

from golfray.cluster.broker import Broker
from golfray.cluster.nodes import NoAnswer
from golfray.cluster.ranks import RankError, Seat
from golfray.sweep.executor import Finished, Job
from golfray.sweep.limits import PhaseLimits

WORKERS = 2
FOREVER = PhaseLimits(*[1e9] * 10)
# The broker's own wait between two looks is for real ranks; nothing here takes long enough for it.
WATCH_SECONDS = "golfray.cluster.broker._WATCH_SECONDS", 0.05


class Process:
    """A rank's process, seen from the broker: it can be killed, and asked how it fares."""

    def __init__(self, pid):
        self.pid, self.node, self.alive = pid, "node", True

    async def kill(self, nodes):
        self.alive = False

    async def probe(self, nodes):
        return None if self.alive else RankError("died", "it was killed", "rank died: at a guess")


class ThisMachine:
    """Every node is this one."""

    async def ask(self, node, question, *arguments, limit_s):
        return question(*arguments)

    async def has_left(self, node):
        return False


class LostMachine:
    """A machine that is gone, of which the cluster only hears when ``verdict`` is set."""

    def __init__(self):
        self.verdict = asyncio.Event()

    async def ask(self, node, question, *arguments, limit_s):
        raise NoAnswer(f"no answer within {limit_s:g} s")

    async def has_left(self, node):
        await self.verdict.wait()
        return True


def broker_of(lanes, workers=WORKERS, limits=FOREVER, folder=pathlib.Path("somewhere"), grace=1e9, nodes=None):
    return Broker(workers, lanes, grace, limits, folder, nodes or ThisMachine())


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
