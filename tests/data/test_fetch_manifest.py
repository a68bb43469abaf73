"""What a published manifest must say, and what it must not make golfray do."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.data.corpus import Corpus, open_corpus
from golfray.data.errors import DataError
from golfray.data.published_manifest import choose_dataset, read_published
from golfray.data.sources import relative_path
from tests.data.published_layout import NAME, change_manifest, fetch, publish, serve


@pytest.fixture
def own(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A small source of the test's own."""
    return publish(tmp_path / "own", tiny_corpus)


STATS = {
    "files_val": 1,
    "files_train": 195,
    "tokens_val": 62_021_846,
    "tokens_train": 19_473_000_000,
    "docs_val": 50_000,
}


def manifest(*names: str, **changes: Any) -> dict[str, Any]:
    """A manifest with these datasets; ``changes`` are of each."""
    tokenizer = {"name": "sp_bpe_1024", "kind": "sentencepiece_bpe", "model_path": "tokenizers/fineweb_1024_bpe.model"}
    entries = [
        {"name": name, "tokenizer_name": "sp_bpe_1024", "vocab_size": 1024, "stats": STATS, **changes} for name in names
    ]
    return {"version": "10B", "tokenizers": [tokenizer], "datasets": entries}


@pytest.mark.parametrize(
    ("names", "variant", "chosen"),
    [
        (["fineweb10B_sp1024"], "sp1024", "fineweb10B_sp1024"),
        (["fineweb10B_sp1024"], "fineweb10B_sp1024", "fineweb10B_sp1024"),
        (["fineweb_sp1024"], "sp1024", "fineweb_sp1024"),
        (["finewebmini_sp1024", "fineweb10B_sp1024"], "sp1024", "fineweb10B_sp1024"),
        (["fineweb10B_byte260", "fineweb10B_sp1024"], "byte260", "fineweb10B_byte260"),
        (
            ["fineweb10B_sp8192_lossless_caps_caseops_v1_reserved", "fineweb10B_sp8192"],
            "sp8192_lossless_caps_caseops_v1_reserved",
            "fineweb10B_sp8192_lossless_caps_caseops_v1_reserved",
        ),
        (["fineweb10B_sp1024 (näher)"], "sp1024 (näher)", "fineweb10B_sp1024 (näher)"),
        (["plain"], "plain", "plain"),
    ],
)
def test_a_variant_is_what_the_manifest_names(names: list[str], variant: str, chosen: str) -> None:
    assert choose_dataset(manifest(*names), variant, "M").name == chosen


@pytest.mark.parametrize(
    ("names", "variant", "message"),
    [
        (
            ["fineweb10B_sp1024"],
            "sp1042",
            r"no dataset for --variant 'sp1042'; did you mean sp1024\? It has fineweb10B_sp1024",
        ),
        (["fineweb10B_sp1024"], "byte260", r"no dataset for --variant 'byte260'. It has fineweb10B_sp1024"),
        ([], "sp1024", "no dataset for --variant 'sp1024'. It has none"),
        (["a_sp1024", "b_sp1024"], "sp1024", "could be any of a_sp1024, b_sp1024; give the whole name"),
        (["fineweb10B_sp1024"], "../sp1024", "no dataset for --variant"),
        (["fineweb10B_sp1024"], "", "no dataset for --variant ''"),
    ],
)
def test_a_variant_that_is_none_gets_the_nearest(names: list[str], variant: str, message: str) -> None:
    with pytest.raises(DataError, match=f"M: .*{message}"):
        choose_dataset(manifest(*names), variant, "M")


def test_what_upstream_writes_is_understood() -> None:
    chosen = choose_dataset(manifest("fineweb10B_sp1024"), "sp1024", "M")
    assert (chosen.files_val, chosen.files_train, chosen.docs_val) == (1, 195, 50_000)
    assert chosen.shard("train", 194) == "datasets/fineweb10B_sp1024/fineweb_train_000194.bin"
    assert chosen.tokenizer.files == ("tokenizers/fineweb_1024_bpe.model",)
    assert chosen.bos_id is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("datasets"), "M: the manifest lacks the key datasets; it has tokenizers, version"),
        (lambda v: v.update(datasets={}), "datasets must be a list of objects"),
        (lambda v: v.update(datasets=[3]), "datasets must be a list of objects"),
        (lambda v: v["datasets"].append({}), r"datasets\[1\]: the manifest lacks the key name"),
        (lambda v: v["datasets"].append(v["datasets"][0]), "datasets has 'fineweb10B_sp1024' twice"),
        (lambda v: v.pop("tokenizers"), "the manifest lacks the key tokenizers"),
        (
            lambda v: v["datasets"][0].update(tokenizer_name="x"),
            "'x' is not among the tokenizers, which are sp_bpe_1024",
        ),
        (lambda v: v["datasets"][0].pop("tokenizer_name"), "the manifest lacks the key tokenizer_name"),
        (lambda v: v["datasets"][0].pop("vocab_size"), "the manifest lacks the key vocab_size"),
        (lambda v: v["datasets"][0].update(vocab_size="1024"), "vocab_size: must be a whole number .* got '1024'"),
        (lambda v: v["datasets"][0].update(vocab_size=65_537), "vocab_size: must be a whole number from 2 to 65,536"),
        (lambda v: v["datasets"][0].update(bos_id=1024), "bos_id: must be a whole number from 0 to 1,023, got 1024"),
        (lambda v: v["tokenizers"][0].pop("model_path"), r"lacks the key model_path \(or path\); it has kind, name"),
        (lambda v: v["tokenizers"][0].pop("kind"), "the manifest lacks the key kind"),
        (lambda v: v["tokenizers"][0].update(model_path=7), "model_path: must be a text, got 7"),
        (lambda v: v["tokenizers"][0].update(model_path="."), "the paths of its files must not be empty"),
        (lambda v: v["datasets"][0].update(path=3), "path: must be a text, got 3"),
    ],
)
def test_what_is_missing_or_wrong_is_named(change: Callable[[dict[str, Any]], object], message: str) -> None:
    values = json.loads(json.dumps(manifest("fineweb10B_sp1024")))
    change(values)
    with pytest.raises(DataError, match=message):
        choose_dataset(values, "sp1024", "M")


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", [1], 10**5 + 1, 10**6])
def test_counts_are_whole_numbers(value: object) -> None:
    with pytest.raises(DataError, match=r"stats.files_val: must be a whole number from 1 to 100,000, got "):
        choose_dataset(manifest("x", stats={**STATS, "files_val": value}), "x", "M")


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_manifest(content: bytes) -> None:
    with pytest.raises(DataError, match=r"M: must be (a )?JSON"):
        read_published(content, "M")


OUTSIDE = ["../x", "a/../../x", "/etc/passwd", "..", "a\\b", "C:/x", "a/b\x00c", "a\nb", "datasets/.."]


class TestPathsThatLeaveTheRoot:
    @pytest.mark.parametrize("path", OUTSIDE)
    @pytest.mark.parametrize("key", ["name", "path"])
    def test_of_a_dataset(self, key: str, path: str) -> None:
        values = manifest("good", **{key: path})
        with pytest.raises(DataError, match="must be"):
            choose_dataset(values, path if key == "name" else "good", "M")

    @pytest.mark.parametrize("path", OUTSIDE)
    @pytest.mark.parametrize("key", ["model_path", "vocab_path", "path"])
    def test_of_a_tokenizer(self, key: str, path: str) -> None:
        values = manifest("good")
        values["tokenizers"][0][key] = path
        with pytest.raises(DataError, match="must be a path below the root of the source"):
            choose_dataset(values, "good", "M")

    @pytest.mark.parametrize("name", ["a/b", "", ".", "./a"])
    def test_a_name_is_one_folder(self, name: str) -> None:
        with pytest.raises(DataError, match=r"name: must be the name of one folder"):
            choose_dataset(manifest(name), name, "M")

    def test_nothing_is_read_or_written_outside(self, own: pathlib.Path, tmp_path: pathlib.Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("s")
        change_manifest(own, lambda values: values["tokenizers"][0].update(vocab_path="../secret"))
        before = sorted(tmp_path.rglob("*"))
        for start in (own, None):
            with serve(own) as server, pytest.raises(DataError, match=r"'\.\./secret' must be a path below"):
                fetch(start or server.base, tmp_path / "data")
        assert sorted(tmp_path.rglob("*")) == before

    @given(st.text(alphabet=st.sampled_from("a./\\:\0 ~-"), max_size=12))
    @settings(max_examples=300)
    def test_a_path_that_is_let_through_stays_below(self, text: str) -> None:
        try:
            path = relative_path(text, "x")
        except DataError:
            return
        base = pathlib.Path("/base")
        assert (base / path).resolve().is_relative_to(base)
        assert "//" not in path
        assert not path.startswith("/")


@pytest.mark.parametrize(
    "name", ["fineweb10B_sp320 (näher) +&#?%20", "-rf", "語", "a" * 200, "CON.", "fine web_$HOME`id`"]
)
def test_odd_names_are_names(own: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
    (own / "datasets" / NAME).rename(own / "datasets" / name)
    change_manifest(own, lambda values: values["datasets"][0].update(name=name, path=f"datasets/{name}"))
    with serve(own) as server:
        fetched, _ = fetch(server.base, tmp_path / "data", variant=name, train_shards=1)
    assert fetched.folder == tmp_path / "data" / "datasets" / name
    assert open_corpus(fetched.folder).name == name
    import shlex

    line = next(line for line in fetched.lines() if "golfray tune" in line)
    assert f"data.folder={fetched.folder}" in shlex.split(line)


@pytest.mark.parametrize(
    ("model", "vocab"),
    [
        ("tokenizers/t.model", "tokenizers/b/t.model"),
        ("tokenizers/t.model", "tokenizers/t.model.part"),
        ("tokenizers/t.model.part", "tokenizers/t.model"),
    ],
)
@pytest.mark.parametrize("tokenizer_only", [True, False])
def test_two_files_with_one_place_are_refused(
    own: pathlib.Path, tmp_path: pathlib.Path, model: str, vocab: str, tokenizer_only: bool
) -> None:
    """Files keep their base names only, and each has a ``.part`` beside it while it is fetched."""
    (own / "tokenizers" / "b").mkdir()
    for path in (model, vocab):
        (own / path).write_bytes((own / "tokenizers" / "fineweb_320_bpe.model").read_bytes())
    change_manifest(own, lambda values: values["tokenizers"][0].update(model_path=model, vocab_path=vocab))
    with pytest.raises(DataError, match="would both be written there") as refused:
        fetch(own, tmp_path / "data", tokenizer_only=tokenizer_only)
    assert refused.value.exit_code == 2
    assert model in str(refused.value)
    assert vocab in str(refused.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["fineweb_val_000001.bin", "fineweb_train_000000.bin.part", "manifest.json"])
def test_a_tokenizer_that_would_lie_in_the_place_of_a_shard(
    own: pathlib.Path, tmp_path: pathlib.Path, name: str
) -> None:
    (own / "tokenizers" / "fineweb_320_bpe.model").rename(own / "tokenizers" / name)
    change_manifest(own, lambda values: values["tokenizers"][0].update(model_path=f"tokenizers/{name}"))
    with pytest.raises(DataError, match=f"tokenizers/{name}.* would both be written there"):
        fetch(own, tmp_path / "data")
