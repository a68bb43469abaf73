"""Sums of files: read once, and again whenever the file may be another."""

import hashlib
import json
import os

import pytest

from golfray.data.file_sums import sum_of

LONG_AGO = 1_500_000_000


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GOLFRAY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def written(path, content, when=LONG_AGO):
    path.write_bytes(content)
    os.utime(path, (when, when))
    return hashlib.sha256(content).hexdigest()


def remembered(home):
    return [json.loads(path.read_text()) for path in (home / "sums").glob("*.json")] if home.exists() else []


def test_a_sum_is_remembered_and_believed(home, tmp_path):
    shard = tmp_path / "shard.bin"
    digest = written(shard, b"tokens")
    assert sum_of(shard) == digest
    (known,) = remembered(home)
    assert (known["path"], known["sha256"]) == (str(shard), digest)
    # That it is believed, and the file not read again, shows where it is wrong.
    (place,) = (home / "sums").glob("*.json")
    place.write_text(json.dumps({**known, "sha256": "f" * 64}))
    assert sum_of(shard) == "f" * 64


@pytest.mark.parametrize("content", [b"others", b"longer than it was"])
def test_a_file_that_changed_is_read_again(home, tmp_path, content):
    shard = tmp_path / "shard.bin"
    before = written(shard, b"tokens")
    assert sum_of(shard) == before
    after = written(shard, content, LONG_AGO + 1)
    assert sum_of(shard) == after != before


def test_another_file_of_the_same_name_size_and_time(home, tmp_path):
    shard, other = tmp_path / "shard.bin", tmp_path / "other.bin"
    written(shard, b"tokens")
    assert sum_of(shard) == hashlib.sha256(b"tokens").hexdigest()
    digest = written(other, b"nekots")
    other.replace(shard)
    assert sum_of(shard) == digest


def test_what_was_changed_a_moment_ago_is_not_remembered(home, tmp_path):
    shard = tmp_path / "shard.bin"
    shard.write_bytes(b"tokens")
    assert sum_of(shard) == hashlib.sha256(b"tokens").hexdigest()
    assert remembered(home) == []


@pytest.mark.parametrize("memory", ["", "[]", "{", '{"identity": 1}'])
def test_a_damaged_memory_is_none(home, tmp_path, memory):
    shard = tmp_path / "shard.bin"
    digest = written(shard, b"tokens")
    sum_of(shard)
    (place,) = (home / "sums").glob("*.json")
    place.write_text(memory)
    assert sum_of(shard) == digest


def test_without_a_place_to_remember_it_is_read_every_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOLFRAY_HOME", str(tmp_path / "file" / "home"))
    digest = written(tmp_path / "shard.bin", b"tokens")
    assert sum_of(tmp_path / "shard.bin") == digest


def test_a_file_that_is_not_there(home, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        sum_of(tmp_path / "absent.bin")
