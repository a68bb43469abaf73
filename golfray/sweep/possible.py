"""Which values of the knobs can never run, whatever the other knobs are: found before anything starts.

Rules between settings (heads, widths, batches) can forbid combinations that each knob's own range allows. Where the
knobs that a rule binds have few enough values, all their combinations are tried against the rules alone; no model is
built. What is forbidden only together with some values of others is left to the trial that meets it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from golfray.config.errors import shown
from golfray.config.rules import RULES, Rule
from golfray.config.schema import Config
from golfray.sweep.knobs import Choice, IntRange, Knob

# Some tenths of a second.
MOST_COMBINATIONS = 5_000

# Points that stand for a range of numbers: enough to see that none of its numbers can be met by chance.
_SAMPLED = 8
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclasses.dataclass(frozen=True)
class Impossible:
    """Values of one knob with which no combination of the knobs beside it is allowed.

    ``all_values``: the knob has no other. ``why`` is the rule that one of them breaks. ``beside`` are the paths of the
    knobs that it was combined with.
    """

    knob: Knob
    values: tuple[Any, ...]
    all_values: bool
    why: str
    beside: tuple[str, ...]

    def __str__(self) -> str:
        others = (
            f", whatever {' and '.join(self.beside)} {'is' if len(self.beside) == 1 else 'are'}" if self.beside else ""
        )
        if self.all_values:
            return f"no value in it is possible{others}: {self.why}"
        few = ", ".join(map(shown, self.values[:6])) + (", ..." if len(self.values) > 6 else "")
        return f"{few} can never run{others}: {self.why}"


def impossible_values(knobs: Sequence[Knob], config: Config) -> list[Impossible]:
    """What can be known of ``knobs`` over ``config``, in the order of the knobs."""
    found = []
    for rules in _joined_rules():
        bound = [knob for knob in knobs if any(knob.path in rule.paths for rule in rules)]
        paths = {knob.path for knob in bound}
        if bound and all(knob.at_most is None or knob.at_most in paths for knob in bound):
            found += _impossible_among(bound, rules, config)
    order = [knob.path for knob in knobs]
    return sorted(found, key=lambda each: order.index(each.knob.path))


def _impossible_among(knobs: Sequence[Knob], rules: Sequence[Rule], config: Config) -> list[Impossible]:
    values = [_values(knob) for knob in knobs]
    if math.prod(map(len, values)) > MOST_COMBINATIONS:
        return []
    possible: list[set[int]] = [set() for _ in knobs]
    reasons: list[dict[int, str]] = [{} for _ in knobs]
    for places in itertools.product(*(range(len(own)) for own in values)):
        own = {knob.path: values[index][place] for index, (knob, place) in enumerate(zip(knobs, places, strict=True))}
        at = {knob.path: min(own[knob.path], own[knob.at_most]) if knob.at_most else own[knob.path] for knob in knobs}
        why = _broken(rules, _with(config, at))
        for index, place in enumerate(places):
            if why is None:
                possible[index].add(place)
            else:
                reasons[index].setdefault(place, why)
    found = []
    for index, knob in enumerate(knobs):
        never = [place for place in range(len(values[index])) if place not in possible[index]]
        beside = tuple(other.path for other in knobs if other is not knob)
        if len(never) == len(values[index]) or (never and knob.is_countable):
            shown_values = tuple(values[index][place] for place in never)
            everything = len(never) == len(values[index])
            found.append(Impossible(knob, shown_values, everything, reasons[index][never[0]], beside))
    return found


def _values(knob: Knob) -> list[Any]:
    """Every value that a trial may have here, or some of them where they cannot be counted."""
    domain = knob.domain
    if isinstance(domain, Choice):
        values = list(domain.choices)
    elif isinstance(domain, IntRange):
        # No list of all integers of a huge range is made only to be found too long.
        last = min(domain.high, domain.low + domain.step * MOST_COMBINATIONS)
        values = list(range(domain.low, last + 1, domain.step))
    elif domain.step is not None:
        count = round((domain.high - domain.low) / domain.step)
        values = [domain.low + domain.step * index for index in range(min(count, MOST_COMBINATIONS) + 1)]
    else:
        shares = [(index * _GOLDEN) % 1 for index in range(1, _SAMPLED + 1)]
        values = [domain.low + (domain.high - domain.low) * share for share in shares]
    if knob.or_zero:
        values.append(0 if isinstance(domain, IntRange) else 0.0)
    # Where it is not searched, it is as the preset has it.
    if knob.when and knob.preset_value not in values:
        values.append(knob.preset_value)
    return values


def _broken(rules: Sequence[Rule], config: Config) -> str | None:
    for rule in rules:
        why = rule.broken(config)
        if why is not None:
            return why
    return None


def _with(config: Config, values: Mapping[str, Any]) -> Config:
    """``config`` with other values, which are valid by themselves; rules between them are not looked at."""
    changes: dict[str, Any] = {}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        if section:
            changes.setdefault(section, {})[name] = value
        else:
            changes[name] = value
    update = {
        name: getattr(config, name).model_copy(update=change) if isinstance(change, dict) else change
        for name, change in changes.items()
    }
    return config.model_copy(update=update)


@functools.cache
def _joined_rules() -> tuple[tuple[Rule, ...], ...]:
    """The rules in groups that share no setting."""
    groups: list[list[Rule]] = []
    for rule in RULES:
        touching = [group for group in groups if any(set(rule.paths) & set(other.paths) for other in group)]
        groups = [group for group in groups if group not in touching] + [[*itertools.chain(*touching), rule]]
    return tuple(tuple(group) for group in groups)
