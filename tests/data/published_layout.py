"""A small source laid out as FineWeb is published, and a loopback server of it that can be told to misbehave."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import json
import pathlib
import re
import shutil
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from golfray.core.shards import list_shards
from golfray.data.corpus import Corpus
from golfray.data.fetch import Fetched, run_fetch
from golfray.data.fetch_file import FetchFile
from golfray.data.fetch_plan import FetchPlan, plan_fetch
from golfray.data.fetch_request import FetchRequest
from golfray.data.manifest import read_manifest
from golfray.data.source_argument import parse_source
from golfray.data.sources import Patience
from golfray.data.token_files import read_chunks, write_shards

NAME = "fineweb10B_sp320"
VARIANT = "sp320"
TRAIN_SHARD_TOKENS = 25_000
VAL_SHARD_TOKENS = 6_000


def publish(root: pathlib.Path, corpus: Corpus, name: str = NAME) -> pathlib.Path:
    """Lay the corpus out below ``root``: two validation shards, several training shards, tokenizer and manifest."""
    folder = root / "datasets" / name
    folder.mkdir(parents=True)
    stats: dict[str, int] = {}
    own = read_manifest(corpus.folder)
    assert own is not None
    for split, size, documents in (
        ("val", VAL_SHARD_TOKENS, own.val.documents),
        ("train", TRAIN_SHARD_TOKENS, own.train.documents),
    ):
        tokens = numpy.concatenate(list(read_chunks(list_shards(corpus.folder, split))))
        paths = write_shards(folder, split, [tokens], size)
        stats |= {f"files_{split}": len(paths), f"tokens_{split}": len(tokens), f"docs_{split}": documents}
    (root / "tokenizers").mkdir(exist_ok=True)
    model = root / "tokenizers" / "fineweb_320_bpe.model"
    shutil.copyfile(corpus.tokenizer, model)
    model.with_suffix(".vocab").write_text("<pad>\t0\n")
    tokenizer = {
        "name": "sp_bpe_320",
        "kind": "sentencepiece_bpe",
        "vocab_size": 320,
        "bos_id": 1,
        "eos_id": 2,
        "model_path": f"tokenizers/{model.name}",
        "vocab_path": f"tokenizers/{model.stem}.vocab",
    }
    dataset = {
        "name": name,
        "tokenizer_name": "sp_bpe_320",
        "tokenizer_kind": "sentencepiece_bpe",
        "path": f"datasets/{name}",
        "train_glob": f"datasets/{name}/fineweb_train_*.bin",
        "val_glob": f"datasets/{name}/fineweb_val_*.bin",
        "vocab_size": 320,
        "bos_id": 1,
        "eos_id": 2,
        "stats": stats,
    }
    manifest = {"version": "10B", "shard_size": TRAIN_SHARD_TOKENS, "tokenizers": [tokenizer], "datasets": [dataset]}
    (root / "manifest.json").write_text(json.dumps(manifest, indent=1))
    return root


def change_manifest(root: pathlib.Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the published manifest; ``change`` gets it as a dictionary."""
    path = root / "manifest.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """sha256 of every shard in a folder by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.bin"))}


class Heard:
    """A listener that keeps what it is told: ``lines`` said, and the names of files that were there or came."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.there: list[str] = []
        self.came: list[str] = []
        self.positions: list[int] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def at(self, file: FetchFile, position: int) -> None:
        assert 0 <= position <= file.size
        self.positions.append(position)

    def done(self, file: FetchFile, was_there: bool) -> None:
        (self.there if was_there else self.came).append(file.target.name)


QUICK = Patience(tries=3, first_wait_s=0.01)


def plan(source: object, to: pathlib.Path, heard: Heard | None = None, **asked: Any) -> FetchPlan:
    """Plan a fetch of the small source; ``root``, ``revision`` and ``environment`` are those of ``parse_source``."""
    parsed = parse_source(
        str(source), asked.pop("revision", None), asked.pop("root", None), asked.pop("environment", {})
    )
    return plan_fetch(FetchRequest(parsed, to, asked.pop("variant", VARIANT), **asked), QUICK, heard or Heard())


def fetch(source: object, to: pathlib.Path, **asked: Any) -> tuple[Fetched, Heard]:
    """Plan and carry out."""
    heard = Heard()
    return run_fetch(plan(source, to, heard, **asked), QUICK, heard), heard


@dataclasses.dataclass
class Behaviour:
    """How a server answers. Paths are those below its root.

    ``cut``: after so many bytes of the answer the connection is closed, each number used once. ``fail``: statuses to
    answer first, with headers. ``stall``: after so many bytes nothing more comes, with ``stall_probes`` nothing at all
    to who asks for the first 1,024 bytes. ``redirect`` sends everything to
    another address, ``answer`` replaces a file's content, ``announce`` the size that is told of it.
    """

    ranges: bool = True
    etags: bool = True
    cut: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    fail: dict[str, list[tuple[int, dict[str, str]]]] = dataclasses.field(default_factory=dict)
    stall: dict[str, int] = dataclasses.field(default_factory=dict)
    stall_probes: bool = False
    redirect: str = ""
    redirect_headers: dict[str, str] = dataclasses.field(default_factory=dict)
    headers: Callable[[str, bytes], dict[str, str]] = lambda path, content: {}
    answer: dict[str, bytes] = dataclasses.field(default_factory=dict)
    announce: dict[str, int] = dataclasses.field(default_factory=dict)


class Server:
    """Serves ``root`` on a loopback port; ``requests`` are the paths asked for with their headers."""

    def __init__(self, root: pathlib.Path, behaviour: Behaviour) -> None:
        self.root, self.behaviour = root, behaviour
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.released = threading.Event()
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}"

    def transfers(self, name: str) -> list[str]:
        """Range headers ("" for none) of the requests for a file's content: all but those for its first 1,024 bytes."""
        ranges = [headers.get("Range", "") for path, headers in self.requests if path.endswith(name)]
        return [asked for asked in ranges if asked != "bytes=0-1023"]


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments: object) -> None:
        """Nothing: the requests are kept."""

    def do_GET(self) -> None:
        owner, behaviour = self.owner, self.owner.behaviour
        path = urllib.parse.unquote(self.path.lstrip("/"))
        owner.requests.append((path, dict(self.headers.items())))
        self.close_connection = True
        if behaviour.fail.get(path):
            status, headers = behaviour.fail[path].pop(0)
            chunked = "Transfer-Encoding" in headers
            return self._send(status, ({} if chunked else {"Content-Length": "0"}) | headers, b"0\r\n\r\n" * chunked)
        if behaviour.redirect:
            headers = {"Location": behaviour.redirect + self.path, **behaviour.redirect_headers}
            return self._send(302, {"Content-Length": "0", **headers}, b"")
        full = owner.root / path
        if path not in behaviour.answer and not full.is_file():
            return self._send(404, {"Content-Length": "9"}, b"not found")
        content = behaviour.answer[path] if path in behaviour.answer else full.read_bytes()
        headers = behaviour.headers(path, content)
        if behaviour.etags:
            headers["ETag"] = f'"{hashlib.md5(content).hexdigest()}"'
        size = behaviour.announce.get(path, len(content))
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and behaviour.ranges:
            start = int(asked[1])
            if start >= size:
                return self._send(416, {"Content-Length": "0", "Content-Range": f"bytes */{size}"}, b"")
            end = min(int(asked[2] or size - 1), size - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{size}"
            part = content[start:] if not asked[2] else content[start : end + 1]
            # More than announced is sent as such: the length is that of what is sent.
            return self._send(206, {"Content-Length": str(len(part)), **headers}, part, path)
        return self._send(200, {"Content-Length": str(size), **headers}, content[:size], path)

    def _send(self, status: int, headers: dict[str, str], body: bytes, path: str = "") -> None:
        behaviour = self.owner.behaviour
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        is_probe = self.headers.get("Range", "") == "bytes=0-1023"
        with contextlib.suppress(ConnectionError):
            if is_probe and behaviour.stall_probes:
                self.owner.released.wait(120)
            elif not is_probe and path in behaviour.stall:
                self.wfile.write(body[: behaviour.stall[path]])
                self.wfile.flush()
                self.owner.released.wait(120)
            elif not is_probe and behaviour.cut.get(path):
                self.wfile.write(body[: behaviour.cut[path].pop(0)])
            else:
                self.wfile.write(body)


@contextlib.contextmanager
def serve(root: pathlib.Path, **behaviour: Any) -> Iterator[Server]:
    """A server of ``root`` while the block runs."""
    server = Server(root, Behaviour(**behaviour))
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.http.shutdown()
        thread.join()
        server.http.server_close()
