"""Small integers as bytes: one or several a byte, whichever compresses better."""

import zlib

import numpy

# A byte holds 1 to 5 digits of the base beside: all 256 values, or half as many magnitudes and a mark for the rest.
BASES = {1: 256, 2: 16, 3: 6, 4: 4, 5: 3}
MEASURED = 2**17


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

    Measured on the beginning of the plane: with a Huffman code alone, in which all codecs end where weights leave them
    nothing to match. What is smallest so is held against one a byte: with zlib itself where that is the codec.
    """
    begun, sizes = codes.reshape(-1)[:MEASURED], {}

    def measure(packed: bytes, beyond: bytes, strength: int, strategy: int) -> int:
        press = zlib.compressobj(strength, zlib.DEFLATED, 15, 9, strategy)
        return len(press.compress(packed) + press.compress(beyond) + press.flush())

    magnitudes = numpy.abs(codes.astype(numpy.int16))
    for digits, base in BASES.items():
        half = 128 if digits == 1 else (base - 1) // 2
        beyond = numpy.count_nonzero(magnitudes > half)
        # Bytes among which codecs find chance matches cost more than their Huffman code says.
        if beyond == 0 or (2 * half + 1 < base and beyond * 16 <= codes.size):
            sizes[digits] = measure(*pack_integers(begun, digits), 1, zlib.Z_HUFFMAN_ONLY)
    best = min(sizes, key=lambda digits: (sizes[digits], digits))
    if codec == "zlib" and best != 1:
        one, several = (measure(*pack_integers(begun, digits), level, zlib.Z_FILTERED) for digits in (1, best))
        return best if several < one else 1
    return best
