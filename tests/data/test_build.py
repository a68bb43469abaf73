"""A corpus folder is complete or absent, built once, and the manifest is true of it."""

import dataclasses
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from golfray.core.byte_table import load_byte_table
from golfray.core.shards import list_shards, map_shard
from golfray.data.build import Recipe, build_corpus, split_documents
from golfray.data.errors import DataError
from golfray.data.manifest import Manifest, check_files, read_manifest
from golfray.data.split_tally import tally_split
from tests.data.decoding import decode_documents
from tests.forks import Forked, Forks

DOCUMENTS = [f"document {i}: " + " ".join(str(i * k % 997) for k in range(20)) + " naïve 語" for i in range(1, 50)]
RECIPE = Recipe(
    name="numbers",
    source="tests",
    shuffle_seed=5,
    val_documents=7,
    vocab_size=300,
    shard_tokens=900,
    demo=False,
    contaminated=False,
    warning="numbers only",
)


def opened(folder: pathlib.Path) -> Manifest:
    manifest = read_manifest(folder)
    assert manifest is not None
    return manifest


def test_the_manifest_is_true_of_the_folder(tmp_path: pathlib.Path) -> None:
    folder = build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path)
    manifest = opened(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["manifest.json", *(entry.file for entry in manifest.entries())]
    )
    assert len(manifest.train.shards) > 1
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / manifest.tokenizer.file))
    table = load_byte_table(str(folder / manifest.tokenizer.file), 300)
    train, val = split_documents(DOCUMENTS, 5, 7)
    for name, documents, split in (("train", train, manifest.train), ("val", val, manifest.val)):
        paths = list_shards(folder, name)
        tokens = [int(token) for path in paths for token in map_shard(path)]
        assert [path.name for path in paths] == [entry.file for entry in split.shards]
        assert [path.stat().st_size for path in paths] == [entry.bytes for entry in split.shards]
        assert len(tokens) == split.tokens
        assert tokens.count(tokenizer.bos_id()) == split.documents == len(documents)
        assert tokens[0] == tokenizer.bos_id()
        assert tokenizer.eos_id() not in tokens
        assert decode_documents(paths, tokenizer) == documents
        bytes_of_text = sum(len(text.encode()) for text in documents)
        assert bytes_of_text == split.text_bytes == split.normalised_bytes == split.scored_bytes
        assert tally_split(paths, table, 300).scored_bytes == split.scored_bytes


def test_two_builds_are_the_same_bytes(tmp_path: pathlib.Path) -> None:
    one = build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path / "one")
    two = build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path / "two")
    assert one.name == two.name
    assert {path.name: path.read_bytes() for path in one.iterdir()} == {
        path.name: path.read_bytes() for path in two.iterdir()
    }


def test_a_corpus_is_built_once_and_a_changed_recipe_anew(tmp_path: pathlib.Path) -> None:
    reads: list[str] = []

    def read_documents() -> list[str]:
        reads.append("read")
        return DOCUMENTS

    first = build_corpus(RECIPE, read_documents, tmp_path)
    assert build_corpus(RECIPE, read_documents, tmp_path) == first
    assert len(reads) == 1
    other = build_corpus(dataclasses.replace(RECIPE, shuffle_seed=6), read_documents, tmp_path)
    assert other != first
    assert len(reads) == 2
    assert opened(first).documents_sha256 != opened(other).documents_sha256


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"source": "other"},
        {"shuffle_seed": 6},
        {"val_documents": 8},
        {"vocab_size": 301},
        {"shard_tokens": 901},
        {"demo": True},
        {"contaminated": True},
        {"warning": "other"},
    ],
)
def test_every_part_of_the_recipe_is_in_its_key(change: dict[str, object]) -> None:
    assert dataclasses.replace(RECIPE, **change).key() != RECIPE.key()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fineweb_val_000000.bin", "fineweb_train_000001.bin", "numbers_300_bpe.model"])
def test_a_file_changed_after_the_build_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    folder = build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path)
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: changed since it was built.*delete the folder {folder}"):
        build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path)


def test_a_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    folder = build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path)
    (folder / "fineweb_train_000001.bin").unlink()
    with pytest.raises(DataError, match=r"fineweb_train_000001\.bin: missing, though manifest\.json names it"):
        check_files(folder, opened(folder))


def test_a_build_that_fails_leaves_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="no tokenizer of 60000 pieces"):
        build_corpus(dataclasses.replace(RECIPE, vocab_size=60_000), lambda: DOCUMENTS, tmp_path)
    assert everything(tmp_path) == []


def test_a_build_leaves_no_lock_behind(tmp_path: pathlib.Path) -> None:
    folder = build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path)
    assert list((tmp_path / "corpora").iterdir()) == [folder]


def test_folders_that_hold_something_else_stay(tmp_path: pathlib.Path) -> None:
    (tmp_path / "corpora").mkdir()
    with pytest.raises(DataError, match="no tokenizer of 60000 pieces"):
        build_corpus(dataclasses.replace(RECIPE, vocab_size=60_000), lambda: DOCUMENTS, tmp_path)
    assert everything(tmp_path) == [tmp_path / "corpora"]


# Builds RECIPE from DOCUMENTS as a process of its own; what stands for {before} runs ahead of the build.
BUILDER = """
import json, logging, os, pathlib, signal, sys, time
from golfray.data.build import Recipe, build_corpus
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
home, recipe, documents = pathlib.Path(sys.argv[1]), Recipe(**json.loads(sys.argv[2])), json.loads(sys.argv[3])
def read_documents():
    print("reading", flush=True)
    return documents
{before}
print("folder", build_corpus(recipe, read_documents, home), flush=True)
"""

# The process kills itself when it opens such a file, or makes this call of the operating system on it.
KILL = """
def die(event, arguments):
    if event == {event!r} and {part!r} in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(die)
"""


def builder(home: pathlib.Path, before: str = "") -> list[str]:
    """The program, and its arguments."""
    program = BUILDER.replace("{before}", before)
    return [program, str(home), json.dumps(dataclasses.asdict(RECIPE)), json.dumps(DOCUMENTS)]


def first_line(process: Forked) -> str:
    deadline = time.monotonic() + 120
    while "\n" not in process.said():
        assert time.monotonic() < deadline, "nothing was said"
        time.sleep(0.01)
    return process.said().splitlines()[0]


def besides_the_lock(home: pathlib.Path) -> list[str]:
    return [path.name for path in (home / "corpora").iterdir() if not path.name.endswith(".lock")]


def everything(home: pathlib.Path) -> list[pathlib.Path]:
    return list(home.rglob("*"))


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ("open", "fineweb_train_000002.bin"),
        ("open", "fineweb_val_000000.bin"),
        ("open", "manifest.json"),
        ("os.rename", ".unfinished"),
    ],
)
def test_kill_9_in_the_middle_leaves_nothing_half_made(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, running_forks: Forks, event: str, part: str
) -> None:
    code, *said = running_forks.start(*builder(tmp_path, KILL.format(event=event, part=part))).end()
    assert code == -signal.SIGKILL, said
    assert [name.endswith(".unfinished") for name in besides_the_lock(tmp_path)] == [True]
    assert len(everything(tmp_path / "corpora")) > 1, "the lock of a killed process is left"

    with caplog.at_level(logging.INFO):
        folder = build_corpus(RECIPE, lambda: DOCUMENTS, tmp_path)
    assert "left by a process that was interrupted; removed" in caplog.text
    check_files(folder, opened(folder))
    assert besides_the_lock(tmp_path) == [folder.name]


def test_a_write_that_the_system_refuses_leaves_nothing(tmp_path: pathlib.Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    process = subprocess.run([sys.executable, "-c", *builder(tmp_path, limit)], capture_output=True, text=True)
    assert process.returncode == 1, process
    last = process.stderr.splitlines()[-1]
    assert "could not be built: [Errno 27] File too large" in last
    assert "GOLFRAY_HOME can be set" in last
    assert everything(tmp_path) == []


def test_two_builders_at_once_build_one_corpus(tmp_path: pathlib.Path, running_forks: Forks) -> None:
    go = tmp_path / "go"
    waiting = (
        "read_at_once = read_documents\n"
        "def read_documents():\n"
        "    documents = read_at_once()\n"
        f"    while not os.path.exists({str(go)!r}):\n"
        "        time.sleep(0.01)\n"
        "    return documents\n"
    )
    first = running_forks.start(*builder(tmp_path, waiting))
    assert first_line(first) == "reading"
    second = running_forks.start(*builder(tmp_path))
    assert "another process is at work; waiting for it" in first_line(second)
    go.touch()
    ends = [process.end() for process in (first, second)]
    assert [code for code, _, _ in ends] == [0, 0], ends
    outputs = [out for _, out, _ in ends]
    assert "reading" not in outputs[1]
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    folder = pathlib.Path(outputs[0].splitlines()[-1].removeprefix("folder "))
    check_files(folder, opened(folder))


def test_a_waiting_builder_takes_over_from_a_killed_one(tmp_path: pathlib.Path, running_forks: Forks) -> None:
    pausing = "read_documents = lambda: (print('reading', flush=True), signal.pause())"
    first = running_forks.start(*builder(tmp_path, pausing))
    assert first_line(first) == "reading"
    second = running_forks.start(*builder(tmp_path))
    assert "another process is at work; waiting for it" in first_line(second)
    os.kill(first.pid, signal.SIGKILL)
    assert first.end()[0] == -signal.SIGKILL
    code, out, error = second.end()
    assert (code, error) == (0, "")
    assert "reading" in out
    assert len(besides_the_lock(tmp_path)) == 1


@given(st.lists(st.text(min_size=1), min_size=2, max_size=30, unique=True), st.integers(0, 2**31), st.data())
def test_a_split_keeps_every_document_once(documents: list[str], seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(documents) - 1))
    train, val = split_documents(documents, seed, count)
    assert len(val) == count
    assert not set(train) & set(val)
    assert sorted(train + val) == sorted(documents)
    assert split_documents(documents, seed, count) == (train, val)


def test_a_document_in_both_splits_is_refused() -> None:
    with pytest.raises(DataError, match=r"1 of the 1 validation documents are training documents too.*'twice'"):
        split_documents(["twice", "twice"], 0, 1)


@pytest.mark.parametrize("val_documents", [0, 49, 50])
def test_an_empty_split_is_refused(val_documents: int) -> None:
    with pytest.raises(DataError, match=f"got {val_documents} of 49 documents"):
        split_documents(DOCUMENTS, 0, val_documents)
