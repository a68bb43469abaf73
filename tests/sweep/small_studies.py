"""Spaces of one knob, and what came of a study: what tests of studies and of resumed ones share."""

from __future__ import annotations

from golfray.sweep.records import StudyRecord

RESUMED = """\
name: one
preset: parameter-golf
scale: laptop
budget: {trials: 7}
seed: 5
sampler: random
replicates: 2
first_points: [{optimizer.matrix_lr: 0.1}]
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}}
"""

SHORT = """\
name: one
preset: parameter-golf
scale: laptop
budget: {trials: 4}
replicates: 2
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}}
"""


def what_came_of(record: StudyRecord) -> list[str]:
    """Trial for trial: what was asked, and how it ended; NaN is equal to itself here."""
    return [
        repr((trial.number, trial.role, trial.params, trial.seed, trial.settings, trial.told, trial.outcome))
        for trial in record.trials
    ]
