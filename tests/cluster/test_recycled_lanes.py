"""Real ranks that are started anew after so many trials, or once they hold too much: no trial is lost or run twice."""

import collections

import pytest

from golfray.cluster.recycling import Recycling
from golfray.sweep.outcome import Kind

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lanes(start_lanes):
    return start_lanes(2, recycling=Recycling(trials=3, host_growth=200 * 1024**2))


def test_ranks_are_new_after_so_many_trials_and_after_a_leak(lanes):
    jobs = [lanes.submit(task) for task in ("steps", "steps", "steps", "steps", "leak:1", "steps")]
    outcomes = [lanes.outcome(job) for job in jobs]
    assert {outcome.kind for outcome in outcomes} == {Kind.SCORED}
    assert lanes.ends == collections.Counter(jobs)
    pids = [lanes.pid(job, 0) for job in jobs]
    # Three, as the limit is; then two, since one of the ranks leaked in the second.
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 5]
    assert all(len(lanes.notes(job, 0)) == 1 for job in jobs)
    news = lanes.executor.news()
    assert sum("starts its ranks anew" in words for words in news) >= 2
    assert any("its memory grew by" in words for words in news)


def test_each_rank_compiles_into_a_folder_of_its_own(lanes):
    job = lanes.submit("steps")
    assert lanes.outcome(job).kind is Kind.SCORED
    folders = [lanes.notes(job, rank)[0]["compile_cache"] for rank in range(2)]
    assert [folder.rpartition("/")[2] for folder in folders] == ["lane-0-rank-0", "lane-0-rank-1"]
