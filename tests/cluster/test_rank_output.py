"""What a process prints goes into a file for a while, from Python and from below it."""

import pathlib
import subprocess
import sys

import pytest

from golfray.cluster.rank_output import output_into, rank_log

ROOT = pathlib.Path(__file__).parents[2]


def run_python(code, *arguments):
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import ctypes, pathlib, sys\nfrom golfray.cluster.rank_output import *\n" + code,
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_printed_meanwhile_and_nothing_else(tmp_path):
    code = """
sys.stdout.write("before without a newline, ")
ctypes.CDLL(None).printf(b"native before, ")
with output_into(pathlib.Path(sys.argv[1])):
    print("python")
    ctypes.CDLL(None).puts(b"native")
    print("error", file=sys.stderr)
print("after")
"""
    done = run_python(code, str(tmp_path / "rank-0.log"))
    assert sorted(done.stdout.replace(", ", "\n").split("\n")) == [
        "",
        "after",
        "before without a newline",
        "native before",
    ]
    assert done.stderr == ""
    assert sorted((tmp_path / "rank-0.log").read_text().splitlines()) == ["error", "native", "python"]


def test_the_last_words_of_a_native_crash(tmp_path):
    code = """
import faulthandler
faulthandler.enable()
with output_into(pathlib.Path(sys.argv[1])):
    ctypes.string_at(0)
"""
    assert run_python(code, str(tmp_path / "rank-0.log")).returncode == -11
    assert "Fatal Python error: Segmentation fault" in (tmp_path / "rank-0.log").read_text()


def test_an_exception_puts_the_output_back_and_a_second_time_appends(tmp_path):
    code = """
for number in range(2):
    try:
        with output_into(pathlib.Path(sys.argv[1])):
            print(number)
            raise ValueError
    except ValueError:
        print("outside")
"""
    assert run_python(code, str(tmp_path / "rank-0.log")).stdout == "outside\noutside\n"
    assert (tmp_path / "rank-0.log").read_text() == "0\n1\n"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError), output_into(rank_log(tmp_path / "missing", 0)):
        pass
