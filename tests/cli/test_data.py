"""``golfray data build`` and ``data check`` as a person runs them: what they print, leave behind and exit with."""

import gzip
import json
import os
import shutil
import signal

import pytest

from golfray.data.manifest import check_files, read_manifest
from tests.conftest import generated_documents


@pytest.fixture(scope="module")
def text(golfray) -> list[str]:
    """Names of two files of one's own in the folder of the commands: packed text, and lines of JSON."""
    documents = generated_documents(208, seed=4)
    (golfray.folder / "one.txt.gz").write_bytes(gzip.compress("\n\n".join(documents[:100]).encode()))
    lines = "".join(json.dumps({"text": document}) + "\n" for document in documents[100:])
    (golfray.folder / "two.jsonl").write_text(lines + json.dumps({"text": documents[3]}) + "\n")
    return ["one.txt.gz", "two.jsonl"]


@pytest.fixture(scope="module")
def built(golfray, text):
    """The folder ``own`` of these files, and how building it ended."""
    ended = golfray.run("data", "build", *text, "--separator", "", "--out", "own", "--vocab-size", "320")
    assert ended.code == 0, ended
    return ended


def test_build_says_what_it_did_and_how_to_use_it(golfray, text, built):
    assert built.err == ""
    assert "read 209 documents from 2 files: " in built.out
    assert (
        "left out 1 document that another one is the same as, such as two.jsonl:109, which is one.txt.gz:7" in built.out
    )
    assert "train: 198 documents, " in built.out
    assert "val: 10 documents, " in built.out
    last = built.out.splitlines()[-1]
    assert last == f"use it with: --set data.folder={golfray.folder}/own --set model.vocab_size=320"
    assert sorted(path.name for path in (golfray.folder / "own").iterdir()) == [
        "fineweb_train_000000.bin",
        "fineweb_val_000000.bin",
        "manifest.json",
        "own_320_bpe.model",
    ]


def test_build_as_json(golfray, text):
    ended = golfray.run("data", "build", *text, "--separator=", "--out=as_json", "--vocab-size=320", "--json", "-q")
    (line,) = ended.out.splitlines()
    document = json.loads(line)
    assert (document["schema"], document["kind"]) == ("golfray/1", "data_build")
    assert document["folder"] == str(golfray.folder / "as_json")
    assert document["recipe"]["documents_left_out"] == {"blank": 0, "doubled": 1, "overlapping": 0}
    assert (document["train"]["documents"], document["contaminated"]) == (198, False)


def test_check_of_what_was_built(golfray, built):
    ended = golfray.run("data", "check", "own")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == f"{golfray.folder}/own: 0 errors, 0 warnings"


def test_check_lists_all_that_is_wrong(golfray, built):
    shutil.copytree(golfray.folder / "own", golfray.folder / "damaged")
    shard = golfray.folder / "damaged" / "fineweb_train_000000.bin"
    content = bytearray(shard.read_bytes())
    content[2000:2002] = b"\xff\xff"
    shard.write_bytes(content)
    val = golfray.folder / "damaged" / "fineweb_val_000000.bin"
    val.write_bytes(val.read_bytes()[1024:])
    commands = {name: ["data", "check", "damaged", *options] for name, options in (("lines", []), ("json", ["--json"]))}
    ends = golfray.run_all(commands)
    assert [ended.code for ended in ends.values()] == [2, 2]
    lines = [line for line in ends["lines"].out.splitlines() if line.startswith(("error: ", "warning: "))]
    assert [line.split(": ")[1] for line in lines] == [
        str(val),
        str(shard),
        str(shard),
        f"{shard.parent}/manifest.json",
    ]
    assert "it looks like bare tokens without a header" in lines[0]
    assert "changed since it was built: " in lines[1]
    assert "1 token(s) beyond the 320 pieces of own_320_bpe.model, the first being 65535 at position 488" in lines[2]
    assert ends["lines"].err == ""
    (document,) = map(json.loads, ends["json"].out.splitlines())
    assert (document["kind"], document["errors"], document["warnings"]) == ("data_check", 4, 0)
    assert [finding["code"] for finding in document["findings"]] == [
        "shard-headerless",
        "sum-differs",
        "token-over-vocabulary",
        "count-differs",
    ]
    assert set(document["findings"][0]) == {"severity", "code", "where", "what", "remedy"}
    assert document["facts"]["train"]["documents"] == 198


# What is typed after `golfray data`, and a part of the only line of the answer.
REFUSED = {
    "bad line": (["build", "bad.jsonl", "--out", "x"], "golfray: bad.jsonl:2: not JSON: Expecting value at column 1"),
    "cut": (["build", "cut.txt.gz", "--out", "x"], "golfray: cut.txt.gz: cut short or damaged: "),
    "no tokenizer": (
        ["build", "two.jsonl", "--tokenizer", "two.jsonl", "--out", "x"],
        "golfray: two.jsonl: not a SentencePiece model",
    ),
    "too few documents": (
        ["build", "two.jsonl", "--vocab-size", "30000", "--out", "deep/in/x"],
        "golfray: no tokenizer of 30000 pieces can be trained on these documents: ",
    ),
    "there already": (["build", "two.jsonl", "--out", "."], "is there already; a corpus is written once"),
    "no folder to check": (["check", "absent"], "/absent: no such folder; give the one that holds fineweb_train_*.bin"),
}


@pytest.fixture(scope="module")
def refused(golfray, text):
    """How each of them ended."""
    (golfray.folder / "bad.jsonl").write_text('{"text": "good"}\nbad\n')
    (golfray.folder / "cut.txt.gz").write_bytes((golfray.folder / "one.txt.gz").read_bytes()[:-20])
    before = set(golfray.folder.iterdir())
    ends = golfray.run_all({name: ["data", *arguments, "-q"] for name, (arguments, _) in REFUSED.items()})
    assert set(golfray.folder.iterdir()) == before, "a refused command left something"
    return ends


@pytest.mark.parametrize("name", REFUSED)
def test_refused(refused, name):
    ended, expected = refused[name], REFUSED[name][1]
    assert ended.code == 2, ended
    assert expected in ended.one_line()


@pytest.fixture(scope="module")
def long_text(golfray) -> str:
    """A file that takes seconds to build from."""
    lines = (json.dumps({"text": document}) + "\n" for document in generated_documents(1000, seed=5))
    (golfray.folder / "long.jsonl").write_text("".join(lines))
    return "long.jsonl"


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_build_that_is_interrupted_is_not_there_and_the_next_one_works(golfray, long_text, number):
    folder = golfray.folder / number.name
    folder.mkdir()
    command = ["data", "build", long_text, "--out", f"{number.name}/own", "--vocab-size", "320"]
    started = golfray.start(*command)
    started.wait_for_line("split with seed")
    os.killpg(started.process.pid, number)
    ended = started.end()
    left = [path.name for path in folder.iterdir()]
    if number == signal.SIGKILL:
        assert ended.code == -signal.SIGKILL
        assert sorted(left) == [".own.lock", ".own.unfinished"]
    else:
        assert ended.code == (130 if number == signal.SIGINT else 143), ended
        assert left == []
    assert started.left_processes() == []
    again = golfray.run(*command)
    assert again.code == 0, again
    assert [path.name for path in folder.iterdir()] == ["own"]
    check_files(folder / "own", read_manifest(folder / "own"))


def damage(folder, name, change):
    """A copy of the folder in which a file's bytes are changed, or are gone where ``change`` returns None."""
    shutil.copytree(folder / "own", folder / name)
    path = folder / name / "fineweb_train_000000.bin"
    content = change(bytearray(path.read_bytes()))
    path.unlink() if content is None else path.write_bytes(content)


# How a training shard is damaged, and what training on it is answered with before it starts.
UNFIT = {
    "truncated": (
        lambda content: content[:-100],
        "cut short, 100 bytes are missing (cut download?); fetch or build it",
    ),
    "wrong-magic": (lambda content: b"\1" + content[1:], "magic 20240385, must be 20240520"),
    "headerless": (lambda content: content[1024:], "it looks like bare tokens without a header"),
    "over-vocabulary": (
        lambda content: content[:-2] + b"\x40\x01",
        "fineweb_train_000000.bin: token 320 in a sample of it, but the tokenizer own_320_bpe.model has 320 pieces",
    ),
    "missing": (lambda content: None, "no fineweb_train_*.bin here; data.folder must hold token shards"),
}


@pytest.mark.slow
def test_training_on_data_that_is_unfit_is_refused_before_it_starts(golfray, built, write_space):
    for name, (change, _) in UNFIT.items():
        damage(golfray.folder, name, change)
    damage(golfray.folder, "whole", lambda content: content)
    (golfray.folder / "whole" / "manifest.json").unlink()
    other = golfray.run("data", "build", "two.jsonl", "--out", "larger", "--vocab-size", "400", "-q")
    assert other.code == 0, other
    train = ["train", "--scale=laptop", "--set=model.vocab_size=320"]
    write_space(golfray.folder / "unfit.yaml", budget={"trials": 2}, replicates=1)
    tune = ["tune", "unfit.yaml"]
    others = ["--set=data.folder=whole", "--set=data.tokenizer=larger/larger_400_bpe.model"]
    unfit = {name: [f"--set=data.folder={name}"] for name in UNFIT} | {"another vocabulary": others}
    commands = {(verb[0], name): [*verb, *sets] for verb in (train, tune) for name, sets in unfit.items()}
    ends = golfray.run_all(commands)
    messages = {name: message for name, (_, message) in UNFIT.items()}
    messages["another vocabulary"] = "larger_400_bpe.model, got 320"
    for (verb, name), ended in ends.items():
        assert ended.code == 2, (verb, name, ended)
        assert messages[name] in ended.one_line()
    assert not (golfray.folder / "runs").exists()
    assert not (golfray.folder / "studies").exists()


@pytest.mark.slow
def test_tuning_on_text_of_ones_own(golfray, built, write_space):
    write_space(golfray.folder / "own.yaml", fixed={"data.folder": "own"}, budget={"trials": 2}, replicates=1)
    ended = golfray.run("tune", "own.yaml")
    assert ended.code == 0, ended
    assert "corpus own, 320 pieces" in ended.out
    log = (golfray.folder / "studies" / "own" / "events.jsonl").read_text()
    events = [json.loads(line) for line in log.splitlines()]
    kinds = [event["outcome"]["kind"] for event in events if event["event"] == "attempt_ended"]
    assert kinds == ["scored", "infeasible"], "trial 1 is over the cap, as ever"
