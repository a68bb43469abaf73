"""Flat artifacts from anywhere: loaded where they are sound, else refused by one ValueError, in bounded memory."""

import contextlib
import dataclasses
import json
import lzma
import pathlib
import random
import tracemalloc
import zlib

import pytest
import torch

from golfray.core.codec import codec_module
from golfray.core.container import FLAT_MAGIC, Kept, checksum, read_part, unseal, write_part
from golfray.core.exporter import export_state, load_artifact
from golfray.core.settings import ExportSettings, ModelSettings
from golfray.ship.bounded_inflate import inflate
from golfray.ship.foreign_artifact import foreign_state
from golfray.ship.foreign_flat import FlatContent, open_flat

CODECS = {"zlib": 6, "lzma": 1, "zstd": 3, "brotli": 5}
FLAT = ExportSettings(
    format="flat",
    bits_attention=6,
    bits_mlp=4,
    keep_float_max_numel=256,
    scale_floor=0.0,
    clip_mlp="std",
    clip_attention="best",
    overrides="blocks.0.mlp.* group=8 bits=2; tok_emb.weight bits=16",
    shuffle=True,
)


@pytest.fixture(scope="module")
def trained(trained_folder: pathlib.Path) -> dict[str, torch.Tensor]:
    return torch.load(trained_folder / "checkpoint.pt", weights_only=True)


@pytest.fixture
def model(tiny_settings) -> ModelSettings:
    return tiny_settings().model


def artifact_of(state: dict[str, torch.Tensor], codec: str = "zlib") -> bytes:
    return export_state(state, dataclasses.replace(FLAT, codec=codec, codec_level=CODECS[codec]))


def content_of(artifact: bytes) -> tuple[bytes, ...]:
    """The parts of an artifact, whose planes are shuffled."""
    parts, shuffled = unseal(artifact)
    assert shuffled
    return tuple(parts)


def sealed(parts: tuple[bytes, ...], **line: object) -> bytes:
    """An artifact around any parts whose line and CRC32 hold, unless told otherwise."""
    packed = [zlib.compress(part) for part in parts]
    lengths = ",".join(f"{len(part)}:{len(some)}" for part, some in zip(parts, packed, strict=True))
    words = {"codec": "zlib", "version": "1.0", "shuffled": 1, "lengths": lengths, **line}
    text = (FLAT_MAGIC + " ".join(map(str, words.values())) + " ").encode()
    return text + f"{checksum(text, list(parts)):08x}\n".encode() + b"".join(packed)


def spoiled(parts: tuple[bytes, ...], change, place: int = 0) -> bytes:  # type: ignore[no-untyped-def]
    """A sound seal around parts of which one had its table changed."""
    part = parts[place]
    size = int.from_bytes(part[:4], "little")
    table = json.loads(part[4 : 4 + size])
    text = json.dumps(change(table) or table).encode()
    changed = len(text).to_bytes(4, "little") + text + part[4 + size :]
    return sealed((*parts[:place], changed, *parts[place + 1 :]))


@pytest.mark.parametrize("codec", CODECS)
def test_ours_loads_as_core_loads_it(codec: str, trained, model) -> None:
    artifact = artifact_of(trained, codec)
    state, own = foreign_state(artifact, model), load_artifact(artifact)
    assert state.keys() == own.keys() == trained.keys()
    assert all(torch.equal(tensor, own[name]) for name, tensor in state.items())


@pytest.mark.parametrize("codec", CODECS)
def test_cut_anywhere_or_longer(codec: str, trained) -> None:
    artifact = artifact_of(trained, codec)
    for percent in range(100):
        with pytest.raises(ValueError, match="artifact"):
            open_flat(artifact[: len(artifact) * percent // 100], 1 << 20, 50)
    for longer in (artifact[:-1], artifact + b"\0", artifact + artifact):
        with pytest.raises(ValueError, match="artifact"):
            open_flat(longer, 1 << 20, 50)


@pytest.mark.parametrize("codec", CODECS)
def test_any_flipped_bit_is_one_error(codec: str, trained) -> None:
    artifact, chooser = artifact_of(trained, codec), random.Random(4)
    content = FlatContent(content_of(artifact), True)
    places = [*range(80), *(chooser.randrange(len(artifact)) for _ in range(150))]
    for place in places:
        damaged = bytearray(artifact)
        damaged[place] ^= 1 << chooser.randrange(8)
        # Any other exception fails the test. A few bits mean nothing to a codec: what comes of them is the same.
        with contextlib.suppress(ValueError):
            assert open_flat(bytes(damaged), 1 << 20, 50) == content


def put(place: int, value):  # type: ignore[no-untyped-def]
    def change(table: list) -> None:
        table[1][place] = value

    return change


def grow(table: list) -> None:
    for entry in table:
        if entry[0] == "tok_emb.weight":
            entry[3] = "float64"


SPOILERS = {
    "no list": (lambda table: {"a": 1}, "must be lists"),
    "no tensors": (lambda table: [3], "no tensor"),
    "another name": (put(0, "blocks.9.x"), "does not fit the model.*missing"),
    "a number for a name": (put(0, 3), "no tensor"),
    "another shape": (put(1, [3, 5]), "does not fit the model"),
    "a shape that is none": (put(1, "ab"), "no tensor"),
    "an absurd shape": (put(1, [2**39, 2**39]), "longer than its"),
    "a negative shape": (put(1, [-4, -8]), "no tensor"),
    "a fraction": (put(1, [2.5, 2]), "no tensor"),
    "true for a number": (put(1, [True, 2]), "no tensor"),
    "many dimensions": (put(1, [1] * 40), "no tensor"),
    "an unknown dtype": (put(2, "int4"), "no tensor"),
    "code for a dtype": (put(2, "load"), "no tensor"),
    "a list for a dtype": (put(2, ["float32"]), "no tensor"),
    "a dict for a stored dtype": (put(3, {}), "no tensor"),
    "bits beyond": (put(3, 9), "no tensor"),
    "a storage smaller than its tensor": (grow, "longer than its"),
    "a tensor too many": (lambda table: table + [["x", [0], "float32", "float32"]], "at most"),
    "one twice": (lambda table: [*table[:-1], table[0]], "stands twice"),
    "one too few": (lambda table: table[:-1], "does not fit the model.*missing"),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_tables_that_are_not_this_models(name: str, trained, model) -> None:
    change, message = SPOILERS[name]
    with pytest.raises(ValueError, match=message):
        foreign_state(spoiled(content_of(artifact_of(trained)), change, place=1 if change is grow else 0), model)


def test_groups_and_digits_that_do_not_hold(trained, model) -> None:
    parts = content_of(artifact_of(trained))

    def first_quantized(place: int, value: int):  # type: ignore[no-untyped-def]
        def change(table: list) -> None:
            next(entry for entry in table if len(entry) == 6)[place] = value

        return change

    for place, value, message in (
        (4, 1, "longer|belong"),
        (5, 5, "artifact"),
        (5, 7, "no"),
    ):
        with pytest.raises(ValueError, match=message):
            foreign_state(spoiled(parts, first_quantized(place, value)), model)


def test_bytes_that_belong_to_nothing(trained, model) -> None:
    parts = content_of(artifact_of(trained))
    for other, message in (
        (parts[0] + b"\0", "belong to no tensor"),
        (parts[0][:-1], "longer than its"),
        (b"", "table of 0 bytes"),
        (b"\xff\xff\xff\x7f", "longer than it can be"),
        (b"\4\0\0\0nope", "no JSON"),
        (b"\4\0\0\0" + b"[" * 4, "no JSON"),
        ((20_000).to_bytes(4, "little") + b"[" * 20_000, "no JSON"),
        (b"\2\0\0\0[]", "does not fit the model"),
        (parts[1], "stands twice"),
    ):
        with pytest.raises(ValueError, match=message):
            foreign_state(sealed((other, *parts[1:])), model)


def test_planes_that_are_shuffled_otherwise(trained, model) -> None:
    parts = content_of(artifact_of(trained))
    for stride in (b"\0", b"\1", b"\3", b"\xff"):
        for header in (b"BSHF\2", b"BSHF\4"):
            changed = tuple(part.replace(header, b"BSHF" + stride) for part in parts)
            assert changed != parts
            # Another order of bytes would be another model; stride 0 one of zeros.
            with pytest.raises(ValueError, match="bytes are not shuffled by"):
                foreign_state(sealed(changed), model)
    with pytest.raises(ValueError, match="bytes are not shuffled by"):
        foreign_state(sealed(tuple(part.replace(b"BSHF", b"FHSB") for part in parts)), model)
    with pytest.raises(ValueError, match=r"belong to no tensor|not finite"):
        foreign_state(sealed(parts, shuffled=0), model)


def test_weights_that_are_not_finite(trained, model) -> None:
    for name, bad in (("skip_weights", float("nan")), ("blocks.0.attn_scale", float("inf"))):
        plain = dataclasses.replace(FLAT, shuffle=False)
        parts, _ = unseal(export_state({**trained, name: torch.full_like(trained[name], 1.25)}, plain))
        pattern, found = torch.full((4,), 1.25).numpy().tobytes(), torch.tensor([bad]).numpy().tobytes()
        changed = tuple(part.replace(pattern, found + pattern[4:], 1) for part in parts)
        assert sum(a != b for a, b in zip(parts, changed, strict=True)) == 1
        with pytest.raises(ValueError, match=f"{name}: artifact has values that are not finite"):
            foreign_state(sealed(changed, shuffled=0), model)


def test_kept_weights_beyond_the_dtype_that_they_become(trained, model) -> None:
    parts, _ = unseal(export_state(trained, dataclasses.replace(FLAT, shuffle=False)))
    changed = []
    for part in parts:
        stored = {
            name: dataclasses.replace(kept, values=kept.values.double() * 0 + 1e300) if isinstance(kept, Kept) else kept
            for name, kept in read_part(part, False).items()
        }
        changed.append(write_part(stored, {}, False))
    with pytest.raises(ValueError, match="artifact has values beyond float32"):
        foreign_state(sealed(tuple(changed), shuffled=0), model)


def test_the_first_line(trained, model) -> None:
    parts = content_of(artifact_of(trained))
    lengths, packed = [len(part) for part in parts], [len(zlib.compress(part)) for part in parts]

    def said(change: tuple[int, int]) -> str:
        pairs = [*zip(lengths, packed, strict=True)]
        pairs[0] = pairs[0][0] + change[0], pairs[0][1] + change[1]
        return ",".join(f"{length}:{size}" for length, size in pairs)

    for line, message in (
        ({"codec": "gzip"}, "codec is 'gzip'"),
        ({"codec": "../x"}, "first line"),
        ({"lengths": said((10**11, 0))}, "at most"),
        ({"lengths": said((10**13, 0))}, "first line"),
        ({"lengths": said((1, 0))}, "cut short"),
        ({"lengths": said((-1, 0))}, "more than the"),
        ({"lengths": said((0, 1))}, "which says"),
        ({"lengths": said((0, -1))}, "which says"),
        ({"lengths": ""}, "first line"),
        ({"lengths": said((0, 0)) + ","}, "first line"),
        ({"lengths": said((0, 0)) + ",0:0" * 14}, "first line"),
        ({"lengths": said((0, 0)) + ",0:0"}, "cut short"),
        ({"lengths": said((0, 0)).replace(":", ",")}, "first line"),
        ({"shuffled": 2}, "first line"),
        ({"version": "a" * 200}, "first line"),
        ({"codec": "lzma"}, "damaged|cut short"),
    ):
        with pytest.raises(ValueError, match=message):
            foreign_state(sealed(parts, **line), model)
    # One byte of the first part that is said to be the second's.
    pairs = [(lengths[0], packed[0] - 1), (lengths[1], packed[1] + 1), (lengths[2], packed[2])]
    with pytest.raises(ValueError, match=r"cut short|damaged"):
        foreign_state(sealed(parts, lengths=",".join(f"{length}:{size}" for length, size in pairs)), model)
    assert foreign_state(sealed(parts), model).keys() == trained.keys()


def bomb(codec: str, size: int) -> bytes:
    """Zeros, packed without ever being in memory at once where the codec can do that."""
    if codec == "zlib":
        press = zlib.compressobj(9)
        return b"".join(press.compress(bytes(1 << 20)) for _ in range(size >> 20)) + press.flush()
    if codec == "lzma":
        from golfray.core.codec import LZMA_FILTER

        maker = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[LZMA_FILTER])
        return b"".join(maker.compress(bytes(1 << 20)) for _ in range(size >> 20)) + maker.flush()
    module = codec_module(codec)
    return (
        module.ZstdCompressor(level=1).compress(bytes(size))
        if codec == "zstd"
        else module.compress(bytes(size), quality=1)
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_more_memory_than_it_may(codec: str, model) -> None:
    packed, length = bomb(codec, 64 << 20), 1 << 20
    line = f"{FLAT_MAGIC}{codec} 1.0 0 {length}:{len(packed)} "
    artifact = f"{line}{checksum(line.encode(), [bytes(length)]):08x}\n".encode() + packed
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"inflates to more than the 1048576 bytes|at most .* are possible"):
        foreign_state(artifact, model)
    with pytest.raises(ValueError, match=r"more than the 1000 bytes|damaged"):
        inflate(packed, codec, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20


def test_a_codec_that_is_not_installed(trained, model, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    artifact = artifact_of(trained, "brotli")
    monkeypatch.setitem(sys.modules, "brotli", None)
    with pytest.raises(ValueError, match=r"codec brotli needs the package brotli: .+ -m pip install brotli"):
        foreign_state(artifact, model)
