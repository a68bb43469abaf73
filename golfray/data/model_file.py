"""What a SentencePiece model file says that the library does not tell: the type of each piece and how text is cleaned.

The file is a protocol buffer of sentencepiece_model.proto (SentencePiece 0.2): ModelProto holds the pieces (field 1),
trainer_spec (2) and normalizer_spec (3), and a denormalizer_spec (5) where decoding changes the text again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from golfray.data.errors import DataError

USER_DEFINED = 4  # SentencePiece.Type; NORMAL is 1 and the default


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """``piece_types`` is one number a piece (SentencePiece.Type); the rest are the specifications' own fields."""

    piece_types: list[int]
    normalizer: str
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    treat_whitespace_as_suffix: bool
    changes_decoded_text: bool


def read_model_facts(model: bytes) -> ModelFacts:
    """Facts of a serialized model. Raises ``DataError`` where it is no protocol buffer of that kind."""
    types: list[int] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    denormalizer: dict[int, int | bytes] = {}
    try:
        for field, value in _fields(model):
            match field, value:
                case 1, bytes():
                    types.append(_as_int(dict(_fields(value)).get(3, 1)))
                case 2, bytes():
                    trainer = dict(_fields(value))
                case 3, bytes():
                    normalizer = dict(_fields(value))
                case 5, bytes():
                    denormalizer = dict(_fields(value))
        name = normalizer.get(1, b"")
        return ModelFacts(
            piece_types=types,
            normalizer=name.decode("utf-8") if isinstance(name, bytes) else "",
            add_dummy_prefix=bool(normalizer.get(3, True)),
            remove_extra_whitespaces=bool(normalizer.get(4, True)),
            escape_whitespaces=bool(normalizer.get(5, True)),
            treat_whitespace_as_suffix=bool(trainer.get(24, False)),
            changes_decoded_text=bool(denormalizer.get(2, b"")),
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise DataError(f"not a SentencePiece model: {error}") from error


def _as_int(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values: integers as they are, strings and messages as bytes, fixed-width numbers as bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        field, kind = key >> 3, key & 7
        if kind == 0:
            number, position = _varint(message, position)
            yield field, number
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise IndexError(f"a field of the unknown kind {kind} at byte {position}")
        if position + size > len(message):
            raise IndexError(f"a field of {size} bytes at byte {position} of {len(message)}")
        yield field, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of 7 bits a byte, least first, and the position behind it."""
    number = shift = 0
    while True:
        if position >= len(message):
            raise IndexError(f"it ends within a number at byte {position}")
        byte = message[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if not byte & 0x80:
            return number, position
        shift += 7
