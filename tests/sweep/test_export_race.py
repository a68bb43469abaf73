"""The race, the landing and the front of an export search, on laws that are known."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.settings import ExportSettings
from golfray.sweep.export_landing import CLOSE, knobs, land_below, turned
from golfray.sweep.export_proposals import choose_combinations, propose
from golfray.sweep.export_race import Round, above_front, plan_rounds, run_race, survivors
from golfray.sweep.export_result import SearchResult, Tried, front_of
from golfray.sweep.export_space import CLASSES, ExportSpace, base_export, class_choices, largest, shortest_k

FLAT = ExportSettings(format="flat")


def tried(size: int, score: float, **fields) -> Tried:
    return Tried(
        FLAT, size, **{"codecs": {"zlib": size}, "sequences": 8, **fields}, bits_per_byte=score, added=score, error=0.1
    )


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), min_size=1, max_size=40), st.integers(1, 60))
def test_the_front_is_what_no_other_beats_and_answers_for_every_size(points, most) -> None:
    found = [tried(size, float(score)) for size, score in points]
    front = front_of(found, 8)
    for before, after in itertools.pairwise(front):
        assert before.bytes < after.bytes
        assert before.bits_per_byte > after.bits_per_byte
    result = SearchResult(tuple(found), most, 8, "", False, 0.0, None, b"", None, "", {})
    fitting = [each.bits_per_byte for each in found if each.bytes <= most]
    best = result.best_at(most)
    assert (best is None) == (not fitting)
    if best is not None:
        assert best.bytes <= most
        assert best.bits_per_byte == min(fitting)


def test_what_is_scored_in_part_is_not_on_the_front() -> None:
    found = [tried(10, 1.5, sequences=4), tried(20, 2.0)]
    assert front_of(found, 8) == [found[1]]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), min_size=1, max_size=30))
def test_above_the_front_is_the_distance_to_the_best_that_is_no_larger(points) -> None:
    sizes, scores = [size for size, _ in points], [float(score) for _, score in points]
    for place, distance in enumerate(above_front(sizes, scores)):
        assert distance == scores[place] - min(score for size, score in points if size <= sizes[place])


@given(
    st.lists(st.tuples(st.integers(50, 150), st.floats(0, 1)), min_size=1, max_size=30, unique=True),
    st.integers(1, 12),
)
def test_the_best_that_fits_always_goes_on(points, places) -> None:
    sizes, scores = [size for size, _ in points], [score for _, score in points]
    kept = survivors(sizes, scores, 100, places)
    assert len(kept) == len(set(kept)) == min(places, len(points))
    fitting = [place for place in range(len(points)) if sizes[place] <= 100]
    exact = [place for place in range(len(points)) if 100 < sizes[place] <= 101]
    if fitting and not exact:
        best = min(scores[place] for place in fitting)
        assert any(scores[place] == best for place in kept if sizes[place] <= 100)


def test_what_goes_on_is_near_the_front_at_every_size() -> None:
    """A hundred settings on a front over a factor of ten in size, and as many far above it."""
    sizes = [round(100 * 10 ** (place / 99)) for place in range(100)] * 2
    scores = [1.0 - size / 2000 for size in sizes[:100]] + [2.0] * 100
    kept = survivors(sizes, scores, 150, 16)
    assert len(set(kept)) == 16
    assert max(kept) < 100
    others = sorted(sizes[place] for place in kept[8:])
    assert all(after < 1.9 * before for before, after in itertools.pairwise([100, *others, 1000]))
    # Whatever the sizes: one, the same, absurd.
    assert survivors([5], [1.0], 150, 4) == [0]
    assert sorted(survivors([7, 7, 7], [1.0, 2.0, 3.0], 150, 3)) == [0, 1, 2]
    assert len(survivors([1, 2**60, 3], [1.0, 2.0, 3.0], 150, 2)) == 2


def test_a_race_finds_the_winner_for_a_fraction_of_the_scores() -> None:
    sizes = [100 + 13 * place % 97 for place in range(200)]
    true = [1.0 + ((place * 37) % 200) / 500 for place in range(200)]
    spent = []

    def score(place: int, sequences: int) -> float:
        spent.append(place)
        return true[place] + math.sin(place * sequences) / (200 * math.sqrt(sequences))

    rounds = plan_rounds(200, 128)
    assert [each.sequences for each in rounds] == [8, 24, 64, 128]
    assert [each.places for each in rounds] == [200, 50, 16, 16]
    last = run_race(200, rounds, 150, sizes.__getitem__, score)
    assert len(spent) == 282
    winner = min((place for place in range(200) if sizes[place] <= 150), key=true.__getitem__)
    assert winner in last


def test_a_race_of_one_and_of_few_sequences() -> None:
    assert plan_rounds(1, 2) == [Round(1, 1), Round(1, 1), Round(1, 1), Round(2, 1)]
    assert run_race(1, plan_rounds(1, 2), 5, lambda place: 9, lambda place, sequences: 1.0) == [0]


@settings(max_examples=200)
@given(st.integers(1_000, 10_000_000), st.floats(0.05, 20), st.floats(0.2, 5), st.floats(0.0, 0.5), st.floats(0.01, 4))
def test_k_lands_just_below_the_cap(cap, start, weights, fixed, slope_error) -> None:
    """Sizes that fall by a bit a weight for each doubling, down to what no step changes."""
    scale = cap / 100

    def size_of(factor: float) -> int:
        return round(fixed * cap + scale * weights * math.log2(1 + start * 100 / factor))

    calls = []

    def counted(factor: float) -> int:
        calls.append(factor)
        return size_of(factor)

    found = land_below(counted, cap, size_of(1.0), scale * weights * slope_error)
    if size_of(2.0**-12) > cap >= size_of(2.0**12) and found is not None:
        assert found[1] == size_of(found[0]) <= cap
        assert found[1] >= cap * (1 - CLOSE) or len(calls) >= 7
    assert len(calls) <= 8


def test_nothing_lands_below_a_cap_that_nothing_reaches() -> None:
    assert land_below(lambda factor: 200, 100, 200, 10.0) is None


def test_the_knob_turns_what_is_clipped_at_deviations_alone() -> None:
    export = dataclasses.replace(
        FLAT, clip_attention="std", clip_mlp="max", clip_embedding="std", bits_embedding=16, clip_k_attention=3.0
    )
    assert knobs(export) == ("attention",)
    assert turned(export, knobs(export), 2.0) == dataclasses.replace(export, clip_k_attention=6.0)
    assert knobs(dataclasses.replace(export, clip_attention="max")) == ()


@pytest.mark.parametrize("gptq", [False, True])
@pytest.mark.parametrize("kind", CLASSES)
def test_k_holds_the_tail_of_each_width_and_steps_are_no_wider_than_they_should_be(kind, gptq) -> None:
    choices = class_choices(ExportSpace(), kind, {"gptq": gptq, "group_size": 0})
    deviations = [each for each in choices if each.get(f"clip_{kind}") == "std"]
    assert {each[f"bits_{kind}"] for each in choices} == set(getattr(ExportSpace(), f"bits_{kind}"))
    for each in deviations:
        bits, k = each[f"bits_{kind}"], each[f"clip_k_{kind}"]
        assert shortest_k(bits) * 0.999 <= k <= 1.51 * largest(bits)
    assert len({tuple(each.items()) for each in choices}) == len(choices)


@settings(max_examples=60)
@given(
    st.sets(st.sampled_from([2, 3, 4, 5, 6, 7, 8, 16, 32]), min_size=1),
    st.sets(st.sampled_from(["quantile", "max", "std", "best"]), min_size=1),
    st.tuples(st.floats(0.1, 50), st.floats(1, 10)),
    st.booleans(),
    st.sampled_from([(0,), (64,), (0, 64)]),
)
def test_a_restricted_space_keeps_to_its_restrictions(bits, clips, k, gptq, groups) -> None:
    space = ExportSpace(
        bits_mlp=tuple(bits), clips=tuple(clips), k=(k[0], k[0] * k[1]), gptq=(gptq,), group_sizes=groups
    )
    for variant in space.variants():
        choices = class_choices(space, "mlp", variant)
        assert choices
        for choice in choices:
            assert choice["bits_mlp"] in bits
            assert choice.get("clip_mlp", "kept") in {*clips, "kept"}
            if "clip_k_mlp" in choice:
                assert k[0] * 0.999 <= choice["clip_k_mlp"] <= k[0] * k[1] * 1.001


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bits_mlp", (9,)),
        ("bits_attention", ()),
        ("clips", ("median",)),
        ("k", (3.0, 2.0)),
        ("k", (0.0, 2.0)),
        ("k", (1.0, math.inf)),
        ("group_sizes", (-1,)),
        ("codecs", ("bzip2",)),
    ],
)
def test_a_space_of_what_no_export_has_is_refused(field, value) -> None:
    with pytest.raises(ValueError, match=f"export.search.{field}"):
        ExportSpace(**{field: value})


def test_half_of_what_is_proposed_lies_near_the_cap_and_the_rest_everywhere() -> None:
    sizes = [float(size) for size in range(1_000, 100_000, 37)]
    scores = [1 / size + (place % 7) / 1e6 for place, size in enumerate(sizes)]
    chosen = [sizes[place] for place in choose_combinations(sizes, scores, 50_000, 100)]
    assert len(chosen) == len(set(chosen)) == 100
    assert sum(40_000 <= size <= 55_000 for size in chosen) >= 50
    assert min(chosen) < 2_000
    assert max(chosen) > 65_000


def test_proposals_follow_what_classes_cost_alone() -> None:
    """A law in which bits of attention are worth nothing: no proposal near the cap spends any on it."""
    worth = {"attention": 0.0, "mlp": 1.0, "embedding": 1.0}

    def probe(kind: str, export: ExportSettings) -> tuple[float, float]:
        bits = getattr(export, f"bits_{kind}")
        return 100.0 * bits, 2.0 + worth[kind] * 4.0**-bits

    space = ExportSpace(clips=("max",), gptq=(False,), group_sizes=(0,))
    found = propose(base_export(ExportSettings()), space, 20, 1_400, probe)
    assert len(found) == len(set(found)) == 20
    near = [each for each in found if each.bits_attention + each.bits_mlp + each.bits_embedding == 14]
    assert any((each.bits_attention, each.bits_mlp, each.bits_embedding) == (2, 6, 6) for each in near)


@pytest.mark.parametrize("wanted", [1, 8, 200])
def test_a_cap_beyond_all_sizes_is_as_good_as_the_nearest_of_them(wanted: int) -> None:
    sizes = [1000.0 * 1.01**place for place in range(500)]
    scores = [1.0 / size for size in sizes]

    def nearest(max_bytes: int, end: float) -> bool:
        near = [place for place in range(500) if 0.8 <= sizes[place] / end <= 1.1]
        chosen = choose_combinations(sizes, scores, max_bytes, wanted)
        return len(set(chosen)) == wanted and len(set(chosen) & set(near)) >= min((wanted + 1) // 2, len(near))

    assert nearest(10**18, max(sizes))
    assert nearest(1, min(sizes))


def test_more_tries_than_there_are_combinations_are_all_of_them() -> None:
    sizes = [float(size) for size in range(1_000, 1_500)]
    assert sorted(choose_combinations(sizes, [1.0 / size for size in sizes], 1_200, 10**20)) == list(range(500))
