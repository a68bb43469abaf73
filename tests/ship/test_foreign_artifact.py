"""Artifacts from anywhere: loaded where they are sound, refused by one ValueError where they are not."""

import contextlib
import io
import pathlib
import pickle
import random
import zipfile
import zlib

import pytest
import torch

from golfray.core.artifact import pack_artifact
from golfray.core.quantize import QUANT_FORMAT
from golfray.ship.foreign_artifact import foreign_state, open_container


def test_we_load_what_plain_torch_saves(artifact: bytes, container: dict, tiny_model) -> None:
    buffer = io.BytesIO()
    torch.save(container, buffer)
    expected = {
        name: integers.float() * container["scales"][name].float()[:, None]
        for name, integers in container["quantized"].items()
    } | {name: tensor.float() for name, tensor in container["passthrough"].items()}
    for known in (zlib.compress(buffer.getvalue(), 1), artifact):
        state = foreign_state(known, tiny_model.settings)
        assert state.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in state.items())


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def test_code_in_an_artifact_is_never_run(artifact: bytes, tmp_path: pathlib.Path, tiny_model) -> None:
    marker = tmp_path / "was_run"
    saved = io.BytesIO()
    torch.save({"__quant_format__": QUANT_FORMAT, "quantized": Payload(marker)}, saved)
    for hostile in (saved.getvalue(), pickle.dumps(Payload(marker))):
        with pytest.raises(ValueError, match="artifact"):
            foreign_state(zlib.compress(hostile), tiny_model.settings)
        assert not marker.exists()
    pickle.loads(pickle.dumps(Payload(marker)))
    assert marker.exists(), "the payload must be one that works"


def test_damaged_content(artifact: bytes, tiny_model) -> None:
    for damaged, message in (
        (b"", "cut short"),
        (b"no zlib at all", "not zlib"),
        (artifact[:-1], "cut short"),
        (artifact[: len(artifact) // 2], "cut short"),
        (artifact + b"\0", "after its end"),
        (artifact + artifact, "after its end"),
        (zlib.compress(b"no container"), "no saved container"),
        (zlib.compress(b""), "no saved container"),
    ):
        with pytest.raises(ValueError, match=message):
            foreign_state(damaged, tiny_model.settings)


def test_zlib_bomb_is_refused_before_it_inflates(tiny_model) -> None:
    bomb = zlib.compressobj(9)
    blocks = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(64)) + bomb.flush()
    with pytest.raises(ValueError, match=r"inflates to more than \d+ bytes"):
        foreign_state(blocks, tiny_model.settings)
    with pytest.raises(ValueError, match="inflates to more than 1000 bytes"):
        open_container(zlib.compress(bytes(1001)), 1000)


def test_zip_bomb_inside_is_refused(artifact: bytes, tiny_model) -> None:
    saved, packed = zipfile.ZipFile(io.BytesIO(zlib.decompress(artifact))), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in saved.namelist():
            archive.writestr(member, saved.read(member) + bytes(1 << 20))
    with pytest.raises(ValueError, match="compressed members"):
        foreign_state(zlib.compress(packed.getvalue()), tiny_model.settings)


def test_random_damage_is_a_value_error_or_loads(artifact: bytes, tiny_model) -> None:
    saved, chooser = zlib.decompress(artifact), random.Random(3)
    for _ in range(60):
        damaged = bytearray(saved)
        for _ in range(chooser.randint(1, 8)):
            # The directory and the pickle stand at the ends; hit them more often than the weights.
            span = chooser.choice([range(600), range(len(damaged) - 4000, len(damaged)), range(len(damaged))])
            damaged[chooser.choice(span)] = chooser.randrange(256)
        # Any other exception fails the test; damage to a weight alone goes unnoticed by anyone but its checksum.
        with contextlib.suppress(ValueError):
            foreign_state(zlib.compress(bytes(damaged), 1), tiny_model.settings)


def first(container: dict, part: str) -> str:
    return next(iter(container[part]))


def drop(container: dict, part: str) -> None:
    del container[part][first(container, part)]


def put(container: dict, part: str, value) -> None:
    container[part][first(container, part)] = value


SPOILERS = {
    "format": (lambda c: c.update(__quant_format__="int4"), "format is 'int4'"),
    "no format": (lambda c: c.pop("__quant_format__"), "format is None"),
    "no part": (lambda c: c.pop("scales"), "each a dict"),
    "part of another type": (lambda c: c.update(quantized=[1]), "each a dict"),
    "missing scale": (lambda c: drop(c, "scales"), "without scale or dtype"),
    "missing dtype": (lambda c: drop(c, "dtypes"), "without scale or dtype"),
    "missing weight": (lambda c: drop(c, "passthrough"), "missing"),
    "unknown weight": (lambda c: c["passthrough"].update({"blocks.9.x": torch.zeros(1)}), "no such tensor"),
    "kept and quantized": (
        lambda c: c["passthrough"].update({first(c, "quantized"): torch.zeros(1)}),
        "weights twice",
    ),
    "unknown dtype": (lambda c: put(c, "dtypes", "int4"), "names the dtype 'int4'"),
    "other shape": (lambda c: c["passthrough"].update(skip_weights=torch.zeros(2, 3)), "does not fit the model"),
    "more scales than rows": (lambda c: put(c, "scales", torch.ones(7, dtype=torch.float16)), "scales of shape"),
    "scales of two dimensions": (lambda c: put(c, "scales", torch.ones(1, 1)), "scales of shape"),
    "whole scales": (lambda c: put(c, "scales", torch.ones(3, dtype=torch.int8)), "scales of shape"),
    "floats for integers": (lambda c: put(c, "quantized", torch.ones(3, 3)), "for torch.float32"),
    "no tensor": (lambda c: put(c, "quantized", 3), "plain contiguous tensors"),
    "sparse": (lambda c: put(c, "passthrough", torch.zeros(3, 3).to_sparse()), "no plain data"),
    "claims far more than it holds": (
        lambda c: put(c, "quantized", torch.zeros(1, dtype=torch.int8).expand(1 << 20, 1 << 20)),
        "plain contiguous tensors",
    ),
    "weights not finite": (lambda c: c["passthrough"]["skip_weights"].fill_(float("nan")), "skip_weights.*not finite"),
    "scales not finite": (lambda c: c["scales"][first(c, "scales")].fill_(float("inf")), "not finite"),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_containers_that_are_not_this_models(name: str, container: dict, tiny_model) -> None:
    spoil, message = SPOILERS[name]
    spoil(container)
    with pytest.raises(ValueError, match=message):
        foreign_state(pack_artifact(container, 1), tiny_model.settings)


def test_other_things_torch_can_save(tiny_model) -> None:
    for other in ([1, 2], torch.zeros(3), {}, {"a": torch.zeros(2)}):
        with pytest.raises(ValueError, match="artifact"):
            foreign_state(pack_artifact(other, 1), tiny_model.settings)  # type: ignore[arg-type]
