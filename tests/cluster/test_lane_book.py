"""A lane that fails, under a job or idle: who is named, what the job's end is called, when a lane is given up."""

import asyncio

from golfray.cluster.ranks import UNEXPLAINED, RankError, RankProcess, Seat
from golfray.sweep.executor import Job
from golfray.sweep.outcome import Kind
from tests.cluster.broker_play import (
    WATCH_SECONDS,
    WORKERS,
    LostMachine,
    Process,
    ThisMachine,
    broker_of,
    finished,
    lane_with_running_job,
)


def test_a_node_of_which_the_cluster_hears_late_is_lost_and_no_crash(monkeypatch):
    monkeypatch.setattr(*WATCH_SECONDS)
    monkeypatch.setattr("golfray.cluster.enforcer.SETTLE_SECONDS", 0.0)

    async def play():
        nodes = LostMachine()
        broker, seats, _, trial = await lane_with_running_job(nodes=nodes)
        watching = asyncio.create_task(broker.watch())
        failing = asyncio.create_task(broker.group_failed("lane-0", {1: RankError("died", "gone", UNEXPLAINED)}))
        await asyncio.sleep(0)
        await broker.end(seats[0], "a", None, RankError("raised", "RuntimeError: connection closed by peer"))
        await asyncio.sleep(0.2)
        assert not trial.done()
        nodes.verdict.set()
        await failing
        outcome = finished(await broker.events(0.0))
        await broker.close("the end")
        await watching
        return outcome

    outcome = asyncio.run(play())
    assert (outcome.kind, outcome.error) == (Kind.PREEMPTED, "node lost")
    assert outcome.reason == "rank 1 preempted: its node has left the cluster"


def test_a_node_that_only_its_peers_have_missed_is_looked_for(monkeypatch):
    """Ray has no word of it yet: the rank there just does not answer."""
    monkeypatch.setattr("golfray.cluster.ranks._PROBE_SECONDS", 0.05)

    class Deaf:
        class __ray_ready__:
            @staticmethod
            async def remote():
                await asyncio.sleep(1e6)

    async def play(nodes):
        nodes.verdict.set()
        return await RankProcess(Deaf, 1, 0.0, "node").probe(nodes)

    class Here(ThisMachine):
        verdict = asyncio.Event()

    assert asyncio.run(play(LostMachine())) == RankError("preempted", "its node has left the cluster", "node lost")
    assert asyncio.run(play(Here())) is None, "its node answers: it hangs"


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
