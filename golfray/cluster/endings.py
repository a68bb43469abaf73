"""How the end of a job is worded: what the trial itself returned, or what is known of a lane that failed under it."""

from __future__ import annotations

import dataclasses
from typing import Any

from golfray.cluster.ledger import Entry
from golfray.cluster.ranks import RankError
from golfray.sweep.outcome import Kind, Outcome


def own_outcome(entry: Entry, values: dict[str, Any]) -> Outcome:
    """What the trial itself returned; a stop that was asked for is called what the asking was."""
    outcome = Outcome.from_dict(values)
    if outcome.kind is not Kind.STOPPED or entry.stop_reason is None:
        return outcome
    kind = Kind.CANCELLED if entry.cancelled else Kind.CRASHED
    return dataclasses.replace(outcome, kind=kind, reason=entry.stop_reason, error=entry.stop_error)


def forced_outcome(entry: Entry, how: str, now: float) -> Outcome:
    """The end of a job that was asked to stop and did not: ``how`` it ended instead."""
    kind = Kind.CANCELLED if entry.cancelled else Kind.CRASHED
    reason = f"{entry.stop_reason} ({how})"
    return Outcome(kind, reason, phases=entry.phases_until(now), error=entry.stop_error)


def lane_failed_outcome(entry: Entry, errors: dict[int, RankError], now: float, lane_reason: str = "") -> Outcome:
    """The end of a job whose lane failed under it, whether or not it had been asked to stop."""
    if entry.stop_reason is not None:
        return forced_outcome(entry, "its lane ended before it could stop", now)
    return _crash_outcome(entry, errors, now, lane_reason)


def _crash_outcome(entry: Entry, errors: dict[int, RankError], now: float, lane_reason: str) -> Outcome:
    """The end of a job whose lane failed: a dead rank before a raising one, the first exception before its echoes.

    When a rank dies or raises, its peers' collectives fail a moment later; those say nothing about the cause.
    """
    phases = entry.phases_until(now)
    gone = {rank: error for rank, error in sorted(errors.items()) if error.kind != "raised"}
    if gone:
        first, error = next(iter(gone.items()))
        alike = [rank for rank in gone if gone[rank] == error]
        who = f"rank {first}" if len(alike) == 1 else f"ranks {', '.join(map(str, alike))}"
        kind = Kind.PREEMPTED if error.kind == "preempted" else Kind.CRASHED
        return Outcome(kind, f"{who} {error.kind}: {error.text}", phases=phases, error=error.error)
    reported = entry.crashes or errors
    if not reported:
        reason = f"{entry.lane} failed while it ran this job: {lane_reason or 'no rank said why'}"
        return Outcome(Kind.CRASHED, reason, phases=phases, error="lane lost")
    rank, error = next(iter(reported.items()))
    return Outcome(Kind.CRASHED, f"rank {rank}: {error.text}", phases=phases, error=error.error)
