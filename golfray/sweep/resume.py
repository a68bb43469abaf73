"""What a driver does that takes over a study whose last driver is gone, before anything runs again.

It says in the log that it is there (``study_resumed``), ends what the other one left open, and thereby makes the record
what :class:`golfray.sweep.agenda.Agenda` goes on from. Attempts that the lost driver had running end as ``preempted``;
trials that it ended itself when it was stopped are unfinished in the log already. Both are run again, with the same
parameters and seed, and neither counts against a trial's retries. An attempt that the lost driver had decided to stop
is stopped: that decision stands in the log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from golfray.sweep.agenda import end_refused
from golfray.sweep.journal import Journal
from golfray.sweep.knobs import Knob, OutOfRange, parameters_of, walk
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.retry import DRIVER_LOST
from golfray.sweep.rungs import SCALED_STEPS
from golfray.sweep.space import Space
from golfray.sweep.stopping import as_stopped
from golfray.sweep.trial_record import AttemptRecord, TrialRecord

_REL_TOLERANCE = 1e-9

_ABSENT = object()


def take_over(journal: Journal, space: Space, changes: Sequence[str], now_in_force: Mapping[str, Any]) -> None:
    """Log the change of drivers and end what the lost one left open.

    ``changes``: a line for every way in which ``space`` and what belongs to it differ from what the log has.
    ``now_in_force``: further fields of ``study_resumed``, under their names in ``study_started``.
    """
    record = journal.record
    journal.write(
        "study_resumed",
        generation=record.generation + 1,
        changes=list(changes),
        left_space=trials_outside(space, record),
        reopened=record.blamed_on_machine,
        torn=journal.torn,
        **now_in_force,
    )
    for trial in record.trials:
        if trial.attempt is None and trial.is_refused:
            end_refused(journal, space.name, trial)
    for trial, attempt in record.open_attempts:
        journal.end_attempt(trial.number, attempt.number, attempt.job_id, _lost(attempt), final=attempt.is_stopped)


def trials_outside(space: Space, record: StudyRecord) -> list[dict[str, Any]]:
    """The trials of which the sampler of ``space`` cannot be told, as {"trial", "reason"}; none for its own log."""
    reasons = {trial.number: why_outside(space, trial) for trial in record.trials if trial.kept_from_sampler is None}
    return [{"trial": number, "reason": reason} for number, reason in reasons.items() if reason is not None]


def why_outside(space: Space, trial: TrialRecord) -> str | None:
    """Why a trial is no point of ``space``: a parameter that does not fit, or another meaning of one. None where it is.

    A setting that the trial's configuration leaves null stands for what ``at_preset`` says, so it is not compared.
    """
    try:
        values, active = walk(space.knobs, lambda knob: _value_within(knob, trial.params))
    except OutOfRange as error:
        return str(error)
    for name in trial.params.keys() - parameters_of(active).keys():
        return f"{name} is not searched here"
    if trial.settings is None:
        return None
    here = {**values, **space.overrides(trial.params), **space.implied}
    for path, value in here.items():
        if trial.share != 1.0 and path in SCALED_STEPS:
            continue
        own = trial.setting(path, _ABSENT)
        if own is _ABSENT:
            return f"{path} is not among its settings"
        if own is not None and not _equal(own, value):
            return f"{path} was {own!r} and would be {value!r} here"
    return None


def _value_within(knob: Knob, params: Mapping[str, Any]) -> Any:
    """The knob's own value at a point of the sampler; raises :class:`OutOfRange` where its parameters are not there."""
    for name, parameter in knob.parameters.items():
        if name not in params:
            raise OutOfRange(f"has no value for {name}")
        if not parameter.contains(params[name]):
            raise OutOfRange(f"{name}={params[name]!r} is outside {parameter}")
    return knob.value(params)


def _lost(attempt: AttemptRecord) -> Outcome:
    """The end of an attempt whose driver is gone, with what the log knows of it."""
    lost = Outcome(Kind.PREEMPTED, DRIVER_LOST, attempt.last_metrics, attempt.phase_seconds, error=DRIVER_LOST)
    return as_stopped(attempt, lost)


def _equal(own: Any, value: Any) -> bool:
    if isinstance(own, float) and isinstance(value, int | float):
        return math.isclose(own, value, rel_tol=_REL_TOLERANCE, abs_tol=1e-12)
    return bool(own == value)
