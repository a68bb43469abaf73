"""A cluster that grows and shrinks, ranks that are started anew: which lanes there are, what becomes of jobs."""

import asyncio

import pytest

from golfray.cluster.host import follow_cluster
from golfray.cluster.preflight import plan_lanes
from golfray.cluster.ranks import NODE_LOST, Seat
from golfray.cluster.recycling import ISOLATED
from golfray.sweep.executor import Holding, Job
from golfray.sweep.outcome import Kind
from tests.cluster.broker_play import WATCH_SECONDS, WORKERS, Process, broker_of, finished, lane_with_running_job

FREE = {"CPU": 4.0, "GPU": 0.0}
NODES = Holding(nodes=2, gpus=0)


def test_nodes_that_join_get_lanes_up_to_what_the_study_can_use():
    plan = plan_lanes(FREE, 2, "cpu", max_lanes=5)
    assert plan.slots == 2
    assert [plan.fits({"CPU": cpus}) for cpus in (0.0, 1.9, 2.0, 7.999999999, 64.0)] == [0, 0, 1, 4, 5]

    async def play():
        broker = broker_of(["lane-0", "lane-1"])
        began = await broker.resize(2, NODES), await broker.lanes()
        grown = await broker.resize(4, NODES), await broker.lanes()
        return began, grown, await broker.resize(4, NODES)

    began, grown, again = asyncio.run(play())
    assert began == ([], (2, []))
    assert grown[0] == ["lane-2", "lane-3"]
    assert grown[1] == (4, ["the cluster holds 4 lanes now, 2 before", "lane-2 was added", "lane-3 was added"])
    assert again == []


def test_a_lane_on_a_gpu_needs_both_gpus_and_cpus():
    plan = plan_lanes({"CPU": 32.0, "GPU": 16.0}, 8, "cuda")
    assert [plan.fits({"CPU": 32.0, "GPU": gpus}) for gpus in (7.0, 8.0, 24.0)] == [0, 1, 3]
    assert plan.fits({"CPU": 9.0, "GPU": 24.0}) == 1


def test_a_lane_that_lost_its_node_is_replaced_by_one_on_the_next_node():
    async def play():
        broker, _, _, _ = await lane_with_running_job()
        await broker.resize(1, NODES)
        await broker.group_failed("lane-0", dict.fromkeys(range(WORKERS), NODE_LOST))
        outcome = finished(await broker.events(0.0))
        await broker.resize(0, NODES)
        await broker.submit(Job("b", {}, "somewhere"))
        without = await broker.lanes()
        again, _ = await broker.lane_ended("lane-0", "no room")
        waiting = await broker.events(0.0), await broker.lanes()
        return outcome, without, again, waiting, await broker.resize(1, NODES), await broker.lanes()

    outcome, without, again, waiting, new, lanes = asyncio.run(play())
    assert (outcome.kind, outcome.error) == (Kind.PREEMPTED, "node lost")
    assert without == (0, ["the cluster holds 0 lanes now, 1 before"])
    assert again is False
    assert waiting == ([], (0, ["lane-0 is lost: no node has room for it"])), "the queued job waits for a node"
    assert new == ["lane-1"]
    assert lanes == (1, ["the cluster holds 1 lane now, 0 before", "lane-1 was added"])


def test_a_lane_whose_node_is_back_in_time_is_the_same_lane_again():
    """Its trainer gave up just then, although it had run nothing since: it gets another one."""

    async def play():
        broker, _, _, _ = await lane_with_running_job()
        await broker.resize(1, NODES)
        await broker.group_failed("lane-0", dict.fromkeys(range(WORKERS), NODE_LOST))
        await broker.resize(0, NODES)
        back = await broker.resize(1, NODES)
        first, _ = await broker.lane_ended("lane-0", "it waited for too long")
        second, _ = await broker.lane_ended("lane-0", "ended by ValueError")
        return back, first, second

    assert asyncio.run(play()) == ([], True, False)


def test_a_lane_that_is_lost_for_another_reason_keeps_its_place():
    async def play():
        broker = broker_of(["lane-0", "lane-1"])
        await broker.resize(2, NODES)
        await broker.lane_ended("lane-0", "ended by ValueError: no room")
        return await broker.resize(2, NODES), await broker.lanes()

    names, (usable, news) = asyncio.run(play())
    assert (names, usable, news) == ([], 1, ["lane-0 is lost: ended by ValueError: no room"])


def test_a_cluster_without_room_for_any_lane_is_given_up(monkeypatch):
    monkeypatch.setattr(*WATCH_SECONDS)
    monkeypatch.setattr("golfray.cluster.broker.ROOM_SECONDS", 0.2)

    async def play():
        broker = broker_of(["lane-0"])
        watching = asyncio.create_task(broker.watch())
        await broker.resize(1, NODES)
        await asyncio.sleep(0.4)
        assert not watching.done()
        await broker.resize(0, NODES)
        return await watching

    assert asyncio.run(play()) == "no node of the cluster has had room for a lane for 0.2 s"


@pytest.mark.parametrize("reason", ["it ran 100 trials", ISOLATED])
def test_ranks_that_are_started_anew_leave_when_their_job_has_ended_and_lose_none(reason):
    async def play():
        broker, seats, _, trial = await lane_with_running_job()
        leaving = asyncio.create_task(broker.recycle(seats[1], reason))
        # The next job may be on its way to the other rank already.
        await broker.submit(Job("b", {}, "somewhere"))
        second = asyncio.create_task(broker.pass_on(await broker.take(0.0)))
        await asyncio.sleep(0)
        assert not leaving.done(), "rank 0 has not told the outcome yet"
        await broker.end(seats[0], "a", {"kind": "scored", "reason": "ran"}, None)
        await leaving
        assert await broker.next_job(seats[0], 1) is None
        assert (await trial)["kind"] == "scored"
        await broker.group_failed("lane-0", {})
        for rank in range(WORKERS):
            assert await broker.join(Seat("lane-0", "second", rank), Process(2**30 + rank))
        again = await broker.next_job(Seat("lane-0", "second", 0), 0)
        second.cancel()
        return again.job_id, (await broker.lanes())[1]

    job_id, news = asyncio.run(play())
    assert job_id == "b"
    assert news == ([] if reason == ISOLATED else ["lane-0 starts its ranks anew: it ran 100 trials"])


def test_what_others_use_of_the_cluster_stays_theirs(monkeypatch):
    """12 CPUs, of which 4 are free: two lanes of two. Four more come: two lanes more."""
    import ray

    class Ended(Exception):
        """The end of the test's patience."""

    rooms, started = [], []
    resources = iter([{"CPU": 12.0}, {"CPU": 12.0}, {"CPU": 16.0}])

    class Resize:
        @staticmethod
        def remote(room, holding):
            assert holding == Holding(nodes=1, gpus=3)
            rooms.append(room)
            return [f"lane-{number}" for number in range(2, room)]

    class Broker:
        resize = Resize

    def sleep(seconds):
        if len(rooms) == 2:
            raise Ended

    monkeypatch.setattr(ray, "cluster_resources", lambda: next(resources))
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"GPU": 3.0}}, {"Alive": False}])
    monkeypatch.setattr(ray, "get", lambda names: names)
    monkeypatch.setattr("golfray.cluster.host.time.sleep", sleep)
    with pytest.raises(Ended):
        follow_cluster(Broker, plan_lanes({"CPU": 4.0}, 2, "cpu"), started.append)
    assert rooms == [2, 4]
    assert started == ["lane-2", "lane-3"]
