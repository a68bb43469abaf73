"""What a person types wrongly: one message that says what, where and what to do, exit code 2, never a traceback."""

import os
import re
import subprocess

import pytest
import typer
from typer.testing import CliRunner

from golfray.cli.main import app
from golfray.cli.options import cluster_address
from tests.cli.conftest import GOLFRAY

VERBS = (
    *("tune", "status", "show", "logs", "confirm", "claim", "compare", "import-records"),
    *("train", "score", "export", "pack", "selftest", "data", "track", "ui"),
)


def test_help_names_every_verb_and_every_exit_code(golfray):
    ended = golfray.run("--help")
    assert (ended.code, ended.err) == (0, "")
    assert [verb for verb in VERBS if f"│ {verb} " not in ended.out] == []
    told = " ".join(ended.out.split())
    assert "Exit codes: 0 ok, 1 a bug of golfray, 2 wrong use" in told
    assert "7 no feasible trial, 129 hung up, 130 interrupted, 141 output closed, 143 terminated." in told


GROUPS = ("show", "data")
COMMANDS = [
    *(verb for verb in VERBS if verb not in GROUPS),
    *(f"show {what}" for what in ("config", "schema", "trial", "knobs")),
    *(f"data {what}" for what in ("build", "check", "fetch")),
]


def help_of(name):
    """What a verb says of itself; in this process, since there are many of them."""
    ended = CliRunner().invoke(app, [*name.split(), "--help"], prog_name="golfray")
    assert ended.exit_code == 0
    return ended.output


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPS])
def test_every_verb_explains_itself(name):
    told = help_of(name)
    assert f"Usage: golfray {name}" in told
    assert "[[" not in told


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_has_the_same_three_options_and_the_exit_codes(name):
    told = help_of(name)
    for option in (r"--json ", r"--quiet +-q ", r"--verbose +-v "):
        assert re.search(option, told), option
    assert "143 terminated" in " ".join(told.split())


def test_version(golfray):
    import golfray as package

    assert golfray.run("--version").out.strip() == package.__version__


# A name, what is typed (files are those of `refused`), and the start and a part of the message.
REFUSED = {
    "misspelt knob": (
        ["tune", "typo.yaml"],
        ":3 knobs.optimizer.matrx_lr: unknown setting; did you mean optimizer.matrix_lr?",
    ),
    "no such space": (["tune", "absent.yaml"], "golfray: absent.yaml: cannot be read: No such file or directory"),
    "unknown setting": (
        ["tune", "good.yaml", "--set", "stop.stepz=3"],
        "golfray: --set stop.stepz: unknown setting; did you mean stop.steps?",
    ),
    "no equals sign": (["train", "--set", "stop"], "golfray: --set: expected PATH=VALUE such as"),
    "out of bounds": (
        ["train", "--set", "muon.momentum_end=2"],
        "golfray: --set muon.momentum_end: must be a number >= 0 and < 1, got 2",
    ),
    "no shards": (
        ["train", "--scale", "laptop", "--set", "data.folder=empty"],
        "/empty: no fineweb_train_*.bin here; data.folder must hold token shards",
    ),
    "vectors are no JSON": (["selftest", "--vectors", "bad.json"], "golfray: bad.json: is not JSON: "),
    "no study": (
        ["ui", "empty"],
        "golfray: empty: no study here (events.jsonl is missing); there is none",
    ),
}


@pytest.fixture(scope="module")
def refused(golfray, write_space):
    """How each of them ended."""
    folder = golfray.folder
    good = write_space(folder / "good.yaml").read_text()
    (folder / "typo.yaml").write_text(good.replace("matrix_lr", "matrx_lr"))
    (folder / "bad.json").write_text("{\n")
    (folder / "empty").mkdir()
    before = {path.name for path in folder.iterdir()}
    ends = golfray.run_all({name: arguments for name, (arguments, _) in REFUSED.items()})
    assert {path.name for path in folder.iterdir()} == before, "a refused command left something"
    return ends


def test_a_misspelt_knob_is_shown_at_its_line(golfray, refused):
    lines = (golfray.folder / "typo.yaml").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if "matrx_lr" in line]
    assert refused["misspelt knob"].err.startswith(f"golfray: typo.yaml:{number}:3 knobs.")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(refused, name):
    ended, expected = refused[name], REFUSED[name][1]
    assert ended.code == 2, ended
    assert expected in ended.one_line()


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune", "typo.yaml"],
        ["train", "--set=stop.stepz=3"],
        ["logs", "3"],
    ],
)
def test_a_mistake_is_answered_before_anything_heavy_is_imported(golfray, refused, arguments):
    ended = subprocess.run(
        [GOLFRAY, *arguments],
        cwd=golfray.folder,
        env={**os.environ, "HOME": str(golfray.home), "PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert (ended.returncode, "golfray.cli.main" in imported) == (2, True)
    assert imported & {"torch", "ray", "mlflow", "optuna"} == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["tune"],
            "Error: Invalid value: name a search space, such as search_spaces/muon.yaml, or",
        ),
        (["tune", "a.yaml", "--address=auto", "--dry-run"], "Error: Invalid value: --dry-run plans for this machine"),
        (["tune", "a.yaml", "--address=auto", "--executor=sim"], "Error: Invalid value: --executor sim runs on no"),
        *(
            ([*verb, "--address=local"], "Error: Invalid value for '--address': must be HOST:PORT")
            for verb in (["doctor"], ["tune", "a.yaml"], ["confirm", "0"])
        ),
        (["tuna"], "Error: No such command 'tuna'. Did you mean 'tune'?"),
        (["show", "schema", "spce"], "Error: Invalid value: no schema of spce; did you mean space?"),
        (["train", "--steps=3"], "Error: No such option: --steps"),
    ],
)
def test_wrong_use_is_answered_with_the_usage(golfray, arguments, message):
    ended = golfray.run(*arguments)
    assert ended.code == 2
    assert ended.err.startswith("Usage: golfray ")
    assert " --help' for help." in ended.err
    assert message in ended.err


@pytest.mark.parametrize(
    "text", ["", "local", "ray://h:1", "h", "h:", "a b:1", "h:0", "h:65536", "h:x", "h:-1", "u@h:1"]
)
def test_an_address_of_no_cluster_is_refused_before_ray_hears_of_it(text):
    with pytest.raises(typer.BadParameter, match=f"must be HOST:PORT, .* got {text!r}"):
        cluster_address(text)


@pytest.mark.parametrize("text", [None, "auto", "127.0.0.1:1", "head-1.example:6379", "[::1]:65535"])
def test_an_address_of_a_cluster(text):
    assert cluster_address(text) == text


def test_without_arguments_it_shows_what_there_is(golfray):
    ended = golfray.run()
    assert ended.code == 2
    assert "│ tune " in ended.out
    assert "Error" not in ended.err


def test_full_scale_without_fineweb_says_how_to_get_it(golfray, write_space):
    write_space(golfray.folder / "full.yaml", scale="full", fixed={"data.folder": ""})
    ends = golfray.run_all({"tune": ["tune", "full.yaml"], "train": ["train", "--scale=full"]})
    for ended in ends.values():
        assert ended.code == 2
        assert ended.err.startswith("golfray: the full scale trains on FineWeb, which golfray does not have")
        assert "golfray data fetch --to DIR" in ended.err
        assert "--set data.folder=" in ended.err
        assert "Traceback" not in ended.err
    assert not (golfray.folder / "studies").exists()


def test_a_file_that_cannot_be_written_is_no_bug(golfray):
    ended = golfray.run("pack", "absent/train_gpt.py")
    assert ended.code == 4
    assert ended.one_line().startswith("golfray: absent/train_gpt.py")
    assert ended.one_line().endswith(": No such file or directory")
