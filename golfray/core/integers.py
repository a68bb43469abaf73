"""Small integers as bytes: one or several a byte, whichever compresses better."""

import zlib

import numpy

# A byte holds 1 to 5 digits of the base beside: all 256 values, or half as many magnitudes and a mark for the rest.
BASES = {1: 256, 2: 16, 3: 6, 4: 4, 5: 3}


def pack_integers(codes: numpy.ndarray, digits: int) -> tuple[bytes, bytes]:
    """Int8 codes of any shape, in row-major order, as ``digits`` to a byte, and those that no digit can hold.

    One a byte is the int8 itself. Else a digit is c + h for -h <= c <= h, and 2 h + 1 for what is beyond, which stands
    among the second bytes as int8. Raises ``ValueError`` where the base leaves no digit for what is beyond.
    """
    flat = codes.reshape(-1)
    if digits == 1:
        return flat.tobytes(), b""
    base = BASES[digits]
    half = (base - 1) // 2
    beyond = numpy.abs(flat.astype(numpy.int16)) > half
    if 2 * half + 1 == base and bool(beyond.any()):
        raise ValueError(f"{digits} integers a byte can only hold -{half} to {half}")
    padded = numpy.zeros(-(-len(flat) // digits) * digits, numpy.uint8)
    padded[: len(flat)] = numpy.where(beyond, 2 * half + 1, flat + half)
    packed = numpy.zeros(len(padded) // digits, numpy.uint8)
    for place in range(digits):
        packed = packed * numpy.uint8(base % 256) + padded[place::digits]
    return packed.tobytes(), flat[beyond].tobytes()


def packed_bytes(count: int, digits: int) -> int:
    """Length of the first bytes of :func:`pack_integers` for ``count`` codes."""
    return -(-count // digits)


def unpack_digits(packed: bytes, count: int, digits: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Int8 codes, flat, and a mask of those that no digit held, whose values are still to be filled in."""
    flat = numpy.frombuffer(packed, numpy.uint8)
    if digits == 1:
        return flat.view(numpy.int8).copy(), numpy.zeros(count, bool)
    base = BASES[digits]
    half = (base - 1) // 2
    places = numpy.empty((len(flat), digits), numpy.uint8)
    for place in reversed(range(digits)):
        places[:, place] = flat % base
        flat = flat // base
    found = places.reshape(-1)[:count]
    return found.view(numpy.int8) - numpy.int8(half), found == 2 * half + 1


def best_digits(codes: numpy.ndarray, codec: str, level: int) -> int:
    """How many to a byte, 1 to 5, make the smallest plane.

    Measured on the whole plane: with zlib itself where that is the codec, else with a Huffman code alone, in which the
    slower codecs also end where weights leave them nothing to match.
    """
    sizes = {}
    for digits in BASES:
        try:
            packed, beyond = pack_integers(codes, digits)
        except ValueError:
            continue
        strategy = zlib.Z_FILTERED if codec == "zlib" else zlib.Z_HUFFMAN_ONLY
        press = zlib.compressobj(level if codec == "zlib" else 1, zlib.DEFLATED, 15, 9, strategy)
        sizes[digits] = len(press.compress(packed) + press.compress(beyond) + press.flush())
    return min(sizes, key=lambda digits: (sizes[digits], digits))
