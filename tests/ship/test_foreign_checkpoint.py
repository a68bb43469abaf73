"""Checkpoints from anywhere: read bit for bit where they are sound, refused by one line where they are not."""

import collections
import contextlib
import io
import json
import os
import pathlib
import pickle
import random
import zipfile

import pytest
import torch

from golfray.core.model import build_model
from golfray.core.settings import ModelSettings
from golfray.core.trial import CHECKPOINT_NAME
from golfray.ship.foreign_checkpoint import CheckpointError, infer_model, read_checkpoint
from golfray.ship.safetensors_file import SafetensorsFile

MODEL = ModelSettings(vocab_size=20, num_layers=3, model_dim=16, num_heads=4, num_kv_heads=2, mlp_mult=2.5)

# What safetensors 0.8.0 writes for {"b": [[1.5, -2]] bfloat16, "a": [0, 1, 2] float32, "e": (0, 2), "s": 0.25 float16}.
SAFETENSORS = (
    b"\x00\x01\x00\x00\x00\x00\x00\x00"
    b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},'
    b'"e":{"dtype":"F32","shape":[0,2],"data_offsets":[12,12]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[12,16]},'
    b'"s":{"dtype":"F16","shape":[],"data_offsets":[16,18]}} '
    b"\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x00@\xc0?\x00\xc0\x004"
)


def fresh_state(settings: ModelSettings = MODEL, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return {
        name: tensor + 0.01 * torch.randn(tensor.shape).to(tensor.dtype)
        for name, tensor in build_model(settings, dtype, torch.device("cpu")).state_dict().items()
    }


def saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def as_safetensors(state: dict[str, torch.Tensor]) -> bytes:
    kinds = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
    table, planes, end = {}, [], 0
    for name, tensor in state.items():
        plane = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        offsets = [end, end + len(plane)]
        table[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        planes.append(plane)
        end += len(plane)
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(planes)


FORMATS = {"torch": saved, "safetensors": as_safetensors}


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "final_model.pt"


def refusal(file: pathlib.Path, content: bytes) -> str:
    """Why a file is refused, whenever that is seen."""
    file.write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        read_checkpoint(file).state(MODEL)
    message = str(refused.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    return message.removeprefix(f"{file}: ")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_reference_state_dict_is_read_bit_for_bit(form: str, dtype: torch.dtype, file: pathlib.Path) -> None:
    state = fresh_state(dtype=dtype)
    file.write_bytes(FORMATS[form](collections.OrderedDict(reversed(state.items()))))
    checkpoint = read_checkpoint(file)
    assert infer_model(checkpoint) == {
        "vocab_size": 20,
        "num_layers": 3,
        "model_dim": 16,
        "num_heads": 4,
        "num_kv_heads": 2,
        "mlp_mult": 2.5,
        "tie_embeddings": True,
    }
    read = checkpoint.state(MODEL)
    # In the model's order, whatever the file's: an artifact's bytes depend on it.
    assert list(read) == list(state)
    assert all(torch.equal(tensor, state[name]) and tensor.dtype == state[name].dtype for name, tensor in read.items())


@pytest.mark.parametrize("form", FORMATS)
def test_an_untied_model_is_told_by_its_head(form: str, file: pathlib.Path) -> None:
    untied = ModelSettings(**{**vars(MODEL), "tie_embeddings": False, "num_kv_heads": 4, "num_layers": 1})
    file.write_bytes(FORMATS[form](fresh_state(untied)))
    checkpoint = read_checkpoint(file)
    told = infer_model(checkpoint)
    assert (told["tie_embeddings"], told["num_kv_heads"], told["num_layers"]) == (False, 4, 1)
    assert "lm_head.weight" in checkpoint.state(untied)


def test_our_own_checkpoints_and_parameters_are_read_too(trained_folder: pathlib.Path, file: pathlib.Path) -> None:
    own = torch.load(trained_folder / CHECKPOINT_NAME, weights_only=True)
    checkpoint = read_checkpoint(trained_folder / CHECKPOINT_NAME)
    assert {name: tuple(tensor.shape) for name, tensor in own.items()} == checkpoint.shapes
    assert all(torch.equal(checkpoint.load(name), tensor) for name, tensor in own.items())
    file.write_bytes(saved({"a": torch.nn.Parameter(torch.ones(2)), "b": torch.arange(6.0)[2:4]}))
    other = read_checkpoint(file)
    assert other.load("a").tolist() == [1.0, 1.0]
    assert other.load("b").tolist() == [2.0, 3.0]


def test_what_the_safetensors_package_wrote() -> None:
    tensors = SafetensorsFile(io.BytesIO(SAFETENSORS))
    assert tensors.shapes == {"a": (3,), "e": (0, 2), "b": (1, 2), "s": ()}
    assert tensors.load("a").tolist() == [0.0, 1.0, 2.0]
    assert torch.equal(tensors.load("b"), torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16))
    assert tensors.load("e").shape == (0, 2)
    assert torch.equal(tensors.load("s"), torch.tensor(0.25, dtype=torch.float16))


def without(name: str) -> dict[str, torch.Tensor]:
    state = fresh_state()
    del state[name]
    return state


NAN = fresh_state()["blocks.1.mlp.fc.weight"].fill_(float("nan"))
OTHERS = {
    "a missing tensor": (without("skip_weights"), "skip_weights is missing, the model has (1, 16)"),
    "another name": (
        {**without("blocks.2.mlp.fc.weight"), "blocks.2.mlp.up.weight": torch.ones(40, 16)},
        "blocks.2.mlp.fc.weight is missing, the model has (40, 16); blocks.2.mlp.up.weight is (40, 16), the model has "
        "no such tensor",
    ),
    "one turned round": (
        {**fresh_state(), "blocks.1.mlp.fc.weight": torch.ones(16, 40)},
        "blocks.1.mlp.fc.weight is (16, 40), the model has (40, 16)",
    ),
    "a nan": ({**fresh_state(), "blocks.1.mlp.fc.weight": NAN}, "blocks.1.mlp.fc.weight has values that are not fin"),
    "whole numbers": (
        {**fresh_state(), "step": torch.tensor(3)},
        "step is int64, must be float32, bfloat16 or float16",
    ),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", OTHERS)
def test_another_model(form: str, name: str, file: pathlib.Path) -> None:
    state, expected = OTHERS[name]
    assert expected in refusal(file, FORMATS[form](state))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"blocks.0.attn.q_gain": torch.ones(3)}, "3 heads (blocks.0.attn.q_gain) and 8 rows of blocks.0.attn.c_k.we"),
        ({"blocks.0.attn.q_gain": torch.ones(16)}, "heads must be of one even width"),
        ({"blocks.0.attn.c_k.weight": torch.ones(7, 16)}, "4 heads (blocks.0.attn.q_gain) and 7 rows"),
        ({"blocks.0.attn.c_k.weight": torch.ones(12, 16)}, "key/value heads must divide them"),
        ({"blocks.4.attn_scale": torch.ones(16)}, "blocks must be numbered from 0 without a gap"),
        ({"tok_emb.weight": torch.ones(20)}, "tok_emb.weight is of shape (20,): not the reference's model"),
        ({"tok_emb.weight": torch.ones(20, 0)}, "tok_emb.weight is of shape (20, 0): not the reference's model"),
        ({"blocks.0.attn.q_gain": None}, "blocks.0.attn.q_gain is missing: not the reference's model"),
    ],
)
def test_shapes_that_tell_no_model(changes: dict, expected: str, file: pathlib.Path) -> None:
    state = {name: tensor for name, tensor in {**fresh_state(), **changes}.items() if tensor is not None}
    file.write_bytes(saved(state))
    with pytest.raises(CheckpointError) as refused:
        infer_model(read_checkpoint(file))
    assert expected in str(refused.value)


def test_a_wrapped_model_is_told_how_to_be_saved(file: pathlib.Path) -> None:
    file.write_bytes(saved({f"_orig_mod.{name}": tensor for name, tensor in fresh_state().items()}))
    with pytest.raises(CheckpointError, match=r"all names begin with _orig_mod\.: save the state dict of the model in"):
        infer_model(read_checkpoint(file))


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.path,)


def test_code_in_a_checkpoint_is_never_run(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    payload = Payload(tmp_path / "sprung")
    assert "needs posix.mkdir to be read" in refusal(file, saved({**fresh_state(), "x": payload}))
    assert "it is not unpickled" in refusal(file, pickle.dumps(payload))
    old = io.BytesIO()
    torch.save({"x": payload}, old, _use_new_zipfile_serialization=False)
    assert "neither the zip of torch.save nor safetensors" in refusal(file, old.getvalue())
    assert not (tmp_path / "sprung").exists()
    pickle.loads(pickle.dumps(payload))
    assert (tmp_path / "sprung").exists(), "the payload must be one that works"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([torch.ones(2)], "holds a list, must be a state dict"),
        (torch.ones(2), "holds a StoredTensor, must be a state dict"),
        ({"model": {"a": torch.ones(2)}}, "model is a dict; must be a state dict"),
        ({"step": 3}, "step is a int; must be a state dict"),
        ({3: torch.ones(2)}, "has a key that is int, must be text"),
        ({"a": torch.ones(2, 3).T}, "must hold plain contiguous tensors"),
        ({"a": torch.ones(1).expand(1 << 20, 1 << 20)}, "must hold plain contiguous tensors"),
        ({"a": torch.ones(2).to_sparse()}, "needs torch._utils._rebuild_sparse_tensor to be read"),
    ],
)
def test_other_things_that_torch_saves(content: object, expected: str, file: pathlib.Path) -> None:
    assert expected in refusal(file, saved(content))


def test_tensors_that_share_their_bytes(file: pathlib.Path) -> None:
    """A hundred names of one storage: each alone is sound, together they would be a hundred times the file."""
    whole = fresh_state()
    shared = torch.zeros(4000)
    for name in [name for name in whole if name.endswith("resid_mix")]:
        whole[name] = shared[:32].reshape(2, 16)
    assert "has tensors that share their bytes" in refusal(file, saved(whole))


@pytest.mark.parametrize("form", FORMATS)
def test_cut_at_every_hundredth(form: str, file: pathlib.Path) -> None:
    content = FORMATS[form](fresh_state())
    for hundredth in range(100):
        refusal(file, content[: len(content) * hundredth // 100])
    if form == "safetensors":
        refusal(file, content + b"\0")


@pytest.mark.parametrize("form", FORMATS)
def test_random_damage_is_refused_or_leaves_a_model(form: str, file: pathlib.Path) -> None:
    content, chooser = FORMATS[form](fresh_state()), random.Random(4)
    refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(chooser.randint(1, 8)):
            # Tables stand at the ends; hit them more often than the weights.
            span = chooser.choice([range(3000), range(len(damaged) - 4000, len(damaged)), range(len(damaged))])
            damaged[chooser.choice(span)] = chooser.randrange(256)
        file.write_bytes(damaged)
        # Any other exception fails the test.
        with contextlib.suppress(CheckpointError):
            refused += 1
            read_checkpoint(file).state(MODEL)
            refused -= 1
    assert refused > 100


def rezipped(program: bytes, **more: bytes) -> bytes:
    """A file of torch.save whose pickle is another."""
    old, new = zipfile.ZipFile(io.BytesIO(saved({"a": torch.arange(8.0)}))), io.BytesIO()
    with zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            archive.writestr(name, program if name.endswith("data.pkl") else old.read(name))
        for name, content in more.items():
            archive.writestr(name, content)
    return new.getvalue()


class Called:
    """Pickles as a call."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple:
        return self.call  # type: ignore[return-value]


class Claimed:
    """A storage that a pickle claims."""


def claiming(count: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    """A tensor of eight floats that claims to be another."""

    class Claiming(pickle.Pickler):
        def persistent_id(self, found: object) -> object:
            return ("storage", torch.FloatStorage, "0", "cpu", count) if isinstance(found, Claimed) else None

    program = io.BytesIO()
    tensor = Called(
        torch._utils._rebuild_tensor_v2, (Claimed(), offset, shape, strides, False, collections.OrderedDict())
    )
    Claiming(program, 2).dump({"a": tensor})
    return rezipped(program.getvalue())


def table_of(entry: object, data: bytes = bytes(16)) -> bytes:
    text = json.dumps({"a": entry}).encode()
    return len(text).to_bytes(8, "little") + text + data


GREEDY = {
    "bytearray": (rezipped(pickle.dumps({"a": Called(bytearray, (4 << 30,))}, 2)), "needs __builtin__.bytearray"),
    "storage larger than its member": (claiming(1 << 30, (1 << 30,), (1,)), "storage is missing, or of another size"),
    "storage smaller than its tensor": (claiming(8, (1 << 30,), (1,)), "larger than its storage"),
    "storage that ends before its tensor": (claiming(8, (4,), (1,), 5), "larger than its storage"),
    "no size": (claiming(8, (-1,), (1,)), "sizes that no tensor has"),
    "too many dimensions": (claiming(8, (1,) * 3000, (1,) * 3000), "sizes that no tensor has"),
    "a pickle that is too long": (rezipped(b"(" * (1 << 23)), "has a data.pkl of 8,388,608 bytes, at most 4,194,304"),
    "a pickle without end": (rezipped(b"}" * (1 << 19)), "pickle"),
    "tuples in tuples": (rezipped(b")" + b"\x85" * (1 << 18) + b"."), "holds a tuple"),
    "a dict in itself": (rezipped(b"}q\x00X\x01\x00\x00\x00ah\x00s."), "a is a dict"),
    "table longer than the file": ((1 << 60).to_bytes(8, "little") + b"{}", "has a table of 1,152,921,504,606,846,976"),
    "shape of an exabyte": (table_of({"dtype": "F32", "shape": [1 << 30, 1 << 30], "data_offsets": [0, 16]}), "place"),
    "offsets of an exabyte": (
        table_of({"dtype": "F32", "shape": [1 << 30], "data_offsets": [0, 1 << 32]}),
        "must have",
    ),
    "offsets before the table": (table_of({"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}), "no tensor"),
    "a shape of numbers that are none": (
        table_of({"dtype": "F32", "shape": ["4"], "data_offsets": [0, 16]}),
        "no tens",
    ),
    "lists in lists": ((1 << 20).to_bytes(8, "little") + b'{"a":' + b"[" * ((1 << 20) - 5), "cannot be read|no JSON"),
    "a name twice": (
        (len(twice := b'{"a":{},"a":{}}')).to_bytes(8, "little") + twice,
        "a name stands twice",
    ),
}


def deflated() -> bytes:
    new = io.BytesIO()
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 28))
    return new.getvalue()


def long_directory() -> bytes:
    """A directory that claims four gigabytes of a file that is as long: it costs the disk nothing."""
    content = bytearray(saved({"a": torch.ones(2)}))
    # The number stands in the zip64 record, 98 bytes before the end, and in the old one.
    content[-98 + 40 : -98 + 48] = (1 << 31).to_bytes(8, "little")
    return bytes(content)


# Memory that the process may still take once all that it needs is loaded.
READ_WITHIN_BOUNDS = """
import pathlib, resource, sys
from golfray.core.settings import ModelSettings
from golfray.ship.foreign_checkpoint import CheckpointError, read_checkpoint

used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 256 * 2**20,) * 2)
for path in sorted(pathlib.Path(sys.argv[1]).iterdir(), key=lambda path: int(path.name)):
    try:
        read_checkpoint(path).state(ModelSettings(vocab_size=20))
        print("read")
    except CheckpointError as error:
        print(str(error).partition(": ")[2])
"""


def test_what_a_file_claims_costs_no_memory(running_forks, tmp_path: pathlib.Path) -> None:
    hostile = {**GREEDY, "a bomb": (deflated(), "holds compressed members"), "directory": (long_directory(), "")}
    for number, (content, _) in enumerate(hostile.values()):
        (tmp_path / str(number)).write_bytes(content)
    # Four gigabytes and a hole: more than is read at all.
    with (tmp_path / str(len(hostile))).open("wb") as sparse:
        sparse.truncate((1 << 32) + 1)
    code, out, err = running_forks.start(READ_WITHIN_BOUNDS, tmp_path).end()
    assert (code, err) == (0, "")
    *lines, largest = out.splitlines()
    assert largest == "has 4,294,967,297 bytes, at most 4,294,967,296 are read"
    for (name, (_, expected)), line in zip(hostile.items(), lines, strict=True):
        assert line != "read", name
        assert any(part in line for part in expected.split("|")), f"{name}: {line}"


def test_paths_that_are_no_files(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, expected in (
        (tmp_path / "absent.pt", "cannot be read: No such file or directory"),
        (tmp_path / "pipe", "is no file"),
        (pathlib.Path("/dev/zero"), "is no file"),
        (tmp_path, "is no file"),
    ):
        with pytest.raises(CheckpointError) as refused:
            read_checkpoint(path)
        assert str(refused.value) == f"{path}: {expected}"
