"""YAML 1.2 as plain data with positions, and everything that is refused."""

import json
import math
import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.config.errors import ConfigError
from golfray.config.positions import Position, load_yaml, parse_value, parse_yaml

SPACE = """\
name: demo   # a comment
knobs:
  optimizer.matrix_lr:
    low: 0.02
    high: 0.002
  model:
    num_layers: {choices: [2, 3]}
"""


def test_every_dotted_path_has_its_line_and_column() -> None:
    document = parse_yaml(SPACE, "demo.yaml")
    assert document.values == {
        "name": "demo",
        "knobs": {
            "optimizer.matrix_lr": {"low": 0.02, "high": 0.002},
            "model": {"num_layers": {"choices": [2, 3]}},
        },
    }
    assert {path: (place.line, place.column) for path, place in document.positions.items()} == {
        "name": (1, 1),
        "knobs": (2, 1),
        "knobs.optimizer.matrix_lr": (3, 3),
        "knobs.optimizer.matrix_lr.low": (4, 5),
        "knobs.optimizer.matrix_lr.high": (5, 5),
        "knobs.model": (6, 3),
        "knobs.model.num_layers": (7, 5),
        "knobs.model.num_layers.choices": (7, 18),
        "knobs.model.num_layers.choices.0": (7, 28),
        "knobs.model.num_layers.choices.1": (7, 31),
    }
    assert {place.source for place in document.positions.values()} == {"demo.yaml"}


def test_errors_about_a_document_are_placed_at_the_nearest_known_path() -> None:
    document = parse_yaml(SPACE, "demo.yaml")
    assert str(document.error("knobs.optimizer.matrix_lr.high", "must be > low (0.02), got 0.002")) == (
        "demo.yaml:5:5 knobs.optimizer.matrix_lr.high: must be > low (0.02), got 0.002"
    )
    assert str(document.error("knobs.model.num_layers.low", "is missing")) == (
        "demo.yaml:7:5 knobs.model.num_layers.low: is missing"
    )
    assert str(document.error("preset", "is missing")) == "demo.yaml preset: is missing"


def test_locate_places_an_error_only_where_the_path_stands() -> None:
    document = parse_yaml("preset: golf\n", "demo.yaml")
    assert str(document.locate(ConfigError("unknown", path="preset"))) == "demo.yaml:1:1 preset: unknown"
    assert str(document.locate(ConfigError("unknown", path="scale"))) == "scale: unknown"
    assert str(document.locate(ConfigError("unknown", path="preset", file="--set"))) == "--set preset: unknown"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("012", 12),
        ("+3", 3),
        ("0x10", 16),
        ("0o17", 15),
        ("16_000_000", 16_000_000),
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("'3'", "3"),
        ("!!str 3", "3"),
        ("[1, [a, {b: null}]]", [1, ["a", {"b": None}]]),
    ],
)
def test_values_mean_what_yaml_1_2_says(written: str, value: object) -> None:
    read = parse_yaml(f"a: {written}\n", "f.yaml").values["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1 a: is given twice; first on line 1"),
        ("x:\n  a: 1\n  a: 1\n", "f.yaml:3:3 x.a: is given twice; first on line 2"),
        ("x: [{a: 1, a: 2}]\n", "f.yaml:1:12 x.0.a: is given twice; first on line 1"),
        ("a:\n  b: 1\na.b: 2\n", "f.yaml:3:1 a.b: is given twice; first on line 2"),
        ("a.b: 2\na:\n  b: {c: 1}\n", "f.yaml:3:3 a.b: is given twice; first on line 1"),
        ("", "f.yaml: is empty; expected a mapping of names to values"),
        ("# nothing\n", "f.yaml: is empty; expected a mapping of names to values"),
        ("- a\n", "f.yaml:1:1: expected a mapping of names to values, got a sequence"),
        ("\n3\n", 'f.yaml:2:1: expected a mapping of names to values, got the single value "3"'),
        ("a: b: c\n", "f.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        (
            "a: [1,\n",
            "f.yaml:2:1: not valid YAML: while parsing a flow node, expected the node content, "
            "but found '<stream end>'",
        ),
        (
            "a: 1\n---\nb: 2\n",
            "f.yaml:2:1: not valid YAML: expected a single document in the stream, but found another document",
        ),
        (
            "a: \x01\n",
            "f.yaml: not valid YAML: unacceptable character #x0001: special characters are not allowed in "
            '"<unicode string>", position 3',
        ),
        ("a: &x 1\nb: *x\n", "f.yaml:2:4: an alias (*name) is not read; write the value out where it is needed"),
        ("a: &x [*x]\n", "f.yaml:1:8: an alias (*name) is not read; write the value out where it is needed"),
        ("x:\n  <<: {a: 1}\n", "f.yaml:2:3 x: merge keys (<<) are not YAML 1.2; write the values out"),
        (
            "%YAML 1.1\n---\na: no\n",
            "f.yaml:2:1: the header asks for YAML 1.1; this is read as YAML 1.2: remove it",
        ),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            "f.yaml:1:4 a: has the type tag:yaml.org,2002:python/object/apply:os.system, which is not read; "
            "write plain YAML 1.2",
        ),
        (
            "a: !!binary aGk=\n",
            'f.yaml:1:4 a: is "aGk=" of type tag:yaml.org,2002:binary, which is not read; write plain YAML 1.2',
        ),
        ("a: !b {c: 1}\n", "f.yaml:1:4 a: has the type !b, which is not read; write plain YAML 1.2"),
        ("a: 0b11\n", 'f.yaml:1:4 a: is not a number that YAML 1.2 knows: "0b11"'),
        ("a: 9223372036854775808\n", 'f.yaml:1:4 a: is beyond 64-bit integers: "9223372036854775808"'),
        ("a: -0x8000000000000001\n", 'f.yaml:1:4 a: is beyond 64-bit integers: "-0x8000000000000001"'),
        ("a: 1" + 6000 * "0" + "\n", f'f.yaml:1:4 a: is beyond 64-bit integers: "1{75 * "0"}...'),
        (
            "x:\n  1: a\n",
            'f.yaml:2:3 x: a key must be text, got the single value "1"; put it in quotes if it is a name',
        ),
        ("? [a]\n: b\n", "f.yaml:1:3: a key must be text, got a sequence; put it in quotes if it is a name"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    assert str(caught.value) == message


def test_bottomless_nesting_is_refused() -> None:
    deepest = "[" * 49 + "]" * 49
    assert parse_yaml(f"a: {deepest}", "f.yaml").positions["a"] == (1, 1, "f.yaml")
    with pytest.raises(ConfigError) as caught:
        parse_yaml("a: " + "[" * 5000 + "]" * 5000, "f.yaml")
    assert str(caught.value) == "f.yaml:1:53: is nested more than 50 levels deep"


def test_files_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: \xe9\n")
    for path, message in (
        (pathlib.Path("/dev/zero"), "is larger than 1,048,576 bytes, as no such file is"),
        (tmp_path / "absent.yaml", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (latin, "is not UTF-8 text (byte 3)"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_yaml(path)
        assert str(caught.value) == f"{path}: {message}"


def test_a_file_is_named_as_it_was_given(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("name: é\n", encoding="utf-8")
    document = load_yaml(path)
    assert (document.source, document.values) == (str(path), {"name": "é"})


def test_values_of_a_command_line_have_no_line() -> None:
    assert parse_value("{a: [1, no]}", "--set", "x") == {"a": [1, "no"]}
    with pytest.raises(ConfigError) as caught:
        parse_value("[1", "--set", "a.b")
    assert (caught.value.line, caught.value.column) == (None, None)
    assert str(caught.value).startswith("--set a.b: not valid YAML: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"": 1\n', r"^f:1:1: a key must not be empty"),
        ('a:\n  "": 1\n', r"^f:2:3 a: a key must not be empty"),
        ('"\\uD800": 1\n', r"^f:1:1: has an escape from"),
        ('a: "\\uD800"\n', r"^f:1:4 a: has an escape from"),
        ('a: [1, "\\uDC00x"]\n', r"^f:1:8 a.1: has an escape from"),
    ],
)
def test_a_name_without_a_character_and_a_character_that_is_none(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, "f")


def test_a_pipe_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match=r"pipe\.yaml: is no regular file"):
        load_yaml(tmp_path / "pipe.yaml")


NAMES = st.text("abcdefgh_", min_size=1, max_size=6)
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(-1e6, 1e6)
    | st.text("ab c:#-'no1.", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, TREES, min_size=1, max_size=4), st.sampled_from([None, 2]))
def test_json_reads_as_itself_and_every_name_has_a_position(values: dict, indent: int | None) -> None:
    document = parse_yaml(json.dumps(values, indent=indent), "f.json")
    assert document.values == values
    assert all(isinstance(position, Position) and position >= (1, 1, "") for position in document.positions.values())
    assert set(values) <= set(document.positions)
