"""`golfray train` and `golfray pack`: one trial without Ray, and the script that repeats it."""

import json
import re
import signal

import pytest

from golfray.core.settings import settings_from_dict
from golfray.ship.packer import pack

ARTIFACT = "final_model.int8.ptz"


@pytest.fixture(scope="module")
def trained(golfray, tiny_sets):
    """A trial of one worker."""
    ended = golfray.run("train", "--folder=one", *tiny_sets)
    assert (ended.code, ended.err) == (0, ""), ended
    return ended


def test_its_output_off_a_terminal_is_plain_lines(golfray, trained):
    assert "preset parameter-golf, scale laptop (chosen at the start), 1 worker(s)\n" in trained.out
    assert "corpus tiny, 320 pieces: " in trained.out
    assert re.search(r"^golfray: cpu, float32, eager \(asked for\), 1 thread\(s\) a rank, 1 rank", trained.out, re.M)
    assert re.search(r"^step 1/12  loss 5\.\d{4}  lr x1\.000  [\d,]+ tokens/s  \d+\.\d s$", trained.out, re.M)
    assert "\r" not in trained.out
    assert "\x1b" not in trained.out


def test_its_last_lines_are_its_result(golfray, trained):
    result = json.loads((golfray.folder / "one" / "result.json").read_text())
    metrics = result["metrics"]
    assert result["kind"] == "scored"
    assert f"{metrics['bpb/roundtrip']:.4f} BPB, {int(metrics['bytes/total']):,} bytes, margin +" in trained.out
    assert f"bytes: {int(metrics['bytes/code']):,} code + {int(metrics['bytes/model']):,} model" in trained.out
    assert "training: 12 steps, 12,288 tokens, " in trained.out
    assert trained.out.endswith(f"score it again: golfray score {golfray.folder / 'one' / ARTIFACT}\n")


def test_it_writes_what_a_trial_writes(golfray, trained):
    files = {path.name for path in (golfray.folder / "one").iterdir()}
    assert files == {
        "settings.json",
        "train.log",
        "checkpoint.pt",
        ARTIFACT,
        "clock.json",
        "curve.jsonl",
        "result.json",
    }
    assert list(golfray.home.iterdir()) == []


def test_a_folder_that_exists_is_never_written_into(golfray, trained, tiny_sets):
    before = {path: path.stat().st_mtime_ns for path in (golfray.folder / "one").iterdir()}
    ended = golfray.run("train", "--folder=one", *tiny_sets)
    assert ended.code == 2
    assert ended.one_line() == (
        f"golfray: {golfray.folder / 'one'}: exists already and is never written over; choose another with --folder"
    )
    assert {path: path.stat().st_mtime_ns for path in (golfray.folder / "one").iterdir()} == before


def test_over_the_cap_is_exit_7_and_says_by_how_much(golfray, tiny_sets):
    ended = golfray.run("train", "--folder=over", *tiny_sets, "--set=cap_bytes=60000")
    assert (ended.code, ended.err) == (7, "")
    result = json.loads((golfray.folder / "over" / "result.json").read_text())
    over = int(-result["metrics"]["bytes/margin"])
    assert result["kind"] == "infeasible"
    assert f"infeasible: {over:,} bytes over the cap" in ended.out


def test_pack_writes_the_script_of_these_settings(golfray, trained, tiny_sets):
    """What it computes is shown by tests/ship: the same bytes as the package."""
    packed = golfray.run("pack", "train_gpt.py", *tiny_sets)
    assert (packed.code, packed.err) == (0, "")
    content = (golfray.folder / "train_gpt.py").read_bytes()
    assert f"train_gpt.py: {len(content):,} bytes of code, of a cap of " in packed.out
    settings = settings_from_dict(json.loads((golfray.folder / "one" / "settings.json").read_text()))
    assert content == pack(settings).content
    assert json.loads((golfray.folder / "one" / "result.json").read_text())["metrics"]["bytes/code"] == len(content)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_the_ranks_too(golfray, tiny_sets, number):
    changes = ["--set=workers=2", "--set=stop.steps=1000000", "--set=runtime.log_points=100000"]
    sets = [option for option in tiny_sets if not option.startswith(("--set=workers", "--set=stop.steps"))]
    started = golfray.start("train", f"--folder={number.name}", *sets, *changes)
    started.wait_for_line("/1,000,000  loss ")
    started.process.send_signal(number)
    ended = started.end()
    word, code = ("interrupted", 130) if number == signal.SIGINT else ("terminated", 143)
    assert (ended.code, ended.err.split("\n")[-2]) == (code, f"golfray: {word}")
    assert started.left_processes() == []
