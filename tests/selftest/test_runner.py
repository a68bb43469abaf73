"""The selftest on the shipped vectors, on spoilt ones, and on files that cannot be used."""

import copy
import json
import pathlib

import pytest

from golfray.selftest.errors import SelftestError
from golfray.selftest.runner import SECTIONS, format_result, run_vectors

SMALL_SECTIONS = sorted(set(SECTIONS) - {"real_text"})

# Per section: where in its first case one value is spoilt.
SPOILT = {
    "forward": ("grad_norms_fp32", "blocks.1.mlp.fc.weight"),
    "train": ("losses", 7),
    "muon": ("steps", 1, "norm"),
    "bf16": ("loss_bf16_autocast",),
    "initial_values": ("tensors", "tok_emb.weight", "std"),
    "int8_zlib": ("stats", "baseline_tensor_bytes"),
    "quantizer": ("dequantized", "cube.weight", "max_abs_error"),
    "loader": ("batches", 2, "y_last4", 3),
    "validation_split": ("ranges", 0, 1),
    "lr_schedule": ("lr_multiplier",),
    "momentum_schedule": ("momentum",),
}


def spoil(case: dict, place: tuple) -> None:
    """Move one value of a case by 10 %, or by 1 where it is a whole number."""
    for key in place[:-1]:
        case = case[key]
    case[place[-1]] = case[place[-1]] + 1 if isinstance(case[place[-1]], int) else case[place[-1]] * 1.1


def test_small_cases_of_every_section_pass(small, write) -> None:
    results = list(run_vectors(write(small)))
    assert [result.section for result in results] == [name for name in small if name in SECTIONS for _ in small[name]]
    assert {result.section for result in results} == set(SMALL_SECTIONS)
    assert [format_result(result) for result in results if not result.ok] == []
    assert all(result.error <= result.tolerance for result in results)
    assert all("\n" not in format_result(result) for result in results)


def test_every_section_can_fail_and_only_the_spoilt_case_does(small, write) -> None:
    for name, place in SPOILT.items():
        spoil(small[name][0], place)
    results = list(run_vectors(write(small)))
    missed = {(result.section, result.label[:3]) for result in results if not result.ok}
    # Weights from a train case are trained here, not read from the file: spoiling the file's losses leaves them alone.
    assert missed == {(name, "[0]") for name in SPOILT}
    assert set(SPOILT) == set(SMALL_SECTIONS)
    for result in results:
        if not result.ok:
            assert result.worst_field.split(".")[0].split("[")[0] == SPOILT[result.section][0]
            assert result.message.startswith("1 of ")
            assert format_result(result).startswith("MISS")


@pytest.mark.parametrize("name", sorted(set(SMALL_SECTIONS) - {"train", "int8_zlib"}))
def test_a_missing_value_or_an_unknown_field_is_a_miss(name: str, small, write) -> None:
    case = copy.deepcopy(small[name][0])
    case["no_such_result"] = {"x": 1}
    content = {"format": small["format"], "tol": {name: {**small["tol"][name], "*": "exact"}}, name: [case]}
    (result,) = run_vectors(write(content))
    assert not result.ok
    assert "no_such_result" in result.worst_field


@pytest.mark.parametrize(("name", "value"), [("tok_emb.weight", 1e-3), ("blocks.1.attn_scale", 1e-5)])
def test_rounding_of_trained_weights_stays_bounded(name: str, value: float, small, write) -> None:
    # On another CPU the trained weights differ in their last bits, and so do rounding errors, but not by this.
    content = {key: small[key] for key in ("format", "tol", "int8_zlib", "train")}
    content["int8_zlib"][0]["dequantized_max_abs_error"][name] = value
    result = next(result for result in run_vectors(write(content)) if result.section == "int8_zlib")
    assert (result.ok, result.worst_field) == (False, f"dequantized_max_abs_error.{name}")


@pytest.mark.slow
def test_shipped_vectors_pass_whole() -> None:
    assert [format_result(result) for result in run_vectors() if not result.ok] == []


def test_control_names_are_not_asked_of_core(small, write, monkeypatch: pytest.MonkeyPatch) -> None:
    # A core that took q_gain for an ordinary parameter would agree with itself; the vectors must notice.
    monkeypatch.setattr("golfray.core.model.CONTROL_NAMES", ("attn_scale", "mlp_scale", "resid_mix", "skip_weight"))
    content = {**{key: small[key] for key in ("format", "tol", "quantizer")}}
    (result,) = run_vectors(write(content))
    assert not result.ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "golfray-vectors/2"}, "format is 'golfray-vectors/2'"),
        ({"format": None}, "format is None"),
        ({"attention_sinks": []}, "unknown section 'attention_sinks'"),
        ({"tol": {}}, "tol says nothing about"),
        ({"tol": 5}, "tol must map sections to tolerances, got int"),
        ({"lr_schedule": [3]}, r"lr_schedule\[0\] must be an object"),
        ({"tol": {"lr_schedule": {"*": "near"}}}, "unknown tolerance 'near'"),
    ],
)
def test_files_that_cannot_be_used(change: dict, message: str, shipped, write) -> None:
    content = {key: shipped[key] for key in ("format", "rule", "formulas", "tol", "lr_schedule")}
    with pytest.raises(SelftestError, match=message):
        run_vectors(write({**content, **change}))


def test_files_that_are_none(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SelftestError, match="cannot be read"):
        run_vectors(tmp_path / "absent.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(SelftestError, match="is not JSON"):
        run_vectors(tmp_path / "broken.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(SelftestError, match="is not JSON"):
        run_vectors(tmp_path / "deep.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(SelftestError, match="format is None"):
        run_vectors(tmp_path / "list.json")
    assert SelftestError.exit_code == 2


@pytest.mark.parametrize(
    ("name", "spoiler", "message"),
    [
        ("momentum_schedule", lambda case: case.pop("start"), r"momentum_schedule\[0\]: malformed case .*start"),
        ("bf16", lambda case: case.update(config="x"), r"bf16\[0\]: malformed case"),
        ("initial_values", lambda case: case.update(tensors={"a": -1}), r"initial_values\[0\]: malformed case"),
        ("bf16", lambda case: case["config"].update(layers=3), r"bf16\[0\]: config has unknown names \['layers'\]"),
        ("quantizer", lambda case: case["state_dict"][0].update(kind="spiral"), "unknown kind 'spiral'"),
        ("quantizer", lambda case: case["state_dict"][0].update(dtype="int4"), "unknown dtype 'int4'"),
        ("int8_zlib", lambda case: case.update(state={"from": "train", "index": 9}), "train case 9"),
        ("int8_zlib", lambda case: case.update(state={"from": "thin air"}), "from 'thin air'"),
        ("lr_schedule", lambda case: case.pop("lr_multiplier"), "expects nothing"),
    ],
)
def test_malformed_cases_name_their_place(name: str, spoiler, message: str, small, write) -> None:
    content = {key: small[key] for key in ("format", "tol", name)}
    spoiler(content[name][0])
    with pytest.raises(SelftestError, match=message):
        list(run_vectors(write(content)))


def test_what_core_refuses_is_a_miss(small, write) -> None:
    content = {key: small[key] for key in ("format", "tol", "forward")}
    content["forward"] = [content["forward"][0]]
    content["forward"][0]["config"]["num_heads"] = 3
    (result,) = run_vectors(write(content))
    assert not result.ok
    assert "Error" in result.message


def test_shipped_file_is_json_with_every_tolerance(shipped) -> None:
    assert set(json.loads(json.dumps(shipped))["tol"]) == {name for name in shipped if isinstance(shipped[name], list)}
