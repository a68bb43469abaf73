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
from golfray.sweep.limits import OPTIONAL_PHASES, PHASES
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import AttemptRecord, TrialRecord, setting_at

# What decides how long a trial takes; everything else of its settings may differ. A log of another version may lack
# some of it, and its trials are of another kind then.
_KIND = (
    *("model", "batch", "stop", "data", "schedule.warmup_steps", "muon.ns_steps", "muon.ns_dtype"),
    *("runtime.device", "runtime.dtype", "runtime.compile", "runtime.log_points"),
)
# A version that did not know these yet did what stands for "off" in them.
_OFF_BY_DEFAULT = (
    *("averaging.method", "evaluation.sliding_stride", "evaluation.sliding_seconds"),
    *("export.format", "export.codec", "export.codec_level", "export.gptq", "export.gptq_batches"),
    "export.search",
)

# The wait for a lane is no phase of the trial's own.
_TIMED = set(PHASES) - {"start", *OPTIONAL_PHASES}
_STEPS = "train/steps"


def recorded_costs(studies: Path, work: Work, lanes: int) -> Costs | None:
    """Costs of the latest study in a folder of ``studies`` that ran such trials in as many lanes on this machine.

    None where there is none. A log that cannot be read is no such study.
    """
    found = recorded_study(studies, work, lanes)
    return None if found is None else _costs(*found)


def recorded_study(studies: Path, work: Work, lanes: int) -> tuple[Path, StudyRecord] | None:
    """Folder and record of the study that :func:`recorded_costs` takes them from; None where there is none."""
    found = [
        (record.started or 0.0, folder, record)
        for folder in sorted(path.parent for path in studies.glob(f"*/{LOG_NAME}"))
        if (record := _read(folder, work, lanes)) is not None
    ]
    if not found:
        return None
    _, folder, record = max(found, key=lambda entry: entry[0])
    return folder, record


def _read(folder: Path, work: Work, lanes: int) -> StudyRecord | None:
    """The study in a folder, where it is of the kind that was asked for and has trials that ended with a score."""
    try:
        header = next(read_events(folder / LOG_NAME), {})
        if (header.get("workers"), header.get("slots")) != (work.workers, lanes):
            return None
        if header.get("host", socket.gethostname()) != socket.gethostname():
            return None
        if header.get("simulation") is not None:
            return None
        record = StudyRecord.load(folder)
    except (EventLogError, OSError):
        return None
    wanted = _kind_of(dataclasses.asdict(work.settings))
    ended = _ended(record)
    if not ended or any(_kind_of(trial.settings) != wanted or not _was_timed(trial) for trial in ended):
        return None
    fidelity = ended[0].outcome.fidelity if ended[0].outcome is not None else {}
    on_cpu = fidelity.get("device") == "cpu"
    return record if (on_cpu, fidelity.get("compiled")) == (work.device == "cpu", work.compiled) else None


def _kind_of(settings: dict[str, Any] | None) -> list[Any]:
    off = dataclasses.asdict(RunSettings())
    kind = [setting_at(settings, path) for path in _KIND]
    return kind + [setting_at(settings, path, setting_at(off, path)) for path in _OFF_BY_DEFAULT]


def _was_timed(trial: TrialRecord) -> bool:
    """Whether its end says everything that is read off it here."""
    end = trial.outcome
    return end is not None and end.phases.keys() >= _TIMED and _STEPS in end.metrics


def _ended(record: StudyRecord) -> list[TrialRecord]:
    return [trial for trial in record.trials if trial.bpb is not None and trial.share == 1.0]


def _costs(folder: Path, record: StudyRecord) -> Costs:
    ended = _ended(record)
    lanes = _by_lane(record)
    firsts = {id(attempts[0]) for attempts in lanes.values()}
    seconds: dict[str, list[float]] = {}
    first_compiles = []
    steps = []
    for trial in ended:
        assert trial.outcome is not None
        steps.append(trial.outcome.metrics[_STEPS])
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
        steps=round(statistics.median(steps)),
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
