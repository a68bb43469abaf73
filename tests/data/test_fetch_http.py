"""Over a loopback server that misbehaves: cuts, redirects, changes files, lies; and where the token goes."""

import hashlib
import pathlib
from typing import Any

import pytest

from golfray.data.corpus import Corpus
from golfray.data.errors import DataError
from golfray.data.fetch import run_fetch
from golfray.data.fetch_errors import FetchError, MissingError
from golfray.data.http_source import HttpSource, HubSource
from golfray.data.sources import probe
from tests.data.published_layout import NAME, QUICK, Heard, fetch, hashes, plan, publish, serve
from tests.ports import refusing_port

FOLDER = f"datasets/{NAME}"
SHARD = f"{FOLDER}/fineweb_train_000001.bin"
SIZE = 1024 + 2 * 25_000


@pytest.fixture(scope="module")
def published(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The small source; not to be changed."""
    return publish(tmp_path_factory.mktemp("published"), tiny_corpus)


def test_a_cut_transfer_continues_where_it_stopped(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serve(published, cut={SHARD: [SIZE // 2, 1000]}) as server:
        fetched, heard = fetch(server.base, tmp_path)
    assert hashes(fetched.folder) == hashes(published / FOLDER)
    assert server.transfers(SHARD) == ["", f"bytes={SIZE // 2}-", f"bytes={SIZE // 2 + 1000}-"]
    assert any(f"ended after {SIZE // 2:,} of {SIZE:,} bytes; trying again in 0.01 s" in line for line in heard.lines)


def test_it_continues_in_another_process_too(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serve(published, cut={SHARD: [10_000, 10_000, 10_000]}) as server:
        with pytest.raises(FetchError, match=r"given up after 3 tries\. The same command continues"):
            fetch(server.base, tmp_path)
        planned = plan(server.base, tmp_path)
        assert planned.states[5].have == 30_000
        fetched, heard = fetch(server.base, tmp_path)
    assert hashes(fetched.folder) == hashes(published / FOLDER)
    assert server.transfers(SHARD)[-1] == "bytes=30000-"
    assert heard.there == [
        "fineweb_320_bpe.model",
        "fineweb_320_bpe.vocab",
        "fineweb_val_000000.bin",
        "fineweb_val_000001.bin",
        "fineweb_train_000000.bin",
    ]


def test_a_server_without_ranges_starts_that_file_again(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serve(published, ranges=False, cut={SHARD: [40_000]}) as server:
        fetched, _ = fetch(server.base, tmp_path)
    assert hashes(fetched.folder) == hashes(published / FOLDER)
    assert server.transfers(SHARD) == ["", "bytes=40000-"]


@pytest.mark.parametrize("etags", [True, False])
def test_a_file_that_changed_between_two_runs_is_started_again(
    tiny_corpus: Corpus, tmp_path: pathlib.Path, etags: bool
) -> None:
    """Without an ETag it is the size that tells."""
    own = publish(tmp_path / "own", tiny_corpus)
    vocab = own / "tokenizers" / "fineweb_320_bpe.vocab"
    vocab.write_bytes(b"a" * 1000)
    with serve(own, etags=etags, cut={"tokenizers/fineweb_320_bpe.vocab": [500, 0, 0]}) as server:
        with pytest.raises(FetchError):
            fetch(server.base, tmp_path / "data")
        vocab.write_bytes(b"b" * (1000 if etags else 1001))
        server.behaviour.cut.clear()
        _, heard = fetch(server.base, tmp_path / "data")
    assert (tmp_path / "data" / "tokenizers" / vocab.name).read_bytes() == vocab.read_bytes()
    assert any("was begun, but the source has another file now; fetching it again" in line for line in heard.lines)
    assert server.transfers(vocab.name)[-1] == ""


@pytest.mark.parametrize("changed", [slice(None, -2), slice(None, None, -1)])
def test_a_file_that_changes_while_it_is_fetched(tiny_corpus: Corpus, tmp_path: pathlib.Path, changed: slice) -> None:
    own = publish(tmp_path / "own", tiny_corpus)
    with serve(own) as server:
        planned = plan(server.base, tmp_path / "data")
        content = (own / SHARD).read_bytes()[changed]
        (own / SHARD).write_bytes(content)
        message = rf"changed at the source while it was fetched \(51,024 bytes, then {len(content):,}\); run the same"
        with pytest.raises(FetchError, match=message):
            run_fetch(planned, QUICK, Heard())
    assert not (tmp_path / "data" / f"{SHARD}.part").exists()


def test_two_halves_that_do_not_belong_together(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> None:
    """No ETag, the same size, other content: nothing tells but the promised hash, and the file is started again."""
    own = publish(tmp_path / "own", tiny_corpus)
    whole = (own / SHARD).read_bytes()
    other = whole[:1024] + whole[1024:][::-1]

    def promise(path: str, _content: bytes) -> dict[str, str]:
        return {"X-Linked-ETag": f'"{hashlib.sha256(whole).hexdigest()}"'} if path == SHARD else {}

    with serve(own, etags=False, headers=promise, answer={SHARD: other}, cut={SHARD: [30_000, 0, 0]}) as server:
        with pytest.raises(FetchError):
            fetch(server.base, tmp_path / "data")
        server.behaviour.answer.clear()
        server.behaviour.cut.clear()
        fetched, heard = fetch(server.base, tmp_path / "data")
    assert hashes(fetched.folder) == hashes(own / FOLDER)
    assert any(
        "damaged on the way: sha256" in line or "put together from two transfers" in line for line in heard.lines
    )


def test_what_is_damaged_every_time_is_given_up(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def promise(path: str, _content: bytes) -> dict[str, str]:
        return {"X-Linked-ETag": '"' + "0" * 64 + '"'} if path == SHARD else {}

    with (
        serve(published, headers=promise) as server,
        pytest.raises(FetchError, match=r"must be 0000.*given up after 3"),
    ):
        fetch(server.base, tmp_path)
    assert not (tmp_path / SHARD).exists()
    assert not (tmp_path / f"{SHARD}.part").exists()


def test_more_bytes_than_announced(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The answer to a Range says one size in Content-Range and sends more."""
    longer = {SHARD: (published / SHARD).read_bytes() + b"more"}
    with (
        serve(published, answer=longer, announce={SHARD: SIZE}, cut={SHARD: [30_000]}) as server,
        pytest.raises(FetchError, match=r"000001.bin: more bytes came than the 51,024 announced"),
    ):
        fetch(server.base, tmp_path)
    assert not (tmp_path / SHARD).exists()
    assert not (tmp_path / f"{SHARD}.part").exists()


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_server_error_that_passes(published: pathlib.Path, tmp_path: pathlib.Path, status: int) -> None:
    fail = {"manifest.json": [(status, {})], SHARD: [(status, {}), (status, {})]}
    with serve(published, fail=fail) as server:
        fetched, heard = fetch(server.base, tmp_path)
    assert hashes(fetched.folder) == hashes(published / FOLDER)
    assert sum(f"the server answers {status}" in line for line in heard.lines) == 3


def test_a_server_error_that_stays(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    message = r"manifest.json: the server answers 500 .*given up after 3 tries"
    with (
        serve(published, fail={"manifest.json": [(500, {})] * 3}) as server,
        pytest.raises(FetchError, match=message) as ended,
    ):
        plan(server.base, tmp_path)
    assert ended.value.exit_code == 4
    assert len(server.requests) == 3


def test_the_wait_that_a_server_asks_for_is_kept(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serve(published, fail={"manifest.json": [(503, {"Retry-After": "0"})]}) as server:
        _, heard = fetch(server.base, tmp_path, tokenizer_only=True)
    assert any(line.endswith("trying again in 0 s") for line in heard.lines)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("manifest.json", r"manifest.json: not there \(404 Not Found\); SOURCE must hold manifest.json"),
        (
            f"{FOLDER}/fineweb_val_000000.bin",
            r"counts 2 val shard\(s\) of .* choose another --variant or another source",
        ),
        (f"{FOLDER}/fineweb_train_000000.bin", r"counts 5 train shard\(s\) of .* this source does not hold them"),
        (SHARD, "counts 5 train shards; --train-shards 1 takes those before it"),
        ("tokenizers/fineweb_320_bpe.model", "names it for the tokenizer sp_bpe_320, so the source is not complete"),
    ],
)
def test_a_missing_file_is_named_with_what_to_try(
    published: pathlib.Path, tmp_path: pathlib.Path, name: str, message: str
) -> None:
    with serve(published, fail={name: [(404, {})]}) as server, pytest.raises(MissingError, match=message) as missing:
        fetch(server.base, tmp_path)
    assert str(missing.value).startswith(f"{server.base}/{name}: not there")
    assert missing.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [401, 403])
def test_refused(published: pathlib.Path, tmp_path: pathlib.Path, status: int) -> None:
    with (
        serve(published, fail={"manifest.json": [(status, {})]}) as server,
        pytest.raises(FetchError, match=rf"refused \({status} .*HF_TOKEN must then be set"),
    ):
        plan(server.base, tmp_path)


def test_nobody_answers(tmp_path: pathlib.Path) -> None:
    with (
        refusing_port() as port,
        pytest.raises(FetchError, match="no answer: Connection refused; is there a network here") as ended,
    ):
        plan(f"http://127.0.0.1:{port}", tmp_path)
    assert ended.value.exit_code == 4


def test_a_web_page_in_place_of_the_manifest(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with (
        serve(published, answer={"manifest.json": b"<html>Log in</html>"}) as server,
        pytest.raises(DataError, match=r"manifest.json: must be JSON, but begins with '<html>Log in</html>'"),
    ):
        plan(server.base, tmp_path)


def test_a_manifest_without_an_end(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with (
        serve(published, answer={"manifest.json": b" " * (16 * 2**20 + 1)}) as server,
        pytest.raises(DataError, match=r"16,777,217 bytes, but at most 16,777,216 are expected here"),
    ):
        plan(server.base, tmp_path)


class TestTheTokenOfTheHub:
    TOKEN = "hf_neverPrintedAnywhere"

    @pytest.fixture
    def hub(self, tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
        publish(tmp_path / "hub/datasets/someone/golf/resolve/main/datasets", tiny_corpus)
        return tmp_path / "hub"

    @staticmethod
    def sent(server: Any) -> set[str]:
        return {headers.get("Authorization", "") for _, headers in server.requests}

    def test_it_goes_to_the_endpoint(self, hub: pathlib.Path, tmp_path: pathlib.Path) -> None:
        with serve(hub) as server:
            environment = {"HF_ENDPOINT": server.base, "HF_TOKEN": self.TOKEN}
            fetched, heard = fetch("someone/golf", tmp_path / "data", environment=environment)
        assert self.sent(server) == {f"Bearer {self.TOKEN}"}
        written = list((tmp_path / "data").rglob("*.json"))
        assert written
        assert not any(self.TOKEN in path.read_text() for path in written)
        assert self.TOKEN not in " ".join([*heard.lines, *fetched.lines(), *fetched.plan.lines()])

    def test_a_redirect_elsewhere_does_not_get_it(self, hub: pathlib.Path, tmp_path: pathlib.Path) -> None:
        with serve(hub) as storage, serve(hub, redirect=storage.base) as endpoint:
            environment = {"HF_ENDPOINT": endpoint.base, "HF_TOKEN": self.TOKEN}
            fetched, _ = fetch("someone/golf", tmp_path / "data", environment=environment)
        assert self.sent(endpoint) == {f"Bearer {self.TOKEN}"}
        assert self.sent(storage) == {""}
        assert len(storage.requests) == len(endpoint.requests) > 10
        assert len(hashes(fetched.folder)) == 7

    def test_no_error_shows_it(self, hub: pathlib.Path, tmp_path: pathlib.Path) -> None:
        manifest = "datasets/someone/golf/resolve/main/datasets/manifest.json"
        with serve(hub, fail={manifest: [(401, {})]}) as server, pytest.raises(FetchError) as refused:
            plan("someone/golf", tmp_path, environment={"HF_ENDPOINT": server.base, "HF_TOKEN": self.TOKEN})
        assert self.TOKEN not in str(refused.value)
        assert self.TOKEN not in repr(refused.value.__cause__)

    def test_an_address_of_ones_own_does_not_get_it(
        self, published: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HF_TOKEN", self.TOKEN)
        with serve(published) as server:
            fetch(server.base, tmp_path, environment={"HF_TOKEN": self.TOKEN}, tokenizer_only=True)
        assert self.sent(server) == {""}

    def test_every_file_is_read_from_the_commit_that_the_first_answer_names(
        self, hub: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        commit = "0123456789abcdef0123456789abcdef01234567"
        repository = hub / "datasets/someone/golf/resolve"
        (repository / commit).symlink_to(repository / "main")
        with serve(hub, headers=lambda path, content: {"X-Repo-Commit": commit}) as server:
            fetched, _ = fetch("someone/golf", tmp_path / "data", environment={"HF_ENDPOINT": server.base})
        revisions = [path.split("/")[4] for path, _ in server.requests]
        assert revisions[0] == "main"
        assert set(revisions[1:]) == {commit}
        assert fetched.manifest is not None
        assert fetched.manifest.recipe["commit"] == commit

    def test_an_endpoint_that_is_none_is_named(self) -> None:
        with pytest.raises(DataError, match=r"HF_ENDPOINT=http://example\.org: must begin with https://"):
            HubSource("someone/golf", "main", "datasets", {"HF_ENDPOINT": "http://example.org"})

    def test_the_default_endpoint(self) -> None:
        source = HubSource("someone/golf", "refs/pr/1", "datasets", {})
        assert source.where("a b.bin").endswith("/datasets/someone/golf/resolve/refs%2Fpr%2F1/datasets/a%20b.bin")


class TestRedirects:
    def test_round_and_round(self, published: pathlib.Path, tmp_path: pathlib.Path) -> None:
        with serve(published) as server:
            server.behaviour.redirect = server.base
            with pytest.raises(FetchError, match="redirected more than 5 times"):
                plan(server.base, tmp_path)
        assert len(server.requests) == 6

    @pytest.mark.parametrize("target", ["http://example.org", "ftp://127.0.0.1", "file://", "https://u:p@example.org"])
    def test_not_to_just_anywhere(self, published: pathlib.Path, tmp_path: pathlib.Path, target: str) -> None:
        with (
            serve(published, redirect=target) as server,
            pytest.raises(FetchError, match=r"manifest.json: redirects to an address that is not followed"),
        ):
            plan(server.base, tmp_path)

    def test_what_the_first_answer_promises_counts(self, published: pathlib.Path) -> None:
        sha256 = hashlib.sha256((published / SHARD).read_bytes()).hexdigest()
        promise = {"X-Linked-ETag": f'"{sha256}"'}
        with serve(published) as storage, serve(published, redirect=storage.base, redirect_headers=promise) as server:
            remote = probe(HttpSource(server.base, ""), SHARD)
        assert (remote.size, remote.identity, remote.sha256) == (SIZE, sha256, sha256)
        assert remote.head == (published / SHARD).read_bytes()[:1024]


@pytest.mark.parametrize("content", [b"", b"x", b"y" * 1023, b"z" * 1025])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_probe_of_a_small_file(tmp_path: pathlib.Path, content: bytes, ranges: bool) -> None:
    (tmp_path / "file").write_bytes(content)
    with serve(tmp_path, ranges=ranges) as server:
        remote = probe(HttpSource(server.base, ""), "file")
    assert (remote.size, remote.head) == (len(content), content[:1024])


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (200, {"Content-Encoding": "gzip", "Content-Length": "3"}, "sent with the content encoding gzip"),
        (200, {"Transfer-Encoding": "chunked"}, "does not say how long the file is"),
        (206, {"Content-Length": "3"}, "asked for bytes from 0 on, answered with Content-Range ''"),
        (206, {"Content-Length": "3", "Content-Range": "bytes 5-7/9"}, "answered with Content-Range 'bytes 5-7/9'"),
        (418, {"Content-Length": "0"}, "the server answers 418"),
    ],
)
def test_answers_that_do_not_fit(tmp_path: pathlib.Path, status: int, headers: dict[str, str], message: str) -> None:
    with serve(tmp_path, fail={"file": [(status, headers)]}) as server, pytest.raises(FetchError, match=message):
        probe(HttpSource(server.base, ""), "file")
