"""Lanes that form: taken when every rank is there and has what it needs, refused otherwise."""

import asyncio
import pathlib

from golfray.cluster.broker import Broker
from golfray.cluster.rank_probe import RankProbe, of_nodes
from golfray.cluster.ranks import Seat
from golfray.sweep.executor import Finished, Job, Started
from golfray.sweep.outcome import Kind
from tests.cluster.broker_play import FOREVER, Process, ThisMachine


def probe(rank, node="n1", tflops=1.0, **changes):
    values = {
        "rank": rank,
        "node": node,
        "host": f"host-{node}",
        "address": "10.0.0.1",
        "device": "cpu",
        "matmul_tflops": tflops,
        "reduce_gb_s": 2.0,
        "read_mb_s": None,
        "mhz": None,
        "max_mhz": None,
        "driver": None,
        "python": "3.11",
        "torch": "2.13",
        "cuda": None,
        "nccl": None,
        "seconds": 0.5,
    }
    return RankProbe(**{**values, **changes})


def broker_of(lanes, refuse_slower=None):
    return Broker(2, lanes, 1e9, FOREVER, pathlib.Path("somewhere"), ThisMachine(), refuse_slower)


async def join(broker, lane):
    seats = [Seat(lane, "first", rank) for rank in range(2)]
    for number, seat in enumerate(seats):
        assert await broker.join(seat, Process(2**30 + number))
    return seats


async def form(broker, seats, faults=((), ()), **changes):
    """What the two ranks of a lane are told: after their node was looked at, and after they have measured."""
    equipped = await asyncio.gather(*(broker.equip(seat, list(own)) for seat, own in zip(seats, faults, strict=True)))
    if not all(equipped):
        return equipped
    return await asyncio.gather(*(broker.probed(seat, probe(seat.rank, **changes)) for seat in seats))


def test_what_is_slowest_of_a_node_counts():
    (one, two) = of_nodes(
        [probe(2, "n2"), probe(1, tflops=0.8, reduce_gb_s=1.5), probe(0, tflops=0.9, read_mb_s=100.0, mhz=2000)]
    )
    assert (one.node, one.ranks, one.lane_ranks, one.matmul_tflops, one.reduce_gb_s) == ("n1", 2, 3, 0.8, 1.5)
    assert (one.read_mb_s, one.mhz, one.max_mhz) == (100.0, 2000, None)
    assert (two.node, two.ranks) == ("n2", 1)


def test_a_job_says_where_it_began():
    async def play():
        broker = broker_of(["lane-0"])
        seats = await join(broker, "lane-0")
        assert await form(broker, seats) == [True, True]
        await broker.submit(Job("a", {}, "trials/a"))
        trial = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
        await asyncio.sleep(0)
        for seat in seats:
            assert (await broker.next_job(seat, 0)).job_id == "a"
        await asyncio.gather(*(broker.begin(seat, "a", {}) for seat in seats))
        trial.cancel()
        return await broker.events(0.0)

    (started,) = [event for event in asyncio.run(play()) if isinstance(event, Started)]
    assert [(node.host, node.ranks) for node in started.nodes] == [("host-n1", 2)]


def test_nobody_goes_on_before_the_last_has_come():
    async def play():
        broker = broker_of(["lane-0"])
        first, second = await join(broker, "lane-0")
        waiting = asyncio.create_task(broker.equip(first, []))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert await broker.equip(second, [])
        assert await waiting
        waiting = asyncio.create_task(broker.probed(second, probe(1)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert await broker.probed(first, probe(0))
        assert await waiting

    asyncio.run(play())


def test_a_lane_that_starts_anew_meanwhile_sends_the_old_ranks_home():
    async def play():
        broker = broker_of(["lane-0"])
        old = await join(broker, "lane-0")
        waiting = asyncio.create_task(broker.equip(old[0], []))
        await asyncio.sleep(0.01)
        assert await broker.join(Seat("lane-0", "second", 0), Process(1))
        assert await waiting is False

    asyncio.run(play())


def test_other_data_refuses_the_lane_and_its_jobs_go_to_another():
    async def play():
        broker = broker_of(["lane-0", "lane-1"])
        bad, good = await join(broker, "lane-0"), await join(broker, "lane-1")
        assert await form(broker, bad, (["/data/a.bin is not the driver's file"], [])) == [False, False]
        assert await form(broker, good) == [True, True]
        await broker.submit(Job("a", {}, "trials/a"))
        trial = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
        await asyncio.sleep(0)
        assert [await broker.next_job(seat, 0) for seat in bad] == [None, None]
        assert (await broker.next_job(good[0], 0)).job_id == "a"
        assert await broker.lane_ended("lane-0", "its ranks went home") == (False, "first")
        trial.cancel()

    asyncio.run(play())


def test_where_every_lane_is_refused_jobs_end_with_the_reason():
    async def play():
        broker = broker_of(["lane-0"])
        seats = await join(broker, "lane-0")
        await broker.submit(Job("a", {}, "trials/a"))
        assert await form(broker, seats, ([], ["b lacks", "c lacks", "d lacks", "e lacks"])) == [False, False]
        return await broker.events(0.0)

    (end,) = [event for event in asyncio.run(play()) if isinstance(event, Finished)]
    assert end.outcome.kind is Kind.CRASHED
    assert end.outcome.reason == (
        "no lane is left: lane-0 was refused: b lacks; c lacks; d lacks; and 1 more (Ray's node node)"
    )


def test_a_slow_node_is_refused_when_others_show_that_it_is_slow():
    """It came first: then nothing was known to be faster."""

    async def play(refuse_slower):
        broker = broker_of(["lane-0", "lane-1"], refuse_slower)
        slow, fast = await join(broker, "lane-0"), await join(broker, "lane-1")
        assert await form(broker, slow, node="n1", tflops=0.5) == [True, True]
        assert await form(broker, fast, node="n2", tflops=1.0) == [True, True]
        await broker.submit(Job("a", {}, "trials/a"))
        trial = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
        await asyncio.sleep(0)
        job = await broker.next_job(slow[0], 0)
        trial.cancel()
        return job

    assert asyncio.run(play(1.5)) is None
    assert asyncio.run(play(2.5)).job_id == "a"
    assert asyncio.run(play(None)).job_id == "a"
