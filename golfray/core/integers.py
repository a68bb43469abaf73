"""Small integers as bytes: one or several a byte, whichever compresses better."""

import itertools
import zlib

import numpy

from golfray.core.codec import deflate

# Digits of which base make a byte, by how many there are; a digit is the integer plus half of the base.
BASES = {1: 256, 2: 16, 3: 6, 4: 4, 5: 3}
MEASURED = 2**17


def largest_digit(digits: int) -> int:
    """Largest magnitude that a digit holds."""
    return 128 if digits == 1 else (BASES[digits] - 1) // 2


def pack_integers(codes: numpy.ndarray, digits: int) -> tuple[bytes, bytes]:
    """Int8 codes of any shape, in row-major order, as ``digits`` to a byte, and those that no digit can hold.

    One a byte is the int8 itself. Else, with h the largest magnitude, a digit is c + h, and 2 h + 1 for what is beyond:
    that stands among the second bytes as int8. Base 3 has no digit left for what is beyond.
    """
    flat, half = codes.reshape(-1), largest_digit(digits)
    if digits == 1:
        return flat.tobytes(), b""
    beyond = (flat > half) | (flat < -half)
    padded = numpy.zeros(-(-len(flat) // digits) * digits, numpy.uint8)
    padded[: len(flat)] = numpy.where(beyond, 2 * half + 1, flat + half)
    places = padded.reshape(-1, digits)
    packed = places[:, 0]
    for place in range(1, digits):
        packed = packed * numpy.uint8(BASES[digits]) + places[:, place]
    return packed.tobytes(), flat[beyond].tobytes()


def unpack_digits(packed: bytes, count: int, digits: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Int8 codes, flat, and a mask of those that no digit held, whose values are still to be filled in."""
    flat = numpy.frombuffer(packed, numpy.uint8)
    if digits == 1:
        return flat.view(numpy.int8).copy(), numpy.zeros(count, bool)
    places = numpy.empty((len(flat), digits), numpy.uint8)
    for place in reversed(range(digits)):
        places[:, place] = flat % BASES[digits]
        flat = flat // BASES[digits]
    half, found = largest_digit(digits), places.reshape(-1)[:count]
    return found.view(numpy.int8) - numpy.int8(half), found == 2 * half + 1


def best_digits(tensors: list[numpy.ndarray], codec: str, level: int) -> int:
    """How many to a byte, 1 to 5 and the same for all of some tensors, make their planes smallest.

    Measured on the beginning of each plane: with a Huffman code alone, in which all codecs end where weights leave them
    nothing to match. What is smallest so is held against one a byte: with zlib itself where that is the codec.
    """
    flat, sizes = [codes.reshape(-1) for codes in tensors], {}
    begun = [codes[: MEASURED // len(flat)] for codes in flat]

    def measure(digits: int, level: int, strategy: int) -> int:
        planes = zip(*(pack_integers(codes, digits) for codes in begun), strict=True)
        return len(deflate(b"".join(itertools.chain(*planes)), level, strategy))

    for digits, base in BASES.items():
        half = largest_digit(digits)
        beyond = sum(numpy.count_nonzero((codes > half) | (codes < -half)) for codes in flat)
        # Bytes among which codecs find chance matches cost more than their Huffman code says.
        if beyond * 16 <= sum(codes.size for codes in flat) * (2 * half + 1 < base):
            sizes[digits] = measure(digits, 1, zlib.Z_HUFFMAN_ONLY)
    # Near ties go to fewer bytes: codecs find fewer chance matches in them, and need less time.
    best = min(sizes, key=lambda digits: sizes[digits] * (1 - 0.002 * digits))
    if codec == "zlib" and measure(1, level, zlib.Z_FILTERED) <= measure(best, level, zlib.Z_FILTERED):
        return 1
    return best
