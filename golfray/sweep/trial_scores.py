"""The scores of a trial over its seeds, from the log of its study.

A trial's repetitions are the trials that name it as ``replicate_of``: replicates of trial 0, confirmations on fresh
seeds, and what the search itself ran again. The scores that a trial was chosen by are no evidence of it: they count
only where there are no others, and then nothing can be claimed of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from golfray.config.errors import ConfigError
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.resolved_diff import flat_configuration
from golfray.sweep.scores import Run, ScoredText, Scores, implied_bytes, mean_bytes_per_token
from golfray.sweep.significance import Sample, sample_of
from golfray.sweep.trial_record import CONFIRM, PRESET, REPLICATE, TrialRecord

PLAIN = "plain"
SLIDING = "sliding"
EVALUATIONS = (PLAIN, SLIDING)

# Of the exported model, by the way in which it was scored: bits per byte, nats per token.
_METRICS = {PLAIN: ("bpb/roundtrip", "val_loss/roundtrip"), SLIDING: ("bpb/sliding", "val_loss/sliding")}

# SentencePiece's own limit on the characters of a piece: more than a dropped token of any text here stands for.
_LONGEST_PIECE_BYTES = 16

_CHOSEN = "a score that the trial was chosen by"


def trial_scores(record: StudyRecord, trial: TrialRecord, *, study: str, evaluation: str = PLAIN) -> Scores:
    """One side of a claim from a trial and its repetitions; ``study`` names the study for a person.

    Raises ``ConfigError`` where the trial is another one's repetition or nothing of it was scored in that way,
    ``ClaimRefused`` where its losses and scores imply other bytes than its corpus has.
    """
    name = f"{study}/t{trial.number:03d}"
    if trial.replicate_of is not None:
        root = f"t{trial.replicate_of:03d}"
        raise ConfigError(f"is {root} on another seed; name {root}: its runs go together", file=name)
    members = [trial, *(other for other in record.trials if other.replicate_of == trial.number)]
    first = next((member for member in members if member.bpb is not None), None)
    if first is None or first.settings is None:
        why = "it has not ended" if trial.outcome is None else f"it ended as {trial.outcome.kind}"
        raise ConfigError(f"has no score: {why}", file=name)
    fidelity = record.fidelity_of(first)
    runs = _runs(record, members, fidelity, evaluation)
    counted = tuple(run for run in runs if run.left_out is None)
    if not counted:
        raise ConfigError(f"no run of it was scored {evaluation}: {runs[0].left_out}", file=name)
    text = _text(record, first)
    scored_by = evaluation if evaluation == PLAIN else f"{SLIDING} s{first.setting('evaluation.sliding_stride')}"
    chosen = not any(_is_fresh(member) and run.left_out is None for member, run in zip(members, runs, strict=True))
    return Scores(
        name=name,
        kind="trial",
        sample=sample_of([run.bpb for run in counted if run.bpb is not None]),
        runs=runs,
        text=text,
        evaluation=scored_by,
        fidelity=_fidelity(record, first),
        bytes_per_token=mean_bytes_per_token(counted),
        implied_bytes=implied_bytes(name, counted, _tokens(record, first), text),
        settings=flat_configuration(first.settings),
        chosen_of=len(record.candidates) if chosen else None,
        objections=tuple(_objections(name, members, chosen=chosen)),
        repeats=_repeats(record, fidelity, evaluation, study),
        note=str(record.header["data"].get("warning") or "") or None,
    )


def _runs(
    record: StudyRecord, members: Sequence[TrialRecord], fidelity: tuple[str, float] | None, evaluation: str
) -> tuple[Run, ...]:
    """The trial itself first, then its repetitions in the order in which they were asked."""
    bpb_name, nats_name = _METRICS[evaluation]
    runs = []
    for member in members:
        metrics = {} if member.outcome is None or member.bpb is None else member.outcome.metrics
        bpb = metrics.get(bpb_name)
        if member.outcome is None:
            why: str | None = "has not ended"
        elif member.bpb is None:
            why = f"{member.outcome.kind}: {member.outcome.reason}".strip(": ")
        elif record.fidelity_of(member) != fidelity:
            why = "ran at another fidelity"
        elif bpb is None or not math.isfinite(bpb):
            why = f"has no {bpb_name}"
        else:
            why = None
        label = f"t{member.number:03d}, seed {member.seed}"
        runs.append(Run(label, member.seed, bpb, metrics.get(nats_name), member.bytes_total, why))
    counted = [(index, member) for index, member in enumerate(members) if runs[index].left_out is None]
    if any(_is_fresh(member) for _, member in counted):
        for index, member in counted:
            if not _is_fresh(member):
                runs[index] = dataclasses.replace(runs[index], left_out=_CHOSEN)
    return tuple(runs)


def _is_fresh(member: TrialRecord) -> bool:
    """Whether a score chose nothing: trial 0 and its replicates run whatever comes of them, confirmations come last."""
    return member.role in (PRESET, REPLICATE, CONFIRM)


def _objections(name: str, members: Sequence[TrialRecord], *, chosen: bool) -> list[str]:
    """Why nothing can be claimed of a trial: leaving these out would be choosing among its seeds."""
    found = []
    if chosen:
        found.append(f"the only score of {name} is the one it was chosen by: `golfray confirm {name}` runs fresh seeds")
    for member in members:
        kind = None if member.outcome is None else member.outcome.kind
        if kind is Kind.DIVERGED:
            found.append(f"t{member.number:03d} on seed {member.seed} diverged: a seed that fails counts as well")
        elif kind is Kind.INFEASIBLE:
            found.append(f"t{member.number:03d} on seed {member.seed} is over the cap: it could not be handed in")
    return found


def _repeats(record: StudyRecord, fidelity: tuple[str, float] | None, evaluation: str, study: str) -> dict[str, Sample]:
    """Samples of every configuration that the study ran on several seeds at this fidelity, over-cap runs included."""
    members: dict[int, list[TrialRecord]] = {}
    for trial in record.trials:
        if trial.replicate_of is not None:
            members.setdefault(trial.replicate_of, [record.trials[trial.replicate_of]]).append(trial)
    found = {}
    for root, several in sorted(members.items()):
        runs = _runs(record, several, fidelity, evaluation)
        scores = [run.bpb for run in runs if run.left_out is None and run.bpb is not None]
        if len(scores) > 1:
            found[f"{study}/t{root:03d}"] = sample_of(scores)
    return found


def _fidelity(record: StudyRecord, trial: TrialRecord) -> dict[str, Any]:
    """What the run itself reported, its preset and scale, and how long it was allowed to train."""
    assert trial.outcome is not None
    said = dict(trial.outcome.fidelity)
    unit = "seconds" if said.get("stop") == "wallclock" else "steps"
    amount = trial.setting(f"stop.{unit}")
    budget = {} if amount is None else {"budget": f"{amount:g} {'s' if unit == 'seconds' else 'steps'}"}
    return {"preset": record.header["preset"], "scale": record.header["scale"], **said, **budget}


def _text(record: StudyRecord, trial: TrialRecord) -> ScoredText:
    """The validation text of the study. Sequences are whole, so up to one of them is dropped at its end."""
    data = record.header["data"]
    total, tokens = data.get("val_bytes"), _tokens(record, trial)
    least = most = None
    if total is not None and tokens is not None:
        dropped = data["val_tokens"] - 1 - tokens
        least, most = float(max(total - _LONGEST_PIECE_BYTES * dropped, 0)), float(total)
    return ScoredText(data.get("name", ""), data.get("digest"), least, most, data.get("contaminated"))


def _tokens(record: StudyRecord, trial: TrialRecord) -> int | None:
    """Predicted tokens: whole sequences of the validation split. None where the log does not say how long it is."""
    held, seq_len = record.header["data"].get("val_tokens"), trial.setting("batch.seq_len")
    return None if held is None or seq_len is None else (held - 1) // seq_len * seq_len
