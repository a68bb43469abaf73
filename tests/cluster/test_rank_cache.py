"""A rank's compile cache: it sees what the shared one has, changes nothing there, and gives what it made."""

import os

import pytest

from golfray.cluster.rank_cache import VARIABLE, RankCache, compile_counts


def content(folder):
    return {
        str(path.relative_to(folder)): (path.read_text(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    for name in ("ab/cabc.py", "fxgraph/xy/key/entry", "locks/cabc.lock", "ab/.17.23.tmp", "ab/cdef.so.99.tmp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def cache(tmp_path, shared, monkeypatch):
    monkeypatch.setenv(VARIABLE, "somewhere else")
    opened = RankCache(tmp_path / "private", shared)
    opened.open()
    return opened


def test_it_begins_with_all_that_is_finished_in_the_shared_one(cache, shared, tmp_path):
    assert os.environ[VARIABLE] == str(tmp_path / "private")
    assert sorted(content(tmp_path / "private")) == ["ab/cabc.py", "fxgraph/xy/key/entry"]
    (shared / "ab" / "later.py").write_text("another lane's")
    assert cache.fill() == 1
    assert (tmp_path / "private" / "ab" / "later.py").read_text() == "another lane's"
    assert cache.fill() == 0


def test_what_a_rank_makes_or_replaces_changes_nothing_that_others_read(cache, shared, tmp_path):
    before = content(shared)
    (tmp_path / "private" / "ab" / "cnew.py").write_text("new")
    replaced = tmp_path / "private" / "ab" / "cabc.py"
    replaced.with_name("x").write_text("other")
    os.replace(replaced.with_name("x"), replaced)
    assert content(shared) == before


def test_it_gives_what_it_made_and_nothing_else(cache, shared, tmp_path):
    before = content(shared)
    private = tmp_path / "private"
    (private / "ab" / "cnew.py").write_text("new")
    (private / "ab" / ".1.2.tmp").write_text("half")
    (private / "locks").mkdir()
    (private / "locks" / "cnew.lock").write_text("")
    assert cache.give() == 1
    after = content(shared)
    assert (shared / "ab" / "cnew.py").read_text() == "new"
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"ab/cnew.py"}
    assert cache.give() == 0


def test_a_shared_cache_that_does_not_exist_yet_is_made_by_what_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "somewhere else")
    cache = RankCache(tmp_path / "private", tmp_path / "none")
    cache.open()
    assert cache.fill() == 0
    (tmp_path / "private" / "one.py").write_text("1")
    assert cache.give() == 1
    assert (tmp_path / "none" / "one.py").read_text() == "1"


@pytest.mark.parametrize("options", ["size=16k", "ro"])
def test_a_shared_cache_that_cannot_be_written_costs_no_rank(tmp_path, monkeypatch, mount, options):
    monkeypatch.setenv(VARIABLE, "somewhere else")
    shared = mount("-t", "tmpfs", "-o", options, "tmpfs", tmp_path / "shared")
    cache = RankCache(tmp_path / "private", shared)
    cache.open()
    (tmp_path / "private" / "large.so").write_bytes(bytes(100_000))
    with pytest.raises(OSError, match=r"No space left|Read-only"):
        cache.give()
    assert list(shared.iterdir()) == [], "nor is half of it left"
    said = cache.share(cache.give)
    assert said is not None
    assert said.startswith(f"the compile cache {shared} is not shared with this rank (")
    assert cache.share(cache.fill) is None
    assert (tmp_path / "private" / "large.so").stat().st_size == 100_000


def test_a_private_cache_that_cannot_be_filled_costs_no_trial(tmp_path, monkeypatch, mount):
    monkeypatch.setenv(VARIABLE, "somewhere else")
    (tmp_path / "shared").mkdir()
    private = mount("-t", "tmpfs", "tmpfs", tmp_path / "node") / "private"
    cache = RankCache(private, tmp_path / "shared")
    cache.open()
    (tmp_path / "shared" / "one.py").write_text("1")
    mount("-o", "remount,ro", tmp_path / "node")
    assert "one.py: Read-only file system" in str(cache.share(cache.fill))


def test_hits_and_misses_are_torchs_own_counts(monkeypatch):
    import torch._dynamo

    monkeypatch.setitem(torch._dynamo.utils.counters["inductor"], "fxgraph_cache_hit", 7)
    monkeypatch.setitem(torch._dynamo.utils.counters["inductor"], "fxgraph_cache_miss", 2)
    assert compile_counts() == {"compile/cache_hits": 7, "compile/cache_misses": 2}
