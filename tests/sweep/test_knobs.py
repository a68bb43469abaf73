import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from golfray.sweep.knobs import Choice, FloatRange, IntRange, Knob, OutOfRange, parameters_of, params_at, values_at

finite = st.floats(-1e6, 1e6)


@st.composite
def float_knobs(draw: st.DrawFn) -> Knob:
    complement = draw(st.booleans())
    log = draw(st.booleans())
    low, high = sorted(draw(st.lists(st.floats(1e-4, 0.999), min_size=2, max_size=2, unique=True)))
    assume(high - low > 1e-6)
    return Knob("a.b", FloatRange(low, high, log), complement, or_zero=not complement and draw(st.booleans()))


@st.composite
def int_knobs(draw: st.DrawFn) -> Knob:
    low, step, count = draw(st.integers(1, 100)), draw(st.integers(1, 7)), draw(st.integers(1, 9))
    return Knob("a.b", IntRange(low, low + step * count, step=step), or_zero=draw(st.booleans()))


knobs = float_knobs() | int_knobs() | st.just(Knob("a.b", Choice(("x", 1, 1.0, True, None))))


def draw_value(data: st.DataObject, knob: Knob) -> object:
    domain = knob.domain
    if knob.or_zero and data.draw(st.booleans()):
        return 0 if isinstance(domain, IntRange) else 0.0
    if isinstance(domain, FloatRange):
        return data.draw(st.floats(domain.low, domain.high))
    if isinstance(domain, IntRange):
        return data.draw(st.sampled_from(range(domain.low, domain.high + 1, domain.step)))
    return data.draw(st.sampled_from(domain.choices))


@given(knobs, st.data())
def test_value_to_params_and_back(knob: Knob, data: st.DataObject) -> None:
    value = draw_value(data, knob)
    params = knob.params(value)
    assert params.keys() == knob.parameters.keys()
    assert all(knob.parameters[name].contains(point) for name, point in params.items())
    back = knob.value(params)
    assert type(back) is type(value)
    assert back == value or (isinstance(value, float) and math.isclose(back, value, rel_tol=1e-9))


@given(float_knobs(), st.data())
def test_any_point_of_the_sampler_is_a_value_of_the_knob(knob: Knob, data: st.DataObject) -> None:
    params = {
        name: data.draw(st.floats(searched.low, searched.high) if isinstance(searched, FloatRange) else st.booleans())
        for name, searched in knob.parameters.items()
    }
    value = knob.value(params)
    if knob.or_zero and not params[knob.switch]:
        assert value == 0.0
    else:
        assert knob.domain.low <= value <= knob.domain.high


@given(float_knobs(), finite)
def test_values_outside_are_refused_with_the_range(knob: Knob, value: float) -> None:
    assume(not knob.domain.low * (1 - 1e-6) <= value <= knob.domain.high * (1 + 1e-6) and value != 0)
    with pytest.raises(OutOfRange, match=r"a\.b=.* is outside"):
        knob.params(value)


def test_complement_keeps_the_momentum_of_the_preset_exactly() -> None:
    knob = Knob("muon.momentum_end", FloatRange(0.9, 0.995, log=True), complement=True)
    assert knob.value(knob.params(0.95)) == 0.95
    assert knob.params(0.995) == {"1 - muon.momentum_end": knob.parameters["1 - muon.momentum_end"].low}


def test_zero_stands_beside_the_range_with_the_unused_number_in_its_middle() -> None:
    knob = Knob("muon.weight_decay", FloatRange(0.01, 0.16, log=True), or_zero=True)
    assert knob.params(0.0) == {"muon.weight_decay": pytest.approx(0.04), "muon.weight_decay > 0": False}
    assert knob.params(0.02) == {"muon.weight_decay": 0.02, "muon.weight_decay > 0": True}


@given(st.floats(0.5, 0.9), st.floats(0.5, 0.9))
def test_at_most_applies_the_smaller(start: float, end: float) -> None:
    space = [Knob("start", FloatRange(0.5, 0.9), at_most="end"), Knob("end", FloatRange(0.5, 0.9))]
    assert values_at(space, {"start": start, "end": end}) == {"start": min(start, end), "end": end}
    if start <= end:
        assert params_at(space, {"start": start, "end": end}) == {"start": start, "end": end}
    else:
        with pytest.raises(OutOfRange, match="is above end"):
            params_at(space, {"start": start, "end": end})


def test_parameters_keep_the_order_of_the_knobs() -> None:
    space = [Knob("b", IntRange(1, 2)), Knob("a", FloatRange(1, 2), or_zero=True)]
    assert list(parameters_of(space)) == ["b", "a", "a > 0"]


def test_a_step_holds_only_its_own_values() -> None:
    stepped = FloatRange(0.1, 0.7, step=0.2)
    assert all(stepped.contains(stepped.settle(0.1 + 0.2 * index)) for index in range(4))
    assert not stepped.contains(0.2)
    assert stepped.contains(stepped.middle)
