"""What a study may spend, what it has booked, and whether one more attempt surely fits (docs/budget.md).

Booked is the time for which nodes are held: from when a driver's command began to its last record, and what it may take
to give them back. Whether anything ran meanwhile makes no difference: booting, idling and attempts that were lost cost
what a good one does. So a cap in USD or GPU-hours is a moment at which the last record must have been written, and an
attempt may start if it surely ends before: now, plus the most that its phases may take, is no later than that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from golfray.config.errors import ConfigError
from golfray.config.sizes import count_text
from golfray.sweep.executor import Holding
from golfray.sweep.generations import Generation
from golfray.sweep.limits import OPTIONAL_PHASES, OWN_TIME, PHASES, PhaseLimits
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import setting_at

CLOSE_S = 90.0
"""Seconds booked for each driver behind its last record: an executor closes within its grace of 30 s and a minute."""

END_S = 60.0
"""Seconds in which an attempt that has passed a limit, or was asked to end, has ended: grace, kill, and the report."""

# From the command to the first record of the driver that runs the confirmations; about what Ray takes, twice over.
BOOT_S = 60.0


class BudgetTooSmall(ValueError):
    """The budget does not hold even one trial; the message has value and remedy."""

    exit_code = 3


@dataclasses.dataclass(frozen=True)
class StudyBudget:
    """When nothing more is started, at whichever comes first; None is no such limit, and one at least is set.

    ``trials`` that search; ``minutes`` since the study's start; ``gpu_hours`` and ``usd`` booked at most.
    ``confirmations``: so many runs are kept back from the search, out of the last two. ``instance``: the type of the
    nodes, by which they are priced. ``extra_seeds``: at most so many runs on further seeds, once the trials are spent.
    """

    trials: int | None = None
    minutes: float | None = None
    gpu_hours: float | None = None
    usd: float | None = None
    confirmations: int | None = None
    extra_seeds: int | None = None
    instance: str | None = None

    @property
    def caps_holding(self) -> bool:
        """Whether it limits for how long nodes are held, which no trial may overrun."""
        return self.gpu_hours is not None or self.usd is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form, as logs have it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StudyBudget:
        """From a log, which may be of a version that knew only some of it."""
        return cls(**{field.name: values.get(field.name) for field in dataclasses.fields(cls)})

    def words(self, of_trials: str = "") -> list[str]:
        """Its limits for a person: "12 trials", "30 minutes"; ``of_trials`` follows the first."""
        numbers = ((self.minutes, "minutes"), (self.gpu_hours, "GPU-hours"), (self.usd, "USD"))
        trials = [] if self.trials is None else [count_text(self.trials, "trial") + of_trials]
        return trials + [f"{value:g} {unit}" for value, unit in numbers if value is not None]


@dataclasses.dataclass(frozen=True)
class Price:
    """USD that one node costs an hour, and who says so."""

    usd_per_hour: float
    source: str

    @classmethod
    def of(cls, record: StudyRecord) -> Price | None:
        """What the last driver of a study reckoned with."""
        found = record.header.get("price")
        return None if found is None else cls(found["usd_per_hour"], found["source"])


@dataclasses.dataclass(frozen=True)
class Booked:
    """Node-seconds and GPU-seconds held, and what they cost; ``usd`` None where some of them had no price."""

    node_s: float
    gpu_s: float
    usd: float | None

    @property
    def gpu_hours(self) -> float:
        """The same in hours."""
        return self.gpu_s / 3600

    def words(self, budget: StudyBudget) -> str:
        """For a person: what is booked, of how much."""
        parts = [f"{self.node_s / 3600:.2f} node-hours"]
        if self.gpu_s:
            limit = "" if budget.gpu_hours is None else f" of {budget.gpu_hours:g}"
            parts.append(f"{self.gpu_hours:.2f}{limit} GPU-hours")
        if self.usd is not None:
            limit = "" if budget.usd is None else f" of {budget.usd:g}"
            parts.append(f"{self.usd:.2f}{limit} USD")
        return f"{', '.join(parts)} booked"


def booked(record: StudyRecord, now: float | None = None) -> Booked:
    """What a study has booked by its last record; of the time between two of its drivers nothing is known.

    ``now``: until then, in unix seconds, its last driver is at work.
    """
    driver = record.generations[-1] if record.generations else None
    until = 0.0 if driver is None else driver.last_event if now is None else max(now, driver.last_event)
    return _booked(record.generations, until + CLOSE_S)


def booked_before(record: StudyRecord, moment: float) -> Booked:
    """What a study had booked at a ``moment`` of its present driver, in unix seconds: without giving nodes back."""
    return _booked(record.generations, moment)


def _booked(drivers: Sequence[Generation], until: float) -> Booked:
    """The last driver's ``until`` then, the others' until they had given back what they held."""
    node_s = gpu_s = usd = 0.0
    for driver in drivers:
        end = until if driver is drivers[-1] else driver.last_event + CLOSE_S
        for span, seconds in driver.held(end):
            node_s += seconds * span.nodes
            gpu_s += seconds * span.gpus
            usd += seconds * span.nodes * (driver.usd_per_hour or 0.0) / 3600
    priced = bool(drivers) and all(driver.usd_per_hour is not None for driver in drivers)
    return Booked(node_s, gpu_s, usd if priced else None)


def hard_limit_s(settings: Mapping[str, Any], limits: PhaseLimits) -> float | None:
    """Seconds after which an attempt has ended, whatever happens to it; None where one of its phases has no limit.

    ``settings``: the dictionary form of a trial's. Its limits are added up over the phases that it has.
    """
    total = END_S
    for phase in PHASES:
        if phase in OPTIONAL_PHASES and not setting_at(settings, OPTIONAL_PHASES[phase]):
            continue
        own = setting_at(settings, OWN_TIME[phase]) if phase in OWN_TIME else None
        limit = limits.of(phase, own)
        if limit is None:
            return None
        total += limit
    return total


@dataclasses.dataclass(frozen=True)
class Allowance:
    """Until when one driver may hold its nodes, in unix seconds; infinite where nothing caps that.

    ``until``: no record may be later. ``search_until``: the same for trials that search, so that the confirmations that
    are kept back fit behind. ``limits``: those of its attempts. ``cap``: what ends it, in words.
    """

    until: float
    search_until: float
    limits: PhaseLimits
    cap: str

    @property
    def is_capped(self) -> bool:
        """Whether anything limits for how long nodes are held."""
        return self.until < math.inf

    def fits(self, settings: Mapping[str, Any], now: float, *, confirms: bool) -> bool:
        """Whether an attempt that starts ``now`` surely ends in time."""
        if not self.is_capped:
            return True
        end = self.until if confirms else self.search_until
        limit = hard_limit_s(settings, self.limits)
        return limit is not None and now + limit <= end

    def why_not(self, settings: Mapping[str, Any], now: float, *, confirms: bool) -> str:
        """For a person, where it does not fit."""
        end = self.until if confirms else self.search_until
        kept = f" beside {self.until - end:.0f} s kept back for confirmations" if end < self.until else ""
        limit = needed_limit_s(settings, self.limits)
        return (
            f"{self.cap} hold these nodes for {max(end - now, 0.0):.0f} s more{kept}, and a trial may take "
            f"{limit:.0f} s, the limits of its phases together"
        )

    def is_over(self, now: float) -> bool:
        """Whether what runs must be ended now, for its end to be in time."""
        return now + END_S > self.until


def allowance(
    budget: StudyBudget,
    limits: PhaseLimits,
    settings: Mapping[str, Any],
    spent: Booked,
    holding: Holding,
    price: Price | None,
    *,
    held_since: float,
    slots: int,
    confirmed: int,
) -> Allowance:
    """What ``budget`` leaves a driver that holds ``holding`` since ``held_since``, where ``spent`` was booked before.

    ``settings``: trial 0's, as a dictionary; confirmations are taken to need what it does, ``slots`` at once, and
    ``confirmed`` of them have ended before. Raises :class:`ConfigError` where a cap cannot be reckoned with: no price,
    no GPU, no limit on a phase.
    """
    caps = [(math.inf, "")]
    if budget.usd is not None:
        if price is None or (spent.usd is None and spent.node_s):
            raise ConfigError(f"budget.usd is {budget.usd:g}, but {_no_price(spent)}")
        rate = holding.nodes * price.usd_per_hour / 3600
        caps.append(((budget.usd - (spent.usd or 0.0)) / rate, f"{budget.usd:g} USD"))
    if budget.gpu_hours is not None:
        if holding.gpus == 0 and spent.gpu_s == 0:
            raise ConfigError(
                f"budget.gpu_hours is {budget.gpu_hours:g}, but no GPU is held here, so none would ever be booked; "
                "use minutes or usd"
            )
        # Where all of them are gone for now, they come back.
        gpus = max(holding.gpus, 1)
        caps.append(((3600 * budget.gpu_hours - spent.gpu_s) / gpus, f"{budget.gpu_hours:g} GPU-hours"))
    seconds, cap = min(caps)
    reserve_s = 0.0
    if seconds < math.inf:
        limit = needed_limit_s(settings, limits)
        if to_come := max((budget.confirmations or 0) - confirmed, 0):
            reserve_s = BOOT_S + math.ceil(to_come / slots) * limit + CLOSE_S
    until = held_since + seconds - CLOSE_S
    return Allowance(until, until - reserve_s, limits, cap)


def allowance_of(record: StudyRecord) -> Allowance | None:
    """What the last driver of a study is allowed, by its log; None where nothing caps that, or nothing was asked."""
    budget = StudyBudget.from_dict(record.header["budget"])
    first = next((trial.settings for trial in record.trials if trial.settings is not None), None)
    if not budget.caps_holding or first is None:
        return None
    driver = record.generations[-1]
    return allowance(
        budget,
        PhaseLimits(**record.header["limits"]),
        first,
        booked_before(record, driver.now.since),
        Holding(driver.now.nodes, driver.now.gpus),
        Price.of(record),
        held_since=driver.now.since,
        slots=max(driver.now.slots, 1),
        confirmed=record.confirmed,
    )


def needed_limit_s(settings: Mapping[str, Any], limits: PhaseLimits) -> float:
    """:func:`hard_limit_s`, where it is needed. Raises :class:`ConfigError`."""
    limit = hard_limit_s(settings, limits)
    if limit is None:
        raise ConfigError(
            "budget.usd and budget.gpu_hours need a limit on every phase, for a trial starts only if all of them "
            "together fit into what is left: give limits.train where steps end a run, and limits.sliding where sliding "
            "windows have no evaluation.sliding_seconds"
        )
    return limit


def check_first(allowed: Allowance, settings: Mapping[str, Any], now: float, *, confirms: bool) -> None:
    """Raise :class:`BudgetTooSmall` where not even the next attempt, with ``settings``, fits."""
    if not allowed.fits(settings, now, confirms=confirms):
        why = allowed.why_not(settings, now, confirms=confirms)
        raise BudgetTooSmall(f"the budget does not hold one more trial: {why}; give more, or lower limits")


def _no_price(spent: Booked) -> str:
    if spent.usd is None and spent.node_s:
        return "the study has run without a price before, so what it has spent is not known; start a new study"
    return "nothing says what a node costs; name its type as budget.instance, or give --usd-per-hour"
