"""What a node costs an hour: from the list of instance types, or as a person says it."""

from __future__ import annotations

import math
from pathlib import Path

from golfray.config.errors import ConfigError, did_you_mean, shown
from golfray.config.positions import load_yaml
from golfray.sweep.budget import Price, StudyBudget

PRICES = Path("clusters") / "prices.yaml"
"""The list, below the current folder: {instance type: USD per hour of one node}."""

OPTION = "--usd-per-hour"


def price_of(budget: StudyBudget, usd_per_hour: float | None, folder: Path) -> Price | None:
    """What ``budget.instance`` costs by the list below ``folder``, or ``usd_per_hour``, which is an option's value.

    None where neither is given. Raises :class:`ConfigError` where both are, where ``budget.usd`` has no price to reckon
    with, and for an instance that is not in the list, or whose price is no finite number above 0.
    """
    if usd_per_hour is not None:
        if budget.instance is not None:
            raise ConfigError(
                f"{OPTION} {usd_per_hour:g}: budget.instance is {budget.instance}, which has its price in {PRICES}; "
                "remove one of the two"
            )
        if not 0 < usd_per_hour < math.inf:
            raise ConfigError(f"{OPTION} {usd_per_hour:g}: must be a finite number above 0")
        return Price(usd_per_hour, OPTION)
    if budget.instance is not None:
        return _listed(budget.instance, folder)
    if budget.usd is not None:
        raise ConfigError(
            f"budget.usd is {budget.usd:g}, but nothing says what a node costs: name its type as budget.instance, one "
            f"of {PRICES}, or give {OPTION}"
        )
    return None


def _listed(instance: str, folder: Path) -> Price:
    path = folder / PRICES
    if not path.is_file():
        raise ConfigError(
            f"budget.instance is {shown(instance)}, but there is no list of prices {path}: write one, a line "
            f"`instance type: USD per hour` each, or remove budget.instance and give {OPTION}"
        )
    document = load_yaml(path)
    if instance not in document.values:
        raise ConfigError(
            f"budget.instance is {shown(instance)}, which has no price in {path}; "
            f"{did_you_mean(instance, document.values)}"
        )
    found = document.values[instance]
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
        raise document.error(instance, f"must be a finite number above 0, USD an hour, got {shown(found)}")
    return Price(float(found), f"{PRICES}: {instance}")
