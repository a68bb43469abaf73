"""Where the time of a study's lanes went: how much of it trained and scored, and what the rest was.

A lane's time runs from its driver's first record, or from when it was added, to the driver's last record, or to when it
was lost. Every second of it is in exactly one part. What a driver takes before its first record, to start Ray, is no
lane's time and stands beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from golfray.sweep.generations import Generation
from golfray.sweep.limits import PHASES
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import AttemptRecord

# What a study is there for.
USEFUL = ("train", "score", "sliding")

# Parts that are no phases of a run.
STARTING = "lane start"
BETWEEN = "between trials"
LOST = "lost attempts"
IDLE = "idle"
PARTS = (STARTING, *PHASES[1:], BETWEEN, LOST, IDLE)

_ANSWERS = (Kind.SCORED, Kind.INFEASIBLE, Kind.DIVERGED, Kind.STOPPED)


@dataclasses.dataclass(frozen=True)
class LaneTime:
    """Seconds of all lanes together, by part (:data:`PARTS`); ``before_s``: what drivers took before their lanes.

    "lane start" is what a lane takes to its first trial, "between trials" what hands one over to the next and starts
    ranks anew, "lost attempts" all time of those that gave no answer, "idle" what a lane had nothing to do.
    """

    parts: dict[str, float]
    before_s: float

    @property
    def total_s(self) -> float:
        """All lane time."""
        return sum(self.parts.values())

    @property
    def share(self) -> float | None:
        """The part of it in training and final scoring; None before there was any."""
        useful = sum(self.parts.get(part, 0.0) for part in USEFUL)
        return useful / self.total_s if self.total_s > 0 else None


def attempt_seconds(attempt: AttemptRecord) -> dict[str, float]:
    """Where an ended attempt's time went: "start", from its submission to a lane's taking it, its phases, and "rest".

    The rest is what its lane spent on it outside of every phase: telling it to the ranks, and their coming together.
    """
    if attempt.outcome is None or attempt.ended is None:
        return {}
    phases = attempt.outcome.phases or attempt.phase_seconds
    if attempt.submitted is None or attempt.started is None:
        return dict(phases)
    rest = attempt.ended - attempt.started - sum(phases.values())
    return {"start": attempt.started - attempt.submitted, **phases, "rest": max(rest, 0.0)}


def lane_time(record: StudyRecord) -> LaneTime:
    """Of all drivers of a study, as far as its log goes."""
    parts = dict.fromkeys(PARTS, 0.0)
    for driver in record.generations:
        for part, seconds in _of_driver(driver, _by_lane(record, driver.number)):
            parts[part] = parts.get(part, 0.0) + seconds
    before = sum(max(driver.started - driver.held_since, 0.0) for driver in record.generations)
    return LaneTime({part: seconds for part, seconds in parts.items() if seconds}, before)


def _by_lane(record: StudyRecord, driver: int) -> list[list[AttemptRecord]]:
    """The attempts of each lane in the order in which they ran there, the lane that began first first."""
    lanes: dict[str, list[AttemptRecord]] = {}
    for trial in record.trials:
        for attempt in trial.attempts:
            if attempt.generation == driver and attempt.lane is not None and attempt.started is not None:
                lanes.setdefault(attempt.lane, []).append(attempt)
    ordered = [sorted(attempts, key=_begun) for attempts in lanes.values()]
    return sorted(ordered, key=lambda attempts: _begun(attempts[0]))


def _of_driver(driver: Generation, lanes: list[list[AttemptRecord]]) -> Iterator[tuple[str, float]]:
    used = 0.0
    openings = driver.openings()
    for number, attempts in enumerate(lanes):
        opened = openings[number] if number < len(openings) else driver.started
        yield STARTING, max(_begun(attempts[0]) - opened, 0.0)
        until = opened
        for attempt in attempts:
            gap = _begun(attempt) - until
            if attempt is not attempts[0] and gap > 0:
                yield BETWEEN, gap
            # One that ran when its driver was lost is ended by the next one.
            ended = driver.last_event if attempt.ended is None else min(attempt.ended, driver.last_event)
            yield from _of_attempt(attempt, max(ended - _begun(attempt), 0.0))
            until = max(until, ended)
        used += until - opened
    yield IDLE, max(driver.lane_seconds() - used, 0.0)


def _of_attempt(attempt: AttemptRecord, seconds: float) -> Iterator[tuple[str, float]]:
    """The phases of one that gave an answer, as the ranks measured them, and what they leave of its time.

    Of one that has not ended: its phases so far.
    """
    if attempt.outcome is not None and attempt.outcome.kind not in _ANSWERS:
        yield LOST, seconds
        return
    left = seconds
    phases = attempt.phase_seconds if attempt.outcome is None else attempt.outcome.phases
    for phase, spent in phases.items():
        # The driver's clock and a rank's differ in how late they hear of things.
        inside = min(spent, left)
        yield phase, inside
        left -= inside
    yield BETWEEN, left


def _begun(attempt: AttemptRecord) -> float:
    assert attempt.started is not None
    return attempt.started
