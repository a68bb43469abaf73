"""The shipped file: what torch itself finds in it, the same bytes for the same content, written whole or not at all."""

import copy
import io
import pathlib
import subprocess
import sys
import zlib

import torch

from golfray.core.artifact import pack_artifact, unpack_artifact, write_atomically
from golfray.core.quantize import QUANT_FORMAT, dequantize_state

KEYS = ["__quant_format__", "quantized", "scales", "dtypes", "passthrough", "qmeta"]


def test_plain_torch_loads_our_artifact(artifact: bytes, tiny_model) -> None:
    container = torch.load(io.BytesIO(zlib.decompress(artifact)), weights_only=True)
    assert list(container) == KEYS
    assert container["__quant_format__"] == QUANT_FORMAT
    names = list(tiny_model.state_dict())
    assert sorted([*container["quantized"], *container["passthrough"]]) == sorted(names)
    assert list(container["quantized"]) == [name for name in names if name in container["quantized"]]
    for name, integers in container["quantized"].items():
        assert integers.dtype == torch.int8
        assert container["scales"][name].dtype == torch.float16
        assert container["scales"][name].shape == integers.shape[:1]
        assert container["dtypes"][name] == "float32"
        assert container["qmeta"][name] == {"scheme": "per_row", "axis": 0}


def test_same_container_same_bytes(artifact: bytes, container: dict) -> None:
    assert pack_artifact(container, 9) == pack_artifact(copy.deepcopy(container), 9)
    assert len(pack_artifact(container, 1)) > len(artifact)


def test_empty_parts_are_a_container() -> None:
    empty = {"__quant_format__": QUANT_FORMAT, "quantized": {}, "scales": {}, "dtypes": {}, "passthrough": {}}
    assert dequantize_state(unpack_artifact(pack_artifact(empty, 9))) == {}


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """The limit on the size of a file is the one way to have a write fail without a disk of one's own."""
    path = tmp_path / "artifact"
    write_atomically(path, b"before")
    code = (
        "import pathlib, resource, signal, sys; from golfray.core.artifact import write_atomically;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "write_atomically(pathlib.Path(sys.argv[1]), bytes(5000))"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"OSError: [Errno 27] File too large: '{path}'"
    assert [each.name for each in tmp_path.iterdir()] == ["artifact"]
    assert path.read_bytes() == b"before"


def test_write_atomically_leaves_no_part(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
