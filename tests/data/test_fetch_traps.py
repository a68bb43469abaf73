"""The seven traps of fetching the published exports, each by its number in section 5 of the data reference."""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from golfray.core.shards import map_shard
from golfray.data.corpus import Corpus, open_corpus
from golfray.data.errors import DataError
from golfray.data.source_argument import parse_source
from tests.data.published_layout import NAME, change_manifest, fetch, hashes, plan, publish, serve

FOLDER = f"datasets/{NAME}"


@pytest.fixture(scope="module")
def published(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The small source; not to be changed."""
    return publish(tmp_path_factory.mktemp("published"), tiny_corpus)


@pytest.fixture
def own(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A small source of the test's own."""
    return publish(tmp_path / "own", tiny_corpus)


class TestTrap1ManifestOfAnotherRepository:
    def test_it_is_never_used_for_this_one(
        self, published: pathlib.Path, tiny_corpus: Corpus, tmp_path: pathlib.Path
    ) -> None:
        other = publish(tmp_path / "other", tiny_corpus, name="fineweb10B_other")
        to = tmp_path / "data"
        fetch(other, to, variant="other")
        # Where upstream keeps the manifest, and finds it again whatever it is of.
        shutil.copyfile(other / "manifest.json", to / "manifest.json")
        fetched, _ = fetch(published, to)
        assert fetched.folder.name == NAME
        kept = [json.loads(path.read_text())["datasets"][0]["name"] for path in to.glob("fetched/*/manifest.json")]
        assert sorted(kept) == ["fineweb10B_other", NAME]

    def test_it_is_fetched_again_each_time(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        fetch(own, tmp_path / "data")
        change_manifest(own, lambda values: values["datasets"][0]["stats"].update(files_train=4))
        with pytest.raises(DataError, match=r"fineweb_train_000004.bin: not a file of"):
            fetch(own, tmp_path / "data")

    def test_none_is_used_where_the_source_has_none(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        fetch(own, tmp_path / "data")
        (own / "manifest.json").unlink()
        with pytest.raises(DataError, match=r"manifest.json: no such file; SOURCE must hold manifest.json"):
            fetch(own, tmp_path / "data")


class TestTrap2EmptyRoot:
    @pytest.mark.parametrize("root", ["", ".", "./"])
    def test_parts_are_joined_without_the_empty_ones(
        self, published: pathlib.Path, tmp_path: pathlib.Path, root: str
    ) -> None:
        with serve(published) as server:
            fetched, _ = fetch(server.base + "/", tmp_path, root=root, train_shards=1)
        asked = {path for path, _ in server.requests}
        assert "manifest.json" in asked
        assert f"{FOLDER}/fineweb_train_000000.bin" in asked
        assert not any("//" in path or path.startswith("/") for path in asked)
        assert open_corpus(fetched.folder).train_tokens == 25_000

    def test_of_a_repository(self, published: pathlib.Path, tmp_path: pathlib.Path) -> None:
        with serve(published) as server:
            source = parse_source("someone/flat", None, "", {"HF_ENDPOINT": server.base + "/"})
        assert source.where("manifest.json") == f"{server.base}/datasets/someone/flat/resolve/main/manifest.json"

    def test_shards_at_the_very_root(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        for path in (own / FOLDER).iterdir():
            path.rename(own / path.name)
        change_manifest(own, lambda values: values["datasets"][0].update(path=""))
        fetched, _ = fetch(own, tmp_path / "data", train_shards=1)
        assert open_corpus(fetched.folder).train_tokens == 25_000


class TestTrap3CutFileOfTheRightName:
    @pytest.mark.parametrize("size", [0, 7, 1024, 1026, 20_000])
    def test_it_is_found_and_fetched_again(self, published: pathlib.Path, tmp_path: pathlib.Path, size: int) -> None:
        path = tmp_path / FOLDER / "fineweb_train_000000.bin"
        path.parent.mkdir(parents=True)
        path.write_bytes((published / FOLDER / path.name).read_bytes()[:size])
        fetched, heard = fetch(published, tmp_path)
        assert path.name in heard.came
        assert any(line.startswith(f"{path}: ") and line.endswith("fetching it again") for line in heard.lines)
        assert hashes(fetched.folder) == hashes(published / FOLDER)

    def test_what_is_not_whole_never_has_the_name(self, published: pathlib.Path, tmp_path: pathlib.Path) -> None:
        name = "fineweb_train_000003.bin"
        with serve(published, cut={f"{FOLDER}/{name}": [30_000, 0, 0]}) as server, pytest.raises(DataError):
            fetch(server.base, tmp_path)
        assert not (tmp_path / FOLDER / name).exists()
        assert (tmp_path / FOLDER / f"{name}.part").stat().st_size == 30_000

    def test_one_that_is_cut_at_the_source_is_not_fetched_at_all(
        self, own: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        path = own / FOLDER / "fineweb_train_000002.bin"
        path.write_bytes(path.read_bytes()[:20_000])
        with pytest.raises(DataError, match=r"000002.bin: its header says 25,000 tokens.* it is so at the source"):
            fetch(own, tmp_path / "data")
        assert not (tmp_path / "data").exists()


def _without(*keys: str) -> Callable[[dict[str, Any]], object]:
    def change(values: dict[str, Any]) -> None:
        dataset = values["datasets"][0]
        for key in keys:
            dataset.pop(key, None)
            dataset.get("stats", {}).pop(key, None)

    return change


class TestTrap4MissingStats:
    @pytest.mark.parametrize("key", ["files_val", "files_train", "tokens_val", "tokens_train"])
    def test_the_key_is_named(self, own: pathlib.Path, tmp_path: pathlib.Path, key: str) -> None:
        change_manifest(own, _without(key))
        with pytest.raises(DataError, match=rf"datasets\['{NAME}'\]\.stats: the manifest lacks the key\(s\) {key}; it"):
            plan(own, tmp_path)

    def test_several_and_all_of_them(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        change_manifest(own, _without("files_val", "tokens_train"))
        with pytest.raises(DataError, match=r"lacks the key\(s\) files_val, tokens_train"):
            plan(own, tmp_path)
        change_manifest(own, _without("stats"))
        with pytest.raises(DataError, match=r"lacks the key stats, which says how many files and tokens there are"):
            plan(own, tmp_path)


class TestTrap5NoHeader:
    @staticmethod
    def strip(root: pathlib.Path) -> None:
        for path in (root / FOLDER).iterdir():
            path.write_bytes(path.read_bytes()[1024:])

    def test_the_likely_cause_is_named_and_the_way_out(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        self.strip(own)
        with pytest.raises(
            DataError, match=r"looks like bare tokens without a header.*; --no-header imports such files"
        ):
            fetch(own, tmp_path / "data")
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize("ranges", [True, False])
    def test_imported_with_a_header_they_are_whole_shards(
        self, own: pathlib.Path, published: pathlib.Path, tmp_path: pathlib.Path, ranges: bool
    ) -> None:
        self.strip(own)
        cut = {f"{FOLDER}/fineweb_train_000001.bin": [20_001]}
        with serve(own, ranges=ranges, cut=cut) as server:
            fetched, _ = fetch(server.base, tmp_path / "data", no_header=True)
            assert hashes(fetched.folder) == hashes(published / FOLDER)
            assert len(map_shard(fetched.folder / "fineweb_train_000001.bin")) == 25_000
            _, heard = fetch(server.base, tmp_path / "data", no_header=True)
        assert heard.came == []

    def test_a_header_that_is_there_is_not_written_twice(self, published: pathlib.Path, tmp_path: pathlib.Path) -> None:
        with pytest.raises(DataError, match="has a header; leave --no-header out"):
            fetch(published, tmp_path, no_header=True)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>" * 40, "this is a web page or an error message"),
            (b'{"error": "not found"}' * 90, "this is a web page or an error message"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "this is a Git LFS pointer"),
            (bytes(range(256)) * 20, "it is so at the source"),
            (b"", "the file is empty"),
        ],
    )
    def test_what_is_no_tokens_is_not_imported_either(
        self, own: pathlib.Path, tmp_path: pathlib.Path, content: bytes, message: str
    ) -> None:
        (own / FOLDER / "fineweb_val_000001.bin").write_bytes(content)
        for no_header in (False, True):
            if no_header:
                self.strip_all_but(own, "fineweb_val_000001.bin")
            with pytest.raises(DataError, match=rf"fineweb_val_000001.bin: .*{message}"):
                plan(own, tmp_path / "data", no_header=no_header)

    @staticmethod
    def strip_all_but(root: pathlib.Path, name: str) -> None:
        for path in (root / FOLDER).iterdir():
            if path.name != name:
                path.write_bytes(path.read_bytes()[1024:])

    def test_tokens_of_four_bytes_are_not_imported(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        self.strip(own)
        for path in (own / FOLDER).iterdir():
            path.write_bytes(
                b"".join(bytes([*pair, 0, 0]) for pair in zip(*[iter(path.read_bytes())] * 2, strict=True))
            )
        with pytest.raises(DataError, match="bare tokens of 4 bytes each"):
            plan(own, tmp_path / "data", no_header=True)


class TestTrap6RoomForCopies:
    def test_the_room_is_said_first_and_one_copy_is_made(self, published: pathlib.Path, tmp_path: pathlib.Path) -> None:
        to = tmp_path / "data"
        planned = plan(published, to)
        assert not to.exists()
        assert f"to be written: {planned.need_bytes / 1000:.1f} kB (one copy, here)" in planned.lines()[-1]
        fetched, _ = fetch(published, to)
        # Copies of their own: what changes at the source does not change them.
        shards = sorted(fetched.folder.glob("*.bin"))
        assert all(path.stat().st_nlink == 1 and not path.is_symlink() for path in shards)
        written = [*shards, *(to / "tokenizers").iterdir()]
        assert sum(path.stat().st_size for path in written) == planned.need_bytes

    def test_what_is_there_needs_no_room(self, published: pathlib.Path, tmp_path: pathlib.Path) -> None:
        fetch(published, tmp_path, train_shards=4)
        last = (published / FOLDER / "fineweb_train_000004.bin").stat().st_size
        assert plan(published, tmp_path).need_bytes == last
        assert plan(published, tmp_path, train_shards=4).need_bytes == 0


class TestTrap7OneSourceArgument:
    def test_a_folder_an_address_and_a_repository_give_the_same(
        self, published: pathlib.Path, tiny_corpus: Corpus, tmp_path: pathlib.Path
    ) -> None:
        hub = tmp_path / "hub"
        publish(hub / "datasets/someone/golf/resolve/main/datasets", tiny_corpus)
        found = {"folder": fetch(published, tmp_path / "folder")[0]}
        with serve(published) as server:
            found["address"] = fetch(server.base, tmp_path / "address")[0]
        with serve(hub) as server:
            environment = {"HF_ENDPOINT": server.base}
            found["repository"] = fetch("someone/golf", tmp_path / "repository", environment=environment)[0]
        expected = hashes(published / FOLDER)
        assert {name: hashes(fetched.folder) for name, fetched in found.items()} == dict.fromkeys(found, expected)
        names = [fetched.plan.request.source.name for fetched in found.values()]
        assert names == [str(published), server_base_of(names[1]), "someone/golf@main/datasets"]

    def test_a_folder_that_is_named_like_a_repository_is_the_folder(
        self, own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own.rename(tmp_path / "golf")
        monkeypatch.chdir(tmp_path.parent)
        assert parse_source(f"{tmp_path.name}/golf", None, None, {}).name == str(tmp_path / "golf")

    def test_a_clone_of_the_repository_tells_its_root(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        with pytest.raises(DataError, match="there is one in own: give --root own"):
            plan(own.parent, tmp_path / "data")
        assert plan(own.parent, tmp_path / "data", root="own").dataset.name == NAME


def server_base_of(name: str) -> str:
    """The name of an http source is its address."""
    assert name.startswith("http://127.0.0.1:")
    return name
