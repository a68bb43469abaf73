"""A folder as the source: links, the same folder twice, and disks that are full or may not be written."""

import dataclasses
import hashlib
import os
import pathlib
import shutil
from collections.abc import Callable

import pytest

from golfray.data.corpus import Corpus, open_corpus
from golfray.data.errors import DataError
from golfray.data.fetch import run_fetch
from golfray.data.fetch_errors import FetchError, MissingError
from golfray.data.fetch_plan import FetchPlan
from golfray.data.local_source import LocalSource
from golfray.data.sources import probe
from tests.data.published_layout import NAME, QUICK, Heard, fetch, hashes, plan, publish

FOLDER = f"datasets/{NAME}"
SHARD = f"{FOLDER}/fineweb_train_000001.bin"


@pytest.fixture
def own(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A small source of the test's own."""
    return publish(tmp_path / "own", tiny_corpus)


def as_download_cache(root: pathlib.Path) -> pathlib.Path:
    """The same tree with every file a symbolic link into a folder of blobs, as a download cache keeps it."""
    snapshot, blobs = root.with_name("snapshot"), root.with_name("blobs")
    blobs.mkdir()
    for path in [path for path in root.rglob("*") if path.is_file()]:
        blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copyfile(path, blob)
        link = snapshot / path.relative_to(root)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


def test_links_are_followed_and_files_come_of_them(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetched, _ = fetch(as_download_cache(own), tmp_path / "data")
    assert hashes(fetched.folder) == hashes(own / FOLDER)
    assert not any(path.is_symlink() for path in (tmp_path / "data").rglob("*"))


def test_a_link_to_nowhere_is_named(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (own / SHARD).unlink()
    (own / SHARD).symlink_to("gone")
    with pytest.raises(
        MissingError, match=rf"{SHARD}: a symbolic link to gone, which is not there; the manifest counts 5"
    ):
        fetch(own, tmp_path / "data")


def test_a_link_in_the_place_of_a_part_is_not_written_through(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    part = tmp_path / "data" / f"{SHARD}.part"
    part.parent.mkdir(parents=True)
    part.symlink_to(precious)
    fetched, _ = fetch(own, tmp_path / "data")
    assert precious.read_text() == "precious"
    assert hashes(fetched.folder) == hashes(own / FOLDER)


def test_a_link_in_the_place_of_a_shard_is_kept_where_it_is_the_shard(
    own: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "data" / SHARD
    path.parent.mkdir(parents=True)
    path.symlink_to(own / SHARD)
    _, heard = fetch(own, tmp_path / "data")
    assert path.name in heard.there
    # One that turns out to be damaged is replaced; what it points to stays.
    path.unlink()
    damaged = tmp_path / "damaged"
    damaged.write_bytes((own / SHARD).read_bytes()[:-2])
    path.symlink_to(damaged)
    fetched, _ = fetch(own, tmp_path / "data")
    assert not path.is_symlink()
    assert damaged.stat().st_size == (own / SHARD).stat().st_size - 2
    assert hashes(fetched.folder) == hashes(own / FOLDER)


@pytest.mark.parametrize("through", ["itself", "a link"])
def test_the_source_as_its_own_destination(own: pathlib.Path, tmp_path: pathlib.Path, through: str) -> None:
    to = own
    if through == "a link":
        to = tmp_path / "link"
        to.symlink_to(own)
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=rf"is a folder of the source itself; .*--set data.folder={own / FOLDER} --set"):
        fetch(own, to)
    assert {path: path.read_bytes() for path in own.rglob("*") if path.is_file()} == before


def test_that_advice_is_good(own: pathlib.Path) -> None:
    assert open_corpus(own / FOLDER, own / "tokenizers" / "fineweb_320_bpe.model").train_tokens > 100_000


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_what_is_no_file_is_named(own: pathlib.Path, tmp_path: pathlib.Path, what: str) -> None:
    (own / SHARD).unlink()
    (own / SHARD).mkdir() if what == "folder" else os.mkfifo(own / SHARD)
    with pytest.raises(DataError, match=rf"{SHARD}: must be a file"):
        plan(own, tmp_path / "data")


def test_a_destination_that_is_a_file(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(DataError, match="data: must be a folder"):
        plan(own, tmp_path / "data")


def test_a_file_that_grew_too_short_meanwhile(own: pathlib.Path) -> None:
    with LocalSource(own).open(SHARD, 51_000) as stream:
        assert (stream.start, stream.size) == (51_000, 51_024)
        assert (stream.read(100), stream.read(100)) == ((own / SHARD).read_bytes()[51_000:], b"")
    assert probe(LocalSource(own), SHARD).sha256 is None


def fetch_without_room(source: pathlib.Path, to: pathlib.Path) -> tuple[FetchPlan, DataError]:
    """Fetch as if the room were lost between the plan and the writing; returns the plan, and the error of writing."""
    planned = plan(source, to)
    with pytest.raises(DataError) as failed:
        run_fetch(dataclasses.replace(planned, free_bytes=10**9), QUICK, Heard())
    assert failed.value.exit_code == 4
    return planned, failed.value


def test_a_full_disk(own: pathlib.Path, tmp_path: pathlib.Path, mount: Callable[..., pathlib.Path]) -> None:
    """400 kB, which is enough for the tokenizer and the first shards."""
    to = mount("-t", "tmpfs", "-o", "size=400k", "tmpfs", tmp_path / "small")
    planned, failed = fetch_without_room(own, to)
    with pytest.raises(DataError, match="choose another disk with --to") as refused:
        planned.check_room()
    assert (refused.value.exit_code, str(refused.value).startswith(f"{to}: ")) == (4, True)
    assert str(failed).startswith(f"{to}/{FOLDER}/fineweb_train_")
    assert ": No space left on device; what was fetched so far stays, and the same command continues there" in str(
        failed
    )
    assert (to / FOLDER / "fineweb_val_000000.bin").is_file()


def test_a_folder_that_may_not_be_written(
    own: pathlib.Path, tmp_path: pathlib.Path, mount: Callable[..., pathlib.Path]
) -> None:
    to = mount("-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "read_only")
    planned, failed = fetch_without_room(own, to)
    planned.check_room()
    assert list(to.iterdir()) == []
    assert str(failed).startswith(f"{to}/.fetch.lock: Read-only file system; ")


def test_errors_of_reading_are_not_of_this_disk(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Reading a folder's memory of another process fails in the middle, as a broken disk does."""
    with (
        LocalSource(pathlib.Path("/proc/self")).open("mem") as stream,
        pytest.raises(FetchError, match="/proc/self/mem: "),
    ):
        stream.read(100)
