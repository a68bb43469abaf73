"""What the doctor finds about disks."""

from golfray.sweep.disk_room import DiskNeed, free_bytes
from golfray.sweep.health import check


def test_room_for_a_study_and_none(tmp_path):
    folder = tmp_path / "studies" / "muon"
    (found,) = check(folder, DiskNeed({"artifacts": 1000}, 0), tmp_path, None)
    assert (found.severity, found.code, found.where) == ("ok", "disk", str(folder))
    assert found.what.endswith(" free, 1.0 kB needed for the study")
    (found,) = check(folder, DiskNeed({"artifacts": 2 * free_bytes(folder)}, 0), tmp_path, None)
    assert found.severity == "error"
    assert found.what.startswith(f"{folder}: the study needs ")
    assert not folder.parent.exists(), "nothing is written"


def test_without_a_space_file_a_small_study_must_fit(tmp_path, mount):
    (found,) = check(tmp_path / "studies", None, tmp_path, None)
    assert found.severity == "ok"
    small = mount("-t", "tmpfs", "-o", "size=50m", "tmpfs", tmp_path / "small")
    (found,) = check(small / "studies", None, tmp_path, None)
    assert (found.severity, "50" in found.what) == ("error", False)


def test_a_folder_that_cannot_be_made_is_found_before_the_study_is(tmp_path, mount):
    (tmp_path / "file").write_text("")
    only_read = mount("-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "archive")
    for folder, what in (
        (tmp_path / "file", "is no folder"),
        (tmp_path / "file" / "studies" / "muon", "is no folder"),
        (only_read, "may only be read"),
        (only_read / "studies" / "muon", "may only be read"),
    ):
        (found,) = check(folder, None, tmp_path, None)
        assert (found.severity, found.where, found.remedy) == ("error", str(folder), "choose another with --study-dir")
        assert found.what.endswith(what)
