"""What a study of the same kind took here before: the event logs of a folder of studies know it best."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import statistics
from pathlib import Path
from typing import Any

from golfray.core.settings import RunSettings
from golfray.sweep.costs import CLOSE_S, COMPILE_AGAIN_S, COMPILE_FIRST_S, HANDOVER_S, LANES_S, OPEN_S, Costs, Work
from golfray.sweep.events import LOG_NAME, EventLogError, read_events
from golfray.sweep.limits import PHASES
from golfray.sweep.records import AttemptRecord, StudyRecord, TrialRecord

# What decides how long a trial takes; everything else of its settings may differ.
_SECTIONS = ("model", "batch", "stop", "data")
_FIELDS = {
    "runtime": ("device", "dtype", "compile", "log_points"),
    "schedule": ("warmup_steps",),
    "muon": ("ns_steps", "ns_dtype"),
    "averaging": ("method",),
    "evaluation": ("sliding_stride", "sliding_seconds"),
}


def recorded_costs(studies: Path, work: Work, lanes: int) -> Costs | None:
    """Costs of the latest study in a folder of ``studies`` that ran such trials in as many lanes on this machine.

    None where there is none. A log that cannot be read is no such study.
    """
    found = [
        (record.started or 0.0, folder, record)
        for folder in sorted(path.parent for path in studies.glob(f"*/{LOG_NAME}"))
        if (record := _read(folder, work, lanes)) is not None
    ]
    if not found:
        return None
    _, folder, record = max(found, key=lambda entry: entry[0])
    return _costs(folder, record)


def _read(folder: Path, work: Work, lanes: int) -> StudyRecord | None:
    """The study in a folder, where it is of the kind that was asked for and has trials that ended with a score."""
    try:
        header = next(read_events(folder / LOG_NAME), {})
        if (header.get("workers"), header.get("slots")) != (work.workers, lanes):
            return None
        if header.get("host", socket.gethostname()) != socket.gethostname():
            return None
        record = StudyRecord.load(folder)
    except EventLogError:
        return None
    wanted = _kind_of(dataclasses.asdict(work.settings))
    ended = _ended(record)
    if not ended or any(trial.settings is None or _kind_of(trial.settings) != wanted for trial in ended):
        return None
    fidelity = ended[0].outcome.fidelity if ended[0].outcome is not None else {}
    on_cpu = fidelity.get("device") == "cpu"
    return record if (on_cpu, fidelity.get("compiled")) == (work.device == "cpu", work.compiled) else None


def _kind_of(settings: dict[str, Any]) -> dict[str, Any]:
    # A log of an earlier version lacks sections that it did not have.
    settings = {**dataclasses.asdict(RunSettings()), **settings}
    kind: dict[str, Any] = {name: settings[name] for name in _SECTIONS}
    return kind | {name: {field: settings[name][field] for field in fields} for name, fields in _FIELDS.items()}


def _ended(record: StudyRecord) -> list[TrialRecord]:
    return [trial for trial in record.trials if trial.bpb is not None]


def _costs(folder: Path, record: StudyRecord) -> Costs:
    ended = _ended(record)
    lanes = _by_lane(record)
    firsts = {id(attempts[0]) for attempts in lanes.values()}
    seconds: dict[str, list[float]] = {}
    first_compiles = []
    for trial in ended:
        assert trial.outcome is not None
        for phase, spent in trial.outcome.phases.items():
            if phase == "compile" and id(trial.attempt) in firsts:
                first_compiles.append(spent)
            else:
                seconds.setdefault(phase, []).append(spent)
    again = statistics.median(seconds.get("compile", [COMPILE_AGAIN_S]))
    first = statistics.median(first_compiles or [COMPILE_FIRST_S])
    begun = [attempts[0].started for attempts in lanes.values() if attempts[0].started is not None]
    lanes_s = min(begun) - (record.started or 0.0) if begun else LANES_S
    # Whatever slowed the lanes down slowed Ray down too, of which the log has no record.
    slowdown = max(lanes_s / LANES_S, 1.0)
    known = {phase: statistics.median(spent) for phase, spent in seconds.items()} | {"compile": again}
    return Costs(
        open_s=OPEN_S * slowdown,
        lanes_s=lanes_s,
        phases={phase: known[phase] for phase in PHASES if phase in known},
        # What took long to compile then is in torch's cache now.
        compile_first_s=max(again, first if first <= 2 * COMPILE_FIRST_S else COMPILE_FIRST_S),
        handover_s=statistics.median(_handovers(lanes) or [HANDOVER_S]),
        close_s=CLOSE_S * slowdown,
        steps=round(statistics.median(_steps(trial) for trial in ended)),
        sources=(
            f"as in {folder}, a study of the same kind: medians of {len(ended)} trials; what it took to start and to "
            "end Ray is assumed as measured earlier on two CPU cores",
        ),
    )


def _by_lane(record: StudyRecord) -> dict[str, list[AttemptRecord]]:
    """Attempts of each lane of the first driver, in the order in which they ran there."""
    started = [
        attempt
        for trial in record.trials
        for attempt in trial.attempts
        if attempt.lane is not None and attempt.started is not None and attempt.generation == 1
    ]
    lanes: dict[str, list[AttemptRecord]] = {}
    for attempt in sorted(started, key=lambda attempt: attempt.started or 0.0):
        lanes.setdefault(str(attempt.lane), []).append(attempt)
    return lanes


def _handovers(lanes: dict[str, list[AttemptRecord]]) -> list[float]:
    return [
        after.started - before.ended
        for attempts in lanes.values()
        for before, after in itertools.pairwise(attempts)
        if before.ended is not None and after.started is not None
    ]


def _steps(trial: TrialRecord) -> float:
    return trial.outcome.metrics.get("train/steps", 1.0) if trial.outcome is not None else 1.0
