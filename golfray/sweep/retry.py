"""Which attempts are made again, and when so much fails that going on would be a waste.

What an outcome says of the configuration (a score, too many bytes, a divergence, an early stop) is an answer and is
never asked for twice. What it says of the machine is tried again, within a budget a trial:

=========  ===============================================================================================
crashed    once more; not where the same error at the same place ended a run before its first step already
preempted  up to ten times more; without limit where the driver was what was lost
cancelled  never; where the study itself was ended, a resumed study runs the trial
=========  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from golfray.sweep.outcome import Kind, Outcome

CRASHES_A_TRIAL = 1
PREEMPTIONS_A_TRIAL = 10

# What ended an attempt in ``Outcome.error`` where it was the study's own driver: nothing that the trial could help.
DRIVER_LOST = "driver lost"

# A machine on which the first three attempts crash will crash the rest too, and so will one on which most of ten do; a
# person must look.
_FIRST_ATTEMPTS = 3
_LAST_ATTEMPTS = 10

# More of them change nothing: these already are not the first attempts.
JUDGED_ENDS = _LAST_ATTEMPTS


def runs_again(
    outcome: Outcome,
    earlier: Sequence[Outcome],
    *,
    made_progress: bool,
    errors_at_start: Collection[str],
    stopping: bool,
) -> bool:
    """Whether a trial is run again after an attempt that ended with ``outcome``.

    ``earlier``: the ends of the trial's attempts before this one. ``made_progress``: whether this one came to its first
    step. ``errors_at_start``: ``Outcome.error`` of the study's earlier crashes before a first step, of any trial.
    ``stopping``: the study is being ended, so a cancelled trial was not meant itself.
    """
    match outcome.kind:
        case Kind.CRASHED:
            known = not made_progress and outcome.error in errors_at_start
            return not known and sum(end.kind is Kind.CRASHED for end in earlier) < CRASHES_A_TRIAL
        case Kind.PREEMPTED:
            return outcome.error == DRIVER_LOST or sum(map(_was_preempted, earlier)) < PREEMPTIONS_A_TRIAL
        case Kind.CANCELLED:
            return stopping
        case _:
            return False


def is_judged(outcome: Outcome) -> bool:
    """Whether an end says something of the machine: what was taken away from outside does not."""
    return outcome.kind not in (Kind.PREEMPTED, Kind.CANCELLED)


def why_hopeless(ends: Sequence[Outcome]) -> str | None:
    """Why a study whose attempts ended like this should give up; None where it should not.

    ``ends``: in the order in which they came, of the attempts that this driver submitted; of those that are judged the
    last ``JUDGED_ENDS`` are enough. The others are passed over.
    """
    judged = [end for end in ends if is_judged(end)]
    crashes = [end for end in judged[-_LAST_ATTEMPTS:] if end.kind is Kind.CRASHED]
    if len(judged) == len(crashes) == _FIRST_ATTEMPTS:
        return f"all of the first {_FIRST_ATTEMPTS} attempts crashed, the last one: {crashes[-1].reason}"
    if len(judged) >= _LAST_ATTEMPTS and len(crashes) > _LAST_ATTEMPTS / 2:
        return f"{len(crashes)} of the last {_LAST_ATTEMPTS} attempts crashed, the last one: {crashes[-1].reason}"
    return None


def _was_preempted(end: Outcome) -> bool:
    return end.kind is Kind.PREEMPTED and end.error != DRIVER_LOST
