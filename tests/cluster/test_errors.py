"""One line and one name for an exception: what ran out, what type, which place of our own code."""

import errno
import json
import pathlib

import numpy
import pytest
import torch

from golfray.cluster.errors import describe_error, error_identity, is_own

HERE = pathlib.Path(__file__).name


def caught(function, *arguments):
    with pytest.raises(Exception) as found:  # noqa: PT011 - which one is what the test is about
        function(*arguments)
    return found.value


def line_of(function):
    return function.__code__.co_firstlineno + 1


def refuse():
    raise ValueError("no\nand more lines")


def test_type_first_line_and_place():
    error = caught(refuse)
    assert describe_error(error) == f"ValueError: no ({HERE}:{line_of(refuse)})"
    assert error_identity(error) == f"ValueError at {HERE}:{line_of(refuse)}"


def read_json():
    json.loads("{")


def test_the_place_is_ours_though_the_library_raised():
    assert error_identity(caught(read_json)) == f"JSONDecodeError at {HERE}:{line_of(read_json)}"


def test_an_exception_without_words_or_place():
    assert describe_error(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert error_identity(KeyboardInterrupt()) == "KeyboardInterrupt"


def of_numpy():
    numpy.empty(2**50, dtype=numpy.uint8)


def of_torch():
    torch.empty(2**50, dtype=torch.uint8)


def of_the_system():
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize("function", [of_numpy, of_torch, of_the_system])
def test_memory_of_the_host_is_called_that(function):
    error = caught(function)
    assert describe_error(error).startswith(f"host memory exhausted: {type(error).__name__}: ")
    assert error_identity(error) == f"host memory exhausted at {HERE}:{line_of(function)}"


def of_the_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_memory_of_the_gpu_is_called_that():
    error = caught(of_the_gpu)
    assert describe_error(error).startswith("GPU memory exhausted: OutOfMemoryError: CUDA out of memory. Tried to ")
    assert error_identity(error) == f"GPU memory exhausted at {HERE}:{line_of(of_the_gpu)}"


def test_what_is_our_own_code():
    import golfray.core.shards

    assert is_own(golfray.core.shards.__file__)
    assert is_own(__file__)
    for foreign in (json.__file__, torch.__file__, "<frozen runpy>"):
        assert not is_own(foreign)
