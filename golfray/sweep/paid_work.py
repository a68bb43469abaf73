"""What of the work that is left the budget's USD and GPU-hours pay for: known before anything starts."""

from __future__ import annotations

import dataclasses

from golfray.sweep.budget import BudgetTooSmall, Price, allowance, booked, check_first, hard_limit_s
from golfray.sweep.executor import Holding
from golfray.sweep.forecast import start_seconds
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import Space
from golfray.sweep.work_left import WorkLeft


def paid_work(
    left: WorkLeft,
    record: StudyRecord,
    space: Space,
    price: Price | None,
    holding: Holding,
    now: float,
    *,
    slots: int,
    confirms: bool = False,
) -> WorkLeft:
    """``left``, its seconds cut to those in which a trial can start that surely fits.

    ``holding``: what the driver will hold from ``now``, in unix seconds, with so many ``slots`` on it. A study that
    came to its end and has not the money for one more attempt has nothing left. Raises :class:`BudgetTooSmall` where
    any other study has not.
    """
    settings = dataclasses.asdict(space.base.config.to_run_settings(0))
    spent = booked(record)
    allowed = allowance(
        space.budget,
        space.limits,
        settings,
        spent,
        holding,
        price,
        held_since=now,
        slots=slots,
        confirmed=record.confirmed,
    )
    try:
        check_first(allowed, settings, now, confirms=confirms)
    except BudgetTooSmall:
        if confirms or not record.complete:
            raise
        return dataclasses.replace(left, paid=False)
    seconds = start_seconds(allowed, hard_limit_s(settings, space.limits), now)
    return dataclasses.replace(left, seconds=min(left.seconds, seconds))
