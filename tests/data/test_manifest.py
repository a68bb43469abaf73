"""A manifest is read back as it was written, and one of other types is refused by the name of what is wrong."""

import json
import pathlib
from typing import Any

import pytest

from golfray.data.errors import DataError
from golfray.data.manifest import FORMAT, FileEntry, Manifest, Split, read_manifest, write_manifest

SHARD = FileEntry("fineweb_val_000000.bin", 1044, "ab")
MANIFEST = Manifest(
    name="x",
    demo=False,
    contaminated=True,
    warning="A test.",
    recipe={"files": [], "separator": None},
    documents_sha256="cd",
    tokenizer=FileEntry("x.model", 5, "ef"),
    vocab_size=300,
    train=Split(2, 20, 50, 49, [], 50),
    val=Split(1, 10, 25, 24, [SHARD]),
    reference_points={"uniform": 4.0, "zlib -9": 3},
)


def test_written_and_read(tmp_path: pathlib.Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == FORMAT == "golfray-corpus/1"


def test_one_from_before_normalised_bytes_were_counted(tmp_path: pathlib.Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    values = json.loads((tmp_path / "manifest.json").read_text())
    del values["train"]["normalised_bytes"], values["val"]["normalised_bytes"]
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    found = read_manifest(tmp_path)
    assert found is not None
    assert found.train.normalised_bytes is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("vocab_size", "300", "vocab_size must be int, got '300'"),
        ("vocab_size", True, "vocab_size must be int, got True"),
        ("contaminated", 0, "contaminated must be bool | None, got 0"),
        ("name", None, "name must be str, got None"),
        ("recipe", [], "recipe must be dict"),
        ("train.tokens", 1.5, "tokens must be int, got 1.5"),
        ("train.normalised_bytes", "5", "normalised_bytes must be int | None, got '5'"),
        ("tokenizer.file", "../x.model", "file must be a name without folders, got '../x.model'"),
        ("reference_points.uniform", "4", "reference_points.uniform must be a number, got '4'"),
        ("val.shards", 3, "'int' object is not iterable"),
        ("surprise", 1, "unexpected keyword argument 'surprise'"),
    ],
)
def test_a_value_of_another_type(tmp_path: pathlib.Path, path: str, value: Any, message: str) -> None:
    write_manifest(tmp_path, MANIFEST)
    values = json.loads((tmp_path / "manifest.json").read_text())
    *parents, name = path.split(".")
    part = values
    for parent in parents:
        part = part[parent]
    part[name] = value
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(DataError) as caught:
        read_manifest(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/manifest.json: not a manifest of the format golfray-corpus/1: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith(f"; delete the folder {tmp_path} and have it built anew")
