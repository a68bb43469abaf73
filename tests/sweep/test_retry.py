import pytest

from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.retry import DRIVER_LOST, runs_again, why_hopeless

PLACE = "ValueError at shards.py:41"

CRASHED = Outcome(Kind.CRASHED, "raised", error=PLACE)
NAMELESS = Outcome(Kind.CRASHED, "rank 1 died by signal 9")
TAKEN = Outcome(Kind.PREEMPTED, "node gone")
LOST = Outcome(Kind.PREEMPTED, "driver lost", error=DRIVER_LOST)
SCORED = Outcome(Kind.SCORED, "")


@pytest.mark.parametrize(
    ("end", "earlier", "made_progress", "known", "stopping", "again"),
    [
        # What the configuration answers is never asked for twice.
        (Kind.SCORED, [], True, [], False, False),
        (Kind.INFEASIBLE, [], True, [], False, False),
        (Kind.DIVERGED, [], True, [], False, False),
        (Kind.DIVERGED, [], False, [], True, False),
        (Kind.STOPPED, [], True, [], False, False),
        # A crash is tried once more a trial, whatever else happened to the trial.
        (CRASHED, [], True, [], False, True),
        (CRASHED, [CRASHED], True, [], False, False),
        (CRASHED, [NAMELESS], True, [], False, False),
        (CRASHED, [TAKEN] * 10, True, [], False, True),
        (CRASHED, [LOST] * 30, True, [], False, True),
        (CRASHED, [CRASHED, LOST], True, [], False, False),
        (CRASHED, [], True, [], True, True),
        # The same error at the same place before the first step: not again, in whichever trial it was.
        (CRASHED, [], False, [], False, True),
        (CRASHED, [], False, [PLACE], False, False),
        (CRASHED, [], False, ["ValueError at shards.py:42"], False, True),
        (CRASHED, [], True, [PLACE], False, True),
        # Without a name of the error nobody can say that it is the same.
        (NAMELESS, [], False, [PLACE], False, True),
        # A machine may be taken away ten times; a lost driver counts for nothing.
        (TAKEN, [], True, [], False, True),
        (TAKEN, [TAKEN] * 9, False, [], False, True),
        (TAKEN, [TAKEN] * 10, True, [], False, False),
        (TAKEN, [TAKEN] * 9 + [CRASHED] + [LOST] * 5, True, [], False, True),
        (LOST, [], True, [], False, True),
        (LOST, [LOST] * 50, True, [], False, True),
        (LOST, [TAKEN] * 10 + [CRASHED], True, [], False, True),
        # Cancelled is cancelled, unless it was the study that was ended.
        (Kind.CANCELLED, [], True, [], False, False),
        (Kind.CANCELLED, [], True, [], True, True),
    ],
)
def test_which_ends_are_run_again(end, earlier, made_progress, known, stopping, again) -> None:
    outcome = Outcome(end, "") if isinstance(end, Kind) else end
    found = runs_again(outcome, earlier, made_progress=made_progress, errors_at_start=known, stopping=stopping)
    assert found is again


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ([], None),
        ([CRASHED] * 2, None),
        ([CRASHED] * 3, "all of the first 3 attempts crashed, the last one: raised"),
        ([TAKEN, CRASHED, LOST, CRASHED, CRASHED], "all of the first 3 attempts crashed, the last one: raised"),
        ([SCORED, CRASHED, CRASHED, CRASHED], None),
        ([SCORED] * 5 + [CRASHED] * 5, None),
        ([SCORED] * 4 + [CRASHED] * 5 + [NAMELESS], "6 of the last 10 attempts crashed, the last one: rank 1 died"),
        ([SCORED] * 4 + [CRASHED] * 5, None),
        ([SCORED] * 90 + [CRASHED] * 5, None),
        ([SCORED] * 90 + [CRASHED] * 6, "6 of the last 10 attempts crashed"),
        ([CRASHED] * 2 + [SCORED] * 90 + [CRASHED] * 4, None),
        # What was taken away is passed over, on both sides of the fraction.
        ([SCORED] * 4 + [CRASHED] * 6 + [TAKEN] * 9, "6 of the last 10 attempts crashed"),
        ([Outcome(Kind.DIVERGED, "nan")] * 20, None),
    ],
)
def test_when_a_study_is_hopeless(ends: list[Outcome], why: str | None) -> None:
    found = why_hopeless(ends)
    assert (found is None) if why is None else found.startswith(why)
