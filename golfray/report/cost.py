"""What a study has booked and will have, for a person and for a program."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from golfray.report.numbers import seconds_text
from golfray.report.progress import ended_trials, planned_trials, running_trials
from golfray.sweep.budget import Price, StudyBudget, allowance_of, booked, hard_limit_s
from golfray.sweep.executor import Holding
from golfray.sweep.forecast import Ahead, Forecast, forecast, start_seconds, trial_seconds
from golfray.sweep.records import StudyRecord


def study_forecast(record: StudyRecord, now: float) -> Forecast | None:
    """How a study that a driver works on goes on from ``now``, in unix seconds; None before a trial of it has ended."""
    driver, budget = record.generations[-1], StudyBudget.from_dict(record.header["budget"])
    running = [trial.attempt for trial in running_trials(record) if trial.attempt is not None]
    planned = planned_trials(record)
    over_s = now - (record.last_event or now)
    allowed = allowance_of(record)
    limit = None if allowed is None else hard_limit_s(record.trials[0].settings or {}, allowed.limits)
    ahead = Ahead(
        trials=math.inf if planned is None else max(planned - ended_trials(record) - len(running), 0),
        running=tuple(now - (attempt.submitted or now) for attempt in running),
        slots=max(driver.now.slots, 1),
        ask_s=math.inf if budget.minutes is None else max(60 * budget.minutes - record.driven_seconds - over_s, 0.0),
        start_s=math.inf if allowed is None else start_seconds(allowed, limit, now),
    )
    holding = Holding(driver.now.nodes, driver.now.gpus)
    return forecast(trial_seconds(record), ahead, holding, Price.of(record), booked(record, now))


def time_words(found: Forecast) -> str:
    """Median and 90th percentile of the time."""
    return f"P50 {seconds_text(found.p50_s)}, P90 {seconds_text(found.p90_s)}"


def usd_words(found: Forecast | None) -> str | None:
    """The same of the cost; None where there is no price."""
    if found is None or found.p50_usd is None or found.p90_usd is None:
        return None
    return f"P50 {found.p50_usd:.2f}, P90 {found.p90_usd:.2f} USD"


def cost_line(record: StudyRecord, now: float | None = None, found: Forecast | None = None) -> str | None:
    """What is booked, of how much; None where a study has neither a price nor a limit to it.

    ``now`` and ``found``: while it runs, when it is and how it goes on.
    """
    budget, price = StudyBudget.from_dict(record.header["budget"]), Price.of(record)
    if price is None and not budget.caps_holding:
        return None
    end = usd_words(found)
    ends = "" if end is None else f", in the end {end}"
    at = "" if price is None else f"; a node costs {price.usd_per_hour:g} USD an hour ({price.source})"
    return f"cost: {booked(record, now).words(budget)}{ends}{at}"


def cost_document(record: StudyRecord, now: float | None = None) -> dict[str, Any]:
    """COST of docs/json.md."""
    found, price = booked(record, now), Price.of(record)
    return {
        "node_hours": found.node_s / 3600,
        "gpu_hours": found.gpu_hours,
        "usd": found.usd,
        "usd_per_hour": None if price is None else price.usd_per_hour,
        "price_source": None if price is None else price.source,
    }


def forecast_document(found: Forecast | None) -> dict[str, Any] | None:
    """FORECAST of docs/json.md."""
    return None if found is None else dataclasses.asdict(found)
