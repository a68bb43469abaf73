"""Copies of a corpus on a node: whole, verified, once, within their budget."""

import concurrent.futures
import hashlib
import threading

import pytest

from golfray.data.errors import DataError
from golfray.data.mirror import Original, foresee_mirror, make_mirror, mirror_folder

CONTENTS = [b"train" * 1000, b"validation" * 10, b"tokenizer"]
NAMES = ["fineweb_train_000000.bin", "fineweb_val_000000.bin", "own.model"]
ORIGINALS = [
    Original(name, len(content), hashlib.sha256(content).hexdigest())
    for name, content in zip(NAMES, CONTENTS, strict=True)
]
SIZE = sum(map(len, CONTENTS))


class Source:
    """Hands out pieces of ``CONTENTS``, at most ``most`` bytes each, and counts how often it was asked."""

    def __init__(self, most=1000):
        self.most, self.asked, self._lock = most, 0, threading.Lock()

    def __call__(self, number, offset, size):
        with self._lock:
            self.asked += 1
        return CONTENTS[number][offset : offset + min(size, self.most)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GOLFRAY_HOME", str(tmp_path / "home"))


def test_every_file_whole_and_only_once(tmp_path):
    parent, source = tmp_path / "nvme" / "golfray", Source()
    folder = make_mirror(parent, ORIGINALS, SIZE, source)
    assert folder == mirror_folder(parent, ORIGINALS)
    assert [(folder / name).read_bytes() for name in NAMES] == CONTENTS
    asked = source.asked
    assert make_mirror(parent, ORIGINALS, SIZE, source) == folder
    assert source.asked == asked
    assert sorted(path.name for path in parent.iterdir()) == [folder.name]


def test_many_at_once_copy_it_once(tmp_path):
    source = Source()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        folders = {pool.submit(make_mirror, tmp_path / "m", ORIGINALS, SIZE, source) for _ in range(8)}
    assert {folder.result() for folder in folders} == {mirror_folder(tmp_path / "m", ORIGINALS)}
    assert source.asked == 7, "five pieces of the first file, one of each other"


def test_another_corpus_is_another_mirror_and_the_budget_is_for_all(tmp_path):
    make_mirror(tmp_path / "m", ORIGINALS, SIZE, Source())
    others = [*ORIGINALS[1:]]

    def read(number, offset, size):
        return CONTENTS[number + 1][offset : offset + size]

    need = sum(original.size for original in others)
    with pytest.raises(DataError) as refused:
        make_mirror(tmp_path / "m", others, SIZE + need - 1, read)
    name = mirror_folder(tmp_path / "m", ORIGINALS).name
    assert str(refused.value) == (
        f"{tmp_path}/m: a mirror of {need} bytes does not fit: nodes.mirror_gb allows 5.2 kB, and {name} take 5.1 kB "
        "of that; allow more, or delete mirrors that no study reads"
    )
    assert make_mirror(tmp_path / "m", others, SIZE + need, read).name != name


def test_a_budget_that_holds_not_even_this(tmp_path):
    with pytest.raises(DataError, match=r"a mirror of 5\.1 kB does not fit: nodes\.mirror_gb allows 100 bytes; allow"):
        make_mirror(tmp_path / "m", ORIGINALS, 100, Source())
    assert not mirror_folder(tmp_path / "m", ORIGINALS).exists()


@pytest.mark.parametrize("spoiled", [b"x" * 5000, b"train" * 999])
def test_what_is_not_the_drivers_file_leaves_nothing_behind(tmp_path, spoiled):
    def read(number, offset, size):
        return (spoiled if number == 0 else CONTENTS[number])[offset : offset + size]

    with pytest.raises(DataError, match=r"fineweb_train_000000\.bin: what was read of it is not the driver's file"):
        make_mirror(tmp_path / "m", ORIGINALS, SIZE, read)
    assert list((tmp_path / "m").glob("corpus-*")) == []
    assert make_mirror(tmp_path / "m", ORIGINALS, SIZE, Source()).is_dir()


def test_a_mirror_that_was_damaged_since(tmp_path):
    folder = make_mirror(tmp_path / "m", ORIGINALS, SIZE, Source())
    (folder / NAMES[1]).write_bytes(b"noitadilav" * 10)
    with pytest.raises(DataError, match=rf"{NAMES[1]}: is not what was copied here; delete the folder {folder}"):
        make_mirror(tmp_path / "m", ORIGINALS, SIZE, Source())
    (folder / NAMES[1]).unlink()
    with pytest.raises(DataError, match=rf"{NAMES[1]}: cannot be read: No such file"):
        make_mirror(tmp_path / "m", ORIGINALS, SIZE, Source())


def test_a_place_that_cannot_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/m: cannot be a mirror: Not a directory"):
        make_mirror(tmp_path / "file" / "m", ORIGINALS, SIZE, Source())


@pytest.mark.parametrize(
    "look", [lambda m: make_mirror(m, ORIGINALS, SIZE, Source()), lambda m: foresee_mirror(m, ORIGINALS, SIZE)]
)
def test_a_name_that_no_folder_can_have(tmp_path, look):
    with pytest.raises(DataError, match="cannot be a mirror: File name too long"):
        look(tmp_path / ("n" * 300))


def test_a_disk_without_room(tmp_path, mount):
    small = mount("-t", "tmpfs", "-o", "size=4k", "tmpfs", tmp_path / "small")
    with pytest.raises(DataError, match=r"a mirror of 5\.1 kB does not fit: this disk has .* free; make room there"):
        make_mirror(small, ORIGINALS, SIZE, Source())
