"""Documents come out of files as they were put in, and every kind of broken file is answered with its place."""

import gzip
import json
import lzma
import pathlib
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.data import text_files
from golfray.data.errors import DataError
from golfray.data.text_files import TextFormat, read_text_files

PACKED = {"": lambda content: content, ".gz": gzip.compress, ".xz": lzma.compress}
# Whatever a line may hold: no line break, and no separator of these tests.
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), min_size=1, max_size=5)


def read(path: pathlib.Path, **form: str) -> list[str]:
    return [document.text for document in read_text_files([path], TextFormat(**form))]


@pytest.mark.parametrize("suffix", PACKED)
@given(documents=st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=6))
@settings(max_examples=25)
def test_json_lines_read_back(suffix: str, documents: list[str]) -> None:
    content = "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(documents))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"x.jsonl{suffix}")
        path.write_bytes(PACKED[suffix](content.encode()))
        assert read(path) == documents


@pytest.mark.parametrize("separator", ["<|endoftext|>", ""])
@given(documents=st.lists(LINES.map("\n".join), min_size=1, max_size=6))
@settings(max_examples=50)
def test_separated_texts_read_back(separator: str, documents: list[str]) -> None:
    def stands_alone(text: str) -> bool:
        return not any(line.strip().encode().strip() == separator.encode() for line in text.split("\n"))

    documents = [text.strip("\n") for text in documents if text.strip() and stands_alone(text)] or ["the one"]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "x.txt")
        path.write_text(f"\n{separator}\n".join(documents), encoding="utf-8", newline="")
        assert read(path, separator=separator) == documents


def test_several_files_and_where_each_document_begins(tmp_path: pathlib.Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.jsonl"
    one.write_bytes(b"\xef\xbb\xbf\r\nfirst\r\nstill first\r\n  \r\n\r\nsecond\r\n")
    two.write_text('\n{"text": "third"}\n\n{"text": ""}\n')
    found = list(read_text_files([one, two], TextFormat(separator="")))
    assert [document.text for document in found] == ["first\r\nstill first", "second", "third", ""]
    assert [(document.file, document.line) for document in found] == [(0, 2), (0, 6), (1, 2), (1, 4)]


def test_without_a_separator_a_file_is_a_document(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "X.TXT"
    path.write_text("\n\na line\n\nanother\n")
    assert [(document.text, document.line) for document in read_text_files([path], TextFormat())] == [
        ("a line\n\nanother", 3)
    ]


def test_a_key_of_ones_own(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"content": "here", "text": 3}\n')
    assert read(path, text_key="content") == ["here"]


GOOD = b'{"text": "good"}\n'
BROKEN = {
    "a word": (
        "x.jsonl",
        GOOD + b"good\n",
        "x.jsonl:2: not JSON: Expecting value at column 1; a line must be one object",
    ),
    "half an object": ("x.jsonl", GOOD * 2 + b'{"text": ', "x.jsonl:3: not JSON: "),
    "no object": ("x.jsonl", b"[1, 2]\n", "x.jsonl:1: must be an object with the key 'text', got [1, 2]"),
    "another key": (
        "x.jsonl",
        b'{"body": "b", "title": "t"}\n',
        "x.jsonl:1: no key 'text'; its keys: 'body', 'title'; say with --text-key which one holds the text",
    ),
    "no text": ("x.jsonl", b'{"text": null}\n', "x.jsonl:1: 'text' must be a string, got null"),
    "half a pair": ("x.jsonl", b'{"text": "a\\ud83d"}\n', "x.jsonl:1: half a surrogate pair (\\ud83d) at character 1"),
    "too deep": ("x.jsonl", b"[" * 100_000 + b"\n", "x.jsonl:1: not JSON that can be read: "),
    "a long number": ("x.jsonl", b"1" * 5000 + b"\n", "x.jsonl:1: not JSON that can be read: "),
    "Latin-1 in JSON": (
        "x.jsonl",
        GOOD + b'{"text": "na\xefve"}\n',
        "x.jsonl:2: not UTF-8 at byte 12 of the line: 0xef",
    ),
    "Latin-1": ("x.txt", b"plain\n\nna\xefve\n", "x.txt: not UTF-8 at line 3, byte 9: 0xef; convert the file"),
    "Latin-1 after a mark": ("x.txt", b"\xef\xbb\xbfna\xefve\n", "x.txt: not UTF-8 at line 1, byte 5: 0xef"),
    "UTF-16": ("x.txt", "text".encode("utf-16"), "x.txt: not UTF-8 at line 1, byte 0: 0xff"),
    "nothing": ("x.txt", b"", "x.txt: no document in it; leave it out"),
    "white space": ("x.txt", b" \n\n", "x.txt: no document in it"),
    "no line": ("x.jsonl", b"\n", "x.jsonl: no document in it"),
    "nothing, packed": ("x.txt.gz", gzip.compress(b""), "x.txt.gz: no document in it"),
    "gz cut": ("x.txt.gz", gzip.compress(b"some text" * 99)[:-9], "x.txt.gz: cut short or damaged: "),
    "gz damaged": (
        "x.txt.gz",
        gzip.compress(bytes(range(256)))[:20] + b"\xff" * 40,
        "x.txt.gz: cut short or damaged: ",
    ),
    "no gz": ("x.jsonl.gz", GOOD, "x.jsonl.gz: cut short or damaged: Not a gzipped file"),
    "xz cut": ("x.txt.xz", lzma.compress(b"some text" * 99)[:-9], "x.txt.xz: cut short or damaged: "),
    "no xz": ("x.jsonl.xz", GOOD, "x.jsonl.xz: cut short or damaged: Input format not supported"),
    "another kind": ("x.csv", b"text\n", "x.csv: must end in .txt or .jsonl, or in one of these and .gz or .xz"),
    "packed otherwise": ("x.jsonl.zst", b"", "x.jsonl.zst: must end in .txt or .jsonl"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(tmp_path: pathlib.Path, name: str) -> None:
    file, content, message = BROKEN[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(tmp_path / file)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DataError, match=r"x\.txt: no such file"):
        read(tmp_path / "x.txt")
    (tmp_path / "y.txt").mkdir()
    with pytest.raises(DataError, match=r"y\.txt: not a file; name the files themselves"):
        read(tmp_path / "y.txt")


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        ("x.txt", b"short\n\n" + b"word " * 30, "x.txt:3"),
        ("x.txt", b"short\n\n" + b"word\n" * 30, "x.txt:3"),
        ("x.jsonl", GOOD + json.dumps({"text": "w" * 101}).encode(), "x.jsonl:2"),
        ("x.jsonl", GOOD + b" " * 700, "x.jsonl:2"),
    ],
)
def test_a_document_too_long(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, file: str, content: bytes, place: str
) -> None:
    monkeypatch.setattr(text_files, "MAX_DOCUMENT_BYTES", 100)
    monkeypatch.setattr(text_files, "_MAX_LINE_BYTES", 600)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(
        DataError, match=rf"{place}: a \w+ above \d00 bytes; cut it into several documents.*--separator"
    ):
        read(tmp_path / file, separator="")
