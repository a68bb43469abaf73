"""What a node must have: the driver's data at their place, or a mirror of them."""

import dataclasses
import pathlib

import pytest

from golfray.cluster.equipment import Equipment, leave_driver_paths, on_mirror, read_piece
from golfray.cluster.node_data import needed_files
from golfray.core.settings import DataSettings, RunSettings, settings_to_json
from golfray.sweep.node_rules import NodeRules


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GOLFRAY_HOME", str(tmp_path / "home"))


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for name, size in {"fineweb_train_000000.bin": 300, "fineweb_val_000000.bin": 200}.items():
        (folder / name).write_bytes(b"x" * size)
    (tmp_path / "tokenizer.model").write_bytes(b"pieces")
    return needed_files(DataSettings(str(folder), str(tmp_path / "tokenizer.model")), summed=True)


def test_every_file_has_its_sum(files, tiny_corpus):
    assert all(file.sha256 is not None for file in files)
    # Where there is a manifest, they are its own.
    sums = {file.sha256 for file in needed_files(tiny_corpus.settings(), summed=True)}
    from golfray.data.manifest import read_manifest

    assert sums == {entry.sha256 for entry in read_manifest(tiny_corpus.folder).entries()}


def test_without_a_mirror_the_drivers_paths_are_looked_at(files):
    equipment = Equipment(files, NodeRules(), "node")
    assert (equipment.faults(), equipment.data) == ([], None)
    assert equipment.first_shard == pathlib.Path(files[0].path)
    pathlib.Path(files[0].path).write_bytes(b"y" * 300)
    (fault,) = equipment.faults()
    assert fault.startswith(f"{files[0].path} is not the driver's file of that name (sha256)")


def test_where_no_data_is_known_nothing_is_asked():
    equipment = Equipment(None, NodeRules("/nowhere", 1.0), "node")
    assert (equipment.faults(), equipment.data, equipment.first_shard) == ([], None, None)


def test_a_mirror_of_what_this_node_sees_as_the_driver_does(files, tmp_path):
    equipment = Equipment(files, NodeRules(str(tmp_path / "mirror"), 1e-6), "node")
    assert equipment.faults() == []
    assert equipment.data is not None
    folder = pathlib.Path(equipment.data.folder)
    assert folder.parent == tmp_path / "mirror"
    assert {path.name for path in folder.iterdir()} == {pathlib.Path(file.path).name for file in files}
    assert pathlib.Path(equipment.data.tokenizer).read_bytes() == b"pieces"
    assert equipment.first_shard == folder / "fineweb_train_000000.bin"


def test_a_mirror_that_may_not_be_is_a_fault(files, tmp_path):
    equipment = Equipment(files, NodeRules(str(tmp_path / "mirror"), 1e-7), "node")
    (foreseen,) = equipment.foreseen_faults()
    assert not (tmp_path / "mirror").exists()
    assert equipment.faults() == [foreseen]
    assert "does not fit: nodes.mirror_gb allows 100 bytes" in foreseen


def test_what_is_foreseen_of_a_mirror_writes_nothing(files, tmp_path):
    assert Equipment(files, NodeRules(str(tmp_path / "some" / "mirror"), 1e-6), "node").foreseen_faults() == []
    assert not (tmp_path / "some").exists()
    pathlib.Path(files[0].path).unlink()
    (fault,) = Equipment(files, NodeRules(), "node").foreseen_faults()
    assert "No such file" in fault


def test_a_trial_on_a_mirror_leaves_the_drivers_paths(tmp_path):
    settings = dataclasses.replace(RunSettings(), data=DataSettings("/driver/shards", "/driver/own.model"))
    here = on_mirror(settings, DataSettings("/mirror", "/mirror/own.model"))
    assert (here.data.folder, dataclasses.replace(here, data=settings.data)) == ("/mirror", settings)
    assert on_mirror(settings, None) is settings
    leave_driver_paths(tmp_path, settings)
    assert list(tmp_path.iterdir()) == [], "a trial that wrote none gets none"
    (tmp_path / "settings.json").write_text(settings_to_json(here))
    leave_driver_paths(tmp_path, settings)
    assert (tmp_path / "settings.json").read_text() == settings_to_json(settings)


def test_pieces_of_a_file(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(10)))
    assert read_piece(str(tmp_path / "file"), 3, 4) == bytes([3, 4, 5, 6])
    assert read_piece(str(tmp_path / "file"), 8, 4) == bytes([8, 9])
