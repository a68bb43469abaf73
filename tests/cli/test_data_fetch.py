"""``golfray data fetch`` as a person runs it: killed and run again, asked only to say, in the ways it can end."""

import itertools
import json
import os
import pathlib
import pty
import shlex
import signal
import subprocess
import sys

import pytest

from golfray.data.corpus import Corpus, open_corpus
from tests.data.published_layout import NAME, hashes, publish, serve
from tests.ports import refusing_port

FOLDER = f"datasets/{NAME}"
SHARD = f"{FOLDER}/fineweb_train_000001.bin"
HALF = (1024 + 2 * 25_000) // 2


@pytest.fixture(scope="module")
def published(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The small source; not to be changed."""
    return publish(tmp_path_factory.mktemp("published"), tiny_corpus)


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_killed_in_the_middle_and_run_again(golfray, published, tmp_path, wait, number):
    part = tmp_path / f"{SHARD}.part"
    with serve(published, stall={SHARD: HALF}) as server:
        arguments = ("data", "fetch", server.base, "--variant", "sp320", "--to", tmp_path)
        started = golfray.start(*arguments)
        wait(lambda: part.exists() and part.stat().st_size > 10_000)
        os.kill(started.process.pid, number)
        ended = started.end()
        assert ended.code == (130 if number == signal.SIGINT else -number), ended
        assert not (tmp_path / SHARD).exists()
        have = part.stat().st_size

        server.behaviour.stall.clear()
        server.requests.clear()
        again = golfray.run(*arguments, "--json")
    assert again.code == 0, again
    assert server.transfers(SHARD) == [f"bytes={have}-"]
    assert server.transfers("fineweb_train_000000.bin") == []
    assert "fineweb_train_000000.bin: 51,024 bytes, there already" in again.err
    assert "fineweb_train_000001.bin: 51,024 bytes, fetched" in again.err
    assert hashes(tmp_path / FOLDER) == hashes(published / FOLDER)

    (document,) = (json.loads(line) for line in again.out.splitlines())
    assert (document["schema"], document["kind"]) == ("golfray/1", "data_fetch")
    assert document["settings"] == [f"data.folder={tmp_path / FOLDER}", "model.vocab_size=320"]
    assert open_corpus(pathlib.Path(document["folder"])).train_tokens == document["manifest"]["train"]["tokens"]
    words = shlex.split(again.err.splitlines()[-1])
    assert words[:2] == ["golfray", "tune"]
    assert [value for option, value in itertools.pairwise(words) if option == "--set"] == document["settings"]


def test_only_to_say(golfray, published, tmp_path):
    arguments = ["data", "fetch", published, "--variant=sp320", "--to", tmp_path / "data", "--dry-run", "--json"]
    ended = golfray.run(*arguments)
    assert ended.code == 0
    assert list(tmp_path.iterdir()) == []
    assert f"51,024 bytes  {SHARD}  (new)" in ended.err
    (document,) = (json.loads(line) for line in ended.out.splitlines())
    assert (document["schema"], document["kind"]) == ("golfray/1", "data_fetch_plan")
    assert document["need_bytes"] == sum(file["bytes"] for file in document["files"])
    assert len(document["files"]) == 9


def test_each_documented_end(golfray, published, tmp_path):
    with refusing_port() as port:
        closed = f"http://127.0.0.1:{port}"
        ends = golfray.run_all(
            {
                "no network": ["data", "fetch", closed, "--to", tmp_path / "data"],
                "no such variant": ["data", "fetch", published, "--variant=sp32", "--to", tmp_path / "data"],
            }
        )
    assert ends["no network"].code == 4
    assert ends["no network"].one_line().startswith(f"golfray: {closed}/manifest.json: no answer: Connection refused")
    assert ends["no such variant"].code == 2
    assert "did you mean sp320?" in ends["no such variant"].one_line()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_interruption_does_not_wait_for_a_server_that_does_not_answer(golfray, published, tmp_path, wait):
    with serve(published, stall_probes=True) as server:
        started = golfray.start("data", "fetch", server.base, "--variant=sp320", "--to", tmp_path)
        wait(lambda: any("fineweb_val" in path for path, _ in server.requests))
        os.kill(started.process.pid, signal.SIGINT)
        ended = started.end()
        assert not server.released.is_set()
        # Every one of the files was still being waited for: none of the requests was given up and made again.
        asked = [path for path, _ in server.requests]
        assert len(asked) == len(set(asked))
    assert ended.code == 130, ended
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_quietly(golfray, published, tmp_path):
    ended = golfray.run("data", "fetch", published, "--variant=sp320", "--train-shards=1", "--to", tmp_path, "-q")
    assert ended.err == ""
    first, *_, last = ended.out.splitlines()
    assert first.startswith(f"{tmp_path / FOLDER}: 25,000 training tokens in 1 shard(s)")
    assert last.startswith("  golfray tune ")


@pytest.mark.slow
def test_on_a_terminal_there_is_one_bar(published, tmp_path):
    driver, terminal = pty.openpty()
    golfray = pathlib.Path(sys.executable).with_name("golfray")
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with serve(published, stall={SHARD: HALF}) as server:
        command = [golfray, "data", "fetch", server.base, "--variant=sp320", "--to", tmp_path]
        process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        seen = read_until(driver, "fineweb_train_000001.bin")
        server.released.set()
        read_until(driver, None)
        process.wait()
    os.close(driver)
    assert "to be written" in seen
    assert "fineweb_train_000001.bin" in seen
    assert "bytes, fetched" not in seen


def read_until(terminal: int, part: str | None) -> str:
    """What is written to a terminal until ``part`` of it, or to the end."""
    seen = ""
    while part is None or part not in seen:
        try:
            content = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not content:
            break
        seen += content.decode("utf-8", "replace")
    return seen
