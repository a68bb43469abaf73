import pytest

from golfray.config.sizes import count_text, size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (254_470, "254.5 kB"),
        (16_000_000, "16.0 MB"),
        (16_220_000_000, "16.2 GB"),
        (4 * 10**12, "4,000.0 GB"),
    ],
)
def test_sizes_are_decimal_as_the_cap_is(size: int, text: str) -> None:
    assert size_text(size) == text


def test_one_thing_and_several() -> None:
    said = [count_text(count, "trial") for count in (0, 1, 2, 2000)]
    assert said == ["0 trials", "1 trial", "2 trials", "2,000 trials"]
