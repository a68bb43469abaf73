"""What a reader sees of an error, and how a typo finds the name that was meant."""

import pickle

import pytest

from golfray.config.errors import ConfigError, did_you_mean, nearest, shown

KNOWN = ["optimizer.matrix_lr", "optimizer.scalar_lr", "muon.momentum_end", "export.codec_level", "workers"]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            {"path": "space.optimizer.matrix_lr.high", "file": "file.yaml", "line": 14, "column": 7},
            "file.yaml:14:7 space.optimizer.matrix_lr.high: must be > low (0.02), got 0.002",
        ),
        ({"file": "file.yaml", "line": 14, "column": 7}, "file.yaml:14:7: must be > low (0.02), got 0.002"),
        ({"file": "file.yaml"}, "file.yaml: must be > low (0.02), got 0.002"),
        ({"path": "a.b", "file": "--set"}, "--set a.b: must be > low (0.02), got 0.002"),
        ({"path": "a.b"}, "a.b: must be > low (0.02), got 0.002"),
        ({}, "must be > low (0.02), got 0.002"),
    ],
)
def test_text_leaves_out_what_is_unknown(parts: dict, text: str) -> None:
    assert str(ConfigError("must be > low (0.02), got 0.002", **parts)) == text


def test_exit_code_and_pickling() -> None:
    error = ConfigError("is wrong", path="a.b", file="f.yaml", line=3, column=1)
    assert error.exit_code == 2
    assert str(pickle.loads(pickle.dumps(error))) == "f.yaml:3:1 a.b: is wrong"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("optimzer.matrix_lr", "optimizer.matrix_lr"),
        ("muon.matrix_lr", "optimizer.matrix_lr"),
        ("matrix_lr", "optimizer.matrix_lr"),
        ("momentum_ends", "muon.momentum_end"),
        ("export.codec_levle", "export.codec_level"),
        ("worker", "workers"),
        ("temperature", None),
    ],
)
def test_nearest(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant


def test_all_names_where_none_is_near() -> None:
    assert did_you_mean("temperature", ["b", "a"]) == "known: a, b"


def test_shown_is_yaml_and_short() -> None:
    assert [shown(value) for value in (None, True, "a", 0.5, [1, "b"])] == ["null", "true", '"a"', "0.5", '[1, "b"]']
    assert len(shown("x" * 1000)) == 80
    assert shown({1, 2} - {2}) == "{1}"
    assert shown(1 << 20_000) == "an integer too long to show"
