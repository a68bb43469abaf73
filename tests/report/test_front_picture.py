"""The picture of a front: well-formed, with every setting that it says it shows."""

import xml.etree.ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.settings import ExportSettings
from golfray.report.front_picture import front_picture, height, round_scores, round_sizes
from golfray.sweep.export_result import SearchResult, Tried, export_words

SVG = "{http://www.w3.org/2000/svg}"


def result_of(points: list[tuple[int, float]], cap: int) -> SearchResult:
    tried = [
        Tried(ExportSettings(format="flat"), size, {"zlib": size}, 2.0 + added, added, 0.001, 8 if place % 3 else 4)
        for place, (size, added) in enumerate(points)
    ]
    made = SearchResult(tuple(tried), cap, 8, "8 sequences <of> text", False, 2.0, None, b"", None, "", {})
    best = made.best_at(cap)
    return SearchResult(tuple(tried), cap, 8, "8 sequences <of> text", False, 2.0, best, b"", None, "", {})


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1_000, 10**8), st.floats(-0.01, 3)), min_size=1, max_size=30),
    st.integers(500, 10**8),
)
def test_it_is_svg_that_has_all_it_counts_within_its_frame(points, cap) -> None:
    result = result_of(points, cap)
    root = xml.etree.ElementTree.fromstring(front_picture(result, 'a "title" & <more>'))
    titled = [dot for dot in root.iter(f"{SVG}circle") if dot.find(f"{SVG}title") is not None]
    said = " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    assert f"{len(points)} settings, {len(result.front())} on the front" in said
    assert len(titled) == len(points) + len(result.front())
    for dot in root.iter(f"{SVG}circle"):
        assert 80 <= float(dot.get("cx", "nan")) <= 840
        assert 60 <= float(dot.get("cy", "nan")) <= 460
    assert ("chosen" in said) == (result.chosen is not None)


def test_what_looks_better_than_the_float_weights_by_chance_is_within_the_frame_too() -> None:
    root = xml.etree.ElementTree.fromstring(front_picture(result_of([(1_000, -0.002), (2_000, 0.001)], 1_500), "x"))
    assert all(60 <= float(dot.get("cy", "nan")) <= 460 for dot in root.iter(f"{SVG}circle"))


@given(st.floats(1.0, 1e9), st.floats(1.05, 1e4))
def test_sizes_on_the_axis_are_within_it(low, ratio) -> None:
    found = round_sizes(low, low * ratio)
    assert all(low <= size <= low * ratio for size in found)
    assert len(found) <= 14


@given(st.floats(-0.01, 0), st.floats(0.001, 10))
def test_scores_on_the_axis_are_round_and_within_it(low, high) -> None:
    found = round_scores(height(low), height(high))
    assert 0.0 in found
    assert found == sorted(set(found))
    assert all(low - 1e-9 <= score <= high * (1 + 1e-9) for score in found)
    assert len(found) <= 14


def test_a_setting_in_words() -> None:
    export = ExportSettings(
        format="flat", bits_attention=4, clip_attention="std", clip_k_attention=3.1, bits_embedding=16, codec="brotli",
        shuffle=True, gptq=True, group_size=64,
    )  # fmt: skip
    words = export_words(export)
    assert words == (
        "attention 4 bits std 3.1, mlp 8 bits quantile, embedding 16 bits, brotli shuffled, GPTQ, groups of 64"
    )
