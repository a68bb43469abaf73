"""``golfray show config`` and ``golfray show schema``: what is printed, as a listing and as documents."""

import json
import pathlib
import signal
from collections.abc import Callable, Iterator

import pytest
from jsonschema import Draft202012Validator

from golfray.cli.main import main
from golfray.config.positions import load_yaml
from golfray.config.resolve import resolve
from golfray.config.schema import field_info, field_paths

PARENT = """\
name: parent
preset: parameter-golf
budget: {trials: 4}
knobs:
  muon.ns_steps: {low: 3, high: 6}
  muon.weight_decay: {low: 0.01, high: 0.1, log: true, when: {muon.ns_steps: [4, 5]}}
  export.bits_mlp: {low: 5, high: 8}
scales:
  laptop:
    muon.ns_steps: {high: 7}
"""
CHILD = """\
extends: parent.yaml
name: child
fixed:
  stop:
    seconds: 9
knobs:
  muon.ns_steps: {high: 5}
first_points:
- {muon.ns_steps: 4}
limits: {train: 50}
"""


@pytest.fixture
def golfray_here(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs the command in this process, in a folder with two space files; returns code, standard output and error."""
    (tmp_path / "parent.yaml").write_text(PARENT)
    (tmp_path / "child.yaml").write_text(CHILD)
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        return (left.value.code, *capfd.readouterr())

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def rows(lines: list[str]) -> dict[str, list[str]]:
    """{first cell: the other cells} of lines whose columns are at least two spaces apart."""
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    return {first: others for first, *others in filter(None, cells)}


def test_every_setting_has_its_value_and_where_it_came_from(golfray_here) -> None:
    sets = ("--set", "optimizer.matrix_lr=0.02", "--set=data={folder: /x y}")
    code, out, err = golfray_here("show", "config", "--scale", "laptop", *sets)
    assert (code, err) == (0, "")
    first, empty, *lines = out.splitlines()
    assert (first, empty) == ("parameter-golf at scale laptop (chosen at the start)", "")
    table = rows(lines)
    assert list(table) == ["setting", *field_paths()]
    assert table["optimizer.matrix_lr"] == ["0.02", "--set"]
    assert table["data.folder"] == ['"/x y"', "--set"]
    origins = resolve("parameter-golf", "laptop", has_gpu=False).origins
    assert table["workers"] == ["2", f"{origins['workers']}, scale laptop"]
    assert table["muon.ns_steps"] == ["5", f"{origins['muon.ns_steps']}, scale full"]
    # The columns stand below each other.
    value, origin = lines[0].index("value"), lines[0].index("from")
    assert all(line[value - 1] == line[origin - 1] == " " and line[value] != " " != line[origin] for line in lines)


def test_verbose_says_what_each_setting_is(golfray_here) -> None:
    _, out, _ = golfray_here("show", "config", "--scale=full", "-v")
    lines = out.splitlines()[3:]
    assert len(lines) == 2 * len(field_paths())
    for path, row, about in zip(field_paths(), lines[::2], lines[1::2], strict=True):
        info = field_info(path)
        assert row.startswith(f"{path} ")
        assert about == f"    {info.description} Must be {info.expects}."


def test_a_space_shows_trial_0_and_its_knobs(golfray_here) -> None:
    code, out, err = golfray_here("show", "config", "child.yaml", "--scale=laptop", "--set=workers=1")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "parameter-golf at scale laptop (chosen at the start)"
    table = rows(out.splitlines())
    assert table["setting"] == ["trial 0", "from"]
    assert table["stop.seconds"] == ["9.0", "child.yaml:5"]
    assert table["workers"] == ["1", "--set"]
    assert table["knob"] == ["trial 0", "searched", "from"]
    assert table["muon.weight_decay"] == ["0.0", "0.01..0.1 (log) where muon.ns_steps is 4 or 5", "parent.yaml:6"]
    assert table["export.bits_mlp"] == ["6", "5..8", "parent.yaml:7"]
    # At the laptop scale the parent has the last word on this one, and the output says so.
    assert table["muon.ns_steps"] == ["5", "3..7", "child.yaml:7, parent.yaml:10"]
    knobs = out[out.index("knob ") :].split("\n\n")[1].splitlines()
    assert knobs == [
        "export.scale_floor is 0.0 wherever the sampler searches: bits vary",
        "budget: 4 trials; trial 0 runs on 3 seeds",
        "sampler: tpe, seed 0",
        "first point 0: muon.ns_steps 4",
        "limits in seconds: start 600, data 600, compile 1800, train 50, progress 180, validate 1800, calibrate 900, "
        "search 3600, export 900, score 1800, sliding by its length",
        "child.yaml:7: high of muon.ns_steps has no effect at scale laptop: parent.yaml:10 gives another one for it",
    ]


def test_auto_means_what_the_option_says(golfray_here) -> None:
    _, out, _ = golfray_here("show", "config", "child.yaml", "--scale=full")
    assert rows(out.splitlines())["muon.ns_steps"] == ["5", "3..5", "child.yaml:7"]


def test_the_document_says_the_same_for_programs(golfray_here) -> None:
    code, out, _ = golfray_here("show", "config", "child.yaml", "--scale=laptop", "--json", "-q")
    (line,) = out.splitlines()
    document = json.loads(line)
    assert (code, document["schema"], document["kind"]) == (0, "golfray/1", "config")
    assert document["settings"]["stop.seconds"] == {
        "value": 9.0,
        "from": "child.yaml:5",
        "description": field_info("stop.seconds").description,
    }
    space = document["space"]
    assert space["knobs"]["muon.ns_steps"]["from"] == ["child.yaml:7", "parent.yaml:10"]
    assert space["knobs"]["muon.weight_decay"]["when"] == {"muon.ns_steps": [4, 5]}
    assert (space["limits"]["train"], space["limits"]["start"]) == (50.0, 600.0)
    assert len(space["notes"]) == 1
    _, out, _ = golfray_here("show", "schema", "config")
    Draft202012Validator(json.loads(out)).validate(document["config"])
    _, out, _ = golfray_here("show", "config", "--json", "--scale=laptop")
    assert json.loads(out)["space"] is None


def test_a_schema_is_printed_or_written(golfray_here) -> None:
    code, printed, err = golfray_here("show", "schema")
    assert (code, err) == (0, "")
    code, out, err = golfray_here("show", "schema", "space", "-o", "space.schema.json")
    assert (code, err) == (0, "")
    assert "# yaml-language-server: $schema=space.schema.json" in out
    written = json.loads(pathlib.Path("space.schema.json").read_text())
    pathlib.Path("schemas").mkdir()
    _, out, _ = golfray_here("show", "schema", "-o", "schemas/space.schema.json")
    assert "a YAML file beside it begins with: # yaml-language-server: $schema=space.schema.json" in out
    assert written == json.loads(printed)
    for file in ("parent.yaml", "child.yaml"):
        Draft202012Validator(written).validate(load_yaml(pathlib.Path(file)).values)
    _, out, _ = golfray_here("show", "schema", "--json", "-q")
    document = json.loads(out)
    assert (document["kind"], document["of"], document["json_schema"]) == ("schema", "space", written)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["config", "child.yaml", "--preset", "parameter-golf"],
            2,
            "golfray: --preset: child.yaml names its preset itself; leave --preset out",
        ),
        (["config", "--scale", "tiny"], 2, 'golfray: scale: must be one of auto, full, laptop, got "tiny"'),
        (
            ["config", "child.yaml", "--scale", "tiny"],
            2,
            'golfray: scale: must be one of auto, full, laptop, got "tiny"',
        ),
        (["config", "absent.yaml"], 2, "golfray: absent.yaml: cannot be read: No such file or directory"),
        (["schema", "-o", "absent/a.json"], 4, "golfray: absent/a.json: No such file or directory"),
    ],
)
def test_refusals(golfray_here, arguments: list[str], code: int, message: str) -> None:
    assert golfray_here("show", *arguments) == (code, "", f"{message}\n")
