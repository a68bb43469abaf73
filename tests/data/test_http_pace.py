"""A server that holds the line: a trickle, interim answers without end, headers and lengths that are none."""

import contextlib
import io
import pathlib
import socket
import threading
from collections.abc import Iterator

import pytest

from golfray.data.fetch_errors import FetchError, TransientError
from golfray.data.http_pace import PacedReader
from golfray.data.http_source import HttpSource, printable
from golfray.data.sources import probe, read_whole
from tests.data.published_layout import serve


class Trickle(io.RawIOBase):
    """``step`` bytes a read, each read taking ``seconds`` of a clock of its own."""

    def __init__(self, total: int, step: int, seconds: float) -> None:
        self.left, self.step, self.seconds, self.now = total, step, seconds, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.now += self.seconds
        count = min(self.left, self.step, len(buffer))
        buffer[:count] = b"x" * count
        self.left -= count
        return count


def paced(raw: Trickle) -> io.BufferedReader:
    return io.BufferedReader(PacedReader(raw, lambda: raw.now))


@pytest.mark.parametrize(("step", "seconds"), [(1, 29), (200, 29), (1, 0.2), (1000, 121)])
def test_a_trickle_is_no_answer(step: int, seconds: float) -> None:
    reader = paced(Trickle(10_000, step, seconds))
    with pytest.raises(TimeoutError, match=r"only [\d,]+ bytes came in 1[24]\d s"):
        list(iter(lambda: reader.read1(1 << 20), b""))


@pytest.mark.parametrize(("step", "seconds"), [(1024, 119), (300, 29), (10, 1), (1 << 20, 500)])
def test_what_gets_on_is_read_to_its_end(step: int, seconds: float) -> None:
    raw, came = Trickle(100_000, step, seconds), 0
    reader = paced(raw)
    while part := reader.read1(1 << 20):
        came += len(part)
    assert came == 100_000


def test_the_end_after_a_long_wait_is_an_end() -> None:
    raw = Trickle(3, 3, 100)
    reader = paced(raw)
    assert reader.read1(10) == b"xxx"
    assert reader.read1(10) == b""


@contextlib.contextmanager
def answering(start: bytes, endless: bytes = b"") -> Iterator[str]:
    """Answers one request with ``start``, and then ``endless`` again and again until the client goes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(start)
                while endless:
                    connection.sendall(endless * 1000)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_interim_answers_without_end() -> None:
    with (
        answering(b"", b"HTTP/1.1 100 Continue\r\n\r\n") as base,
        pytest.raises(TransientError, match="no answer: headers of more than 1,048,576 bytes"),
    ):
        probe(HttpSource(base, ""), "file")


def test_a_body_beyond_the_limit_of_headers(tmp_path: pathlib.Path) -> None:
    content = b"0123456789abcdef" * 200_000
    (tmp_path / "file").write_bytes(content)
    with serve(tmp_path) as server:
        assert read_whole(HttpSource(server.base, ""), "file", 2**24) == content


LONG = b"9" * 5000


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: " + LONG + b"\r\n\r\n",
        b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-" + LONG + b"/" + LONG + b"\r\n\r\n",
        b"HTTP/1.1 206 Partial\r\nContent-Range: bytes " + LONG + b"-1/2\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1/x\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: https://" + b"a" * 64 + b".example/x\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: //[\x1b[31mx]/\r\n\r\n",
        b"HTTP/1.1 " + LONG + b" OK\r\n\r\n",
        b"HTTP/1.1 \x1b[31mred\rline\x07 OK\r\n\r\n",
        b"\x1b]0;title\x07\x1b[2Jnonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Encoding: \x1b[31mred\r\n\r\n",
        b"HTTP/1.1 503 \x1b[31mBusy\r\nRetry-After: " + LONG + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nRetry-After: Mon, 01 Jan 0001 00:00:00 +9999\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nRetry-After: Mon, 01 Jan 2001 00:00:00 +" + b"9" * 30 + b"\r\n\r\n",
    ],
)
def test_no_answer_is_a_bug_of_golfray_or_reaches_the_terminal_raw(answer: bytes) -> None:
    with answering(answer) as base, pytest.raises(FetchError) as ended:
        probe(HttpSource(base, ""), "file")
    assert ended.value.exit_code == 4
    assert str(ended.value).isprintable()
    assert len(str(ended.value)) < 400


def test_printable() -> None:
    assert printable("a\nb\x1b[31m\x07 näher") == r"a\nb\x1b[31m\x07 näher"
    assert printable("x" * 1000) == "x" * 120 + "..."
