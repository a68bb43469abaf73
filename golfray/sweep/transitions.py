"""What may follow what in an attempt's life: the one table of it (docs/resume.md has the words).

An attempt is submitted, started, and ends, once and for good. What its end means for the trial depends on the kind of
the end alone, but for retries, of which :mod:`golfray.sweep.retry` keeps the budget:

==========  ======  ===================  ==============================================
kind        again   the sampler hears    may be best
==========  ======  ===================  ==============================================
scored      never   value                yes, within the cap
infeasible  never   value, and violated  no
diverged    never   worst, and violated  no
stopped     never   pruned               no
crashed     may     failed               no
preempted   may     failed               no
cancelled   may     failed               no
==========  ======  ===================  ==============================================
"""

from __future__ import annotations

import enum

from golfray.sweep.executor import Entered, Finished, JobEvent, Progress, Started


class Stage(enum.StrEnum):
    """Where an attempt is, as far as its executor has said."""

    SUBMITTED = "submitted"
    STARTED = "started"
    ENDED = "ended"


# A job can end before it starts: cancelled in the queue, or with no lane left to run it.
NEXT: dict[Stage, dict[type[JobEvent], Stage]] = {
    Stage.SUBMITTED: {Started: Stage.STARTED, Finished: Stage.ENDED},
    Stage.STARTED: {Entered: Stage.STARTED, Progress: Stage.STARTED, Finished: Stage.ENDED},
    Stage.ENDED: {},
}


class IllegalTransition(RuntimeError):
    """An executor told what cannot be: a bug of it, after which nothing it says can be relied on."""


def next_stage(stage: Stage | None, event: JobEvent) -> Stage:
    """Where an attempt is after ``event``; ``stage`` None: no such job was submitted. Raises ``IllegalTransition``."""
    if stage is None:
        raise IllegalTransition(f"the executor reports a job that was never submitted: {event}")
    if stage is Stage.ENDED and isinstance(event, Finished):
        raise IllegalTransition(f"the executor reports the end of a job twice: {event}")
    if type(event) not in NEXT[stage]:
        raise IllegalTransition(f"the executor reports {type(event).__name__} of a job that is {stage}: {event}")
    return NEXT[stage][type(event)]
