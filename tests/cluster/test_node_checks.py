"""What a node must have before the first trial, and the one message where it has not."""

import pathlib

import pytest

from golfray.cluster.node_checks import check_nodes, inspect_node
from golfray.cluster.node_data import needed_files
from golfray.cluster.preflight import EnvironmentProblem, plan_lanes
from golfray.core.settings import DataSettings

PLAN = plan_lanes({"CPU": 2.0}, 2, "cpu")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for name, size in {"fineweb_train_000000.bin": 300, "fineweb_val_000000.bin": 200}.items():
        (folder / name).write_bytes(b"x" * size)
    (tmp_path / "tokenizer.model").write_bytes(b"pieces")
    return DataSettings(str(folder), str(tmp_path / "tokenizer.model"))


def test_a_node_that_has_everything(data, tmp_path):
    study = tmp_path / "studies" / "new"
    files = needed_files(data, summed=False)
    assert [file.size for file in files] == [300, 200, 6]
    assert [file.sha256 is None for file in files] == [True, True, False]
    assert inspect_node(files, str(study)) == []
    assert list(study.iterdir()) == [], "the probe is gone"
    check_nodes(PLAN, files, study, local=True)
    check_nodes(PLAN, None, study, local=True)


def test_each_thing_that_a_node_may_lack(data, tmp_path):
    files = needed_files(data, summed=False)
    folder = pathlib.Path(data.folder)
    (folder / "fineweb_train_000000.bin").unlink()
    (folder / "fineweb_val_000000.bin").write_bytes(b"x" * 199)
    pathlib.Path(data.tokenizer).write_bytes(b"others")
    remedy = "put the driver's data at the same path on every node"
    assert inspect_node(files, str(tmp_path)) == [
        f"{folder}/fineweb_train_000000.bin: No such file or directory; {remedy}",
        f"{folder}/fineweb_val_000000.bin has 199 bytes, the driver's has 200; {remedy}",
        f"{data.tokenizer} is not the driver's file of that name (sha256); {remedy}",
    ]


def test_the_driver_itself_lacks_the_data(data, tmp_path):
    pathlib.Path(data.tokenizer).unlink()
    with pytest.raises(EnvironmentProblem, match=r"the data cannot be read here: .*tokenizer\.model") as caught:
        needed_files(data, summed=False)
    assert caught.value.exit_code == 4
    with pytest.raises(EnvironmentProblem, match=r"no fineweb_train_\*\.bin here"):
        needed_files(DataSettings(str(tmp_path / "nowhere"), data.tokenizer), summed=True)


def test_a_folder_that_cannot_be_written_to(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem) as caught:
        check_nodes(PLAN, needed_files(data, summed=False), tmp_path / "file" / "study", local=True)
    assert str(caught.value).splitlines() == [
        "not every node is ready:",
        f"  this machine: {tmp_path}/file/study cannot be written to: Not a directory; free it, or choose another "
        "with --study-dir",
    ]


def test_a_disk_that_is_mounted_read_only(data, tmp_path, mount):
    study = mount("-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "study")
    assert inspect_node(needed_files(data, summed=False), str(study)) == [
        f"{study} cannot be written to: Read-only file system; free it, or choose another with --study-dir"
    ]
