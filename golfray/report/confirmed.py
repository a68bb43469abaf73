"""``golfray confirm``: what came of trials on fresh seeds, and what to type next."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping
from typing import Any

from golfray.report.numbers import bpb_text, bytes_text, first_line
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import CONFIRM, TrialRecord


def confirmed_lines(record: StudyRecord, names: Mapping[int, str]) -> list[str]:
    """For a person: each trial's confirmations, those of earlier calls too. ``names``: how the trials are typed."""
    lines = []
    for number, name in names.items():
        runs = _confirmations(record, number)
        scores = [run.bpb for run in runs if run.bpb is not None]
        own = record.trials[number].bpb
        told = "none scored" if not scores else f"mean {bpb_text(statistics.fmean(scores))} BPB"
        if len(scores) > 1:
            told += f", SD {bpb_text(statistics.stdev(scores))}"
        lines.append(f"{name}: {told} on {len(scores)} of {len(runs)} fresh seeds; in the search {bpb_text(own)}")
        lines += [f"  t{run.number:03d}, seed {run.seed}: {_words(run)}" for run in runs]
    first = next(iter(names.values()))
    against = next((name for number, name in names.items() if name != first), first.rpartition("/")[0] + "/t000")
    if first != against:
        lines.append(f"what it proves: golfray claim {shlex.quote(first)} --vs {shlex.quote(against)}")
    return lines


def confirmed_document(record: StudyRecord, names: Mapping[int, str]) -> dict[str, Any]:
    """The document of the kind "confirm", without folder and exit code."""
    return {
        "study": record.name,
        "end_reason": record.end_reason,
        "trials": [
            {
                "trial": number,
                "name": name,
                "bpb": record.trials[number].bpb,
                "confirmations": [
                    {
                        "trial": run.number,
                        "seed": run.seed,
                        "outcome": None if run.outcome is None else run.outcome.kind.value,
                        "bpb": run.bpb,
                        "bytes_total": run.bytes_total,
                    }
                    for run in _confirmations(record, number)
                ],
            }
            for number, name in names.items()
        ],
    }


def _confirmations(record: StudyRecord, number: int) -> list[TrialRecord]:
    return [trial for trial in record.trials if trial.role == CONFIRM and trial.replicate_of == number]


def _words(run: TrialRecord) -> str:
    if run.outcome is None:
        return "not run"
    if run.bpb is None:
        return f"{run.outcome.kind.value}: {first_line(run.outcome.reason) or 'no reason given'}"
    over = " OVER CAP" if run.outcome.kind is Kind.INFEASIBLE else ""
    return f"{bpb_text(run.bpb)} BPB, {bytes_text(run.bytes_total)} bytes{over}"
