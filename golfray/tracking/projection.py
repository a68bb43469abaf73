"""What MLflow is told about a study: pure functions from event-log records to parameters, metrics, tags and notes.

Nothing here knows MLflow's client; :mod:`golfray.tracking.study_runs` makes runs of what these functions return.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from golfray.sweep.budget import StudyBudget
from golfray.sweep.lane_time import LaneTime
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.trial_record import TrialRecord

CURVE_POINTS = 300
"""No metric of one run has more points than this, the final value included."""

TAG_CHARACTERS = 4_000
"""MLflow refuses tags above 8,000 characters; a reason is cut well below that and stays whole in the event log."""

RUN_STATUS = {
    Kind.SCORED: "FINISHED",
    Kind.INFEASIBLE: "FINISHED",
    Kind.STOPPED: "KILLED",
    Kind.DIVERGED: "FAILED",
    Kind.CRASHED: "FAILED",
    Kind.PREEMPTED: "KILLED",
    Kind.CANCELLED: "KILLED",
}
"""MLflow's run status for each kind of outcome: an infeasible trial ran to its end, a diverged one did not."""

KNOB_PREFIX = "knob/"

VIEW_NAME = "trials"
"""``?viewStateShareKey=`` of the page that :func:`trials_view` describes."""


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested dictionaries as ``{"muon.momentum_end": "0.95", ...}``; numbers read back equal."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value if isinstance(value, str) else repr(value)
    return flat


def finite_or_nan(value: float | None) -> float:
    """A number MLflow can keep: None and infinities become NaN (MLflow would store infinity as 1.8e308)."""
    return float(value) if value is not None and math.isfinite(value) else math.nan


def shorten(text: str) -> str:
    """``text``, cut to what a tag may hold, saying so."""
    if len(text) <= TAG_CHARACTERS:
        return text
    return f"{text[:TAG_CHARACTERS]} ... (cut; the whole text is in events.jsonl)"


def trial_name(trial: TrialRecord, tries: int) -> str:
    """Run name of a trial, such as ``t003 sampler``; a second try at it is ``t003 sampler, attempt 2``."""
    return f"t{trial.number:03d} {trial.role}" + (f", attempt {tries}" if tries > 1 else "")


def study_params(event: Mapping[str, Any]) -> dict[str, str]:
    """Parameters of the parent run, from ``study_started``: what was searched, on what, with what budget."""
    names = ("preset", "scale", "workers", "seed", "sampler", "slots", "cap_bytes", "bytes_code")
    params = flatten({name: event[name] for name in names if name in event})
    # Logs of earlier versions do not say: no trial was stopped then.
    params["stopping"] = event["space"].get("stopping", "off")
    params.update(flatten({"budget": event.get("budget") or {}}))
    foreign = event["space"].get("warm_start")
    if foreign:
        params["warm_start"] = f"foreign points: {len(foreign)}"
    params.update({f"space.{path}": knob_range(knob) for path, knob in knobs(event).items()})
    return params


def knobs(event: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """{path: domain} of what the study varies, from ``study_started``."""
    return dict(event["space"].get("knobs", {}))


def knob_range(knob: Mapping[str, Any]) -> str:
    """A knob's domain on one line: ``0.01 .. 0.16, log=True`` or ``choices=[1, 2]``, with whatever else it says."""
    words = [f"{knob['low']} .. {knob['high']}"] if "low" in knob and "high" in knob else []
    words += [f"{name}={value}" for name, value in knob.items() if name not in ("low", "high") and value]
    return ", ".join(words)


def study_note(event: Mapping[str, Any]) -> str:
    """Markdown for the description of the experiment and of the parent run."""
    data = event.get("data") or {}
    lines = [
        f"**{event['study']}**: preset `{event.get('preset')}` at scale `{event.get('scale')}`, "
        f"{event.get('workers')} workers a trial, cap {int(event['cap_bytes']):,} bytes, "
        f"golfray {event.get('golfray_version')}.",
        "",
        f"Data: {data.get('name')}.",
    ]
    if data.get("warning"):
        lines += ["", f"**{data['warning']}**"]
    reference = data.get("reference") or {}
    if reference:
        points = ", ".join(f"{name} {value:.4f}" for name, value in reference.items())
        lines += ["", f"Bits per byte of the same validation text: {points}."]
    lines += ["", *(f"- {line}" for line in event.get("describe") or [])]
    foreign = (event.get("space") or {}).get("warm_start") or []
    if foreign:
        names = ", ".join(name for point in foreign for name in point["records"])
        lines += ["", f"The sampler was told of points at which others ran ({names}): no runs here."]
    lines += [
        "",
        "The score is `bpb/roundtrip`, of the exported file read back; lower is better. Only runs tagged "
        "`golfray.feasible = true` fit under the cap; of these, the one whose configuration has the lowest posterior "
        "mean over its seeds is tagged `golfray.best = true`.",
    ]
    return "\n".join(lines)


def resumed_note(event: Mapping[str, Any]) -> str:
    """Markdown that ``study_resumed`` adds to the description of the parent run."""
    budget = ", ".join(StudyBudget.from_dict(event.get("budget") or {}).words())
    changes = [f"- {line}" for line in event.get("changes") or ["the space is the same"]]
    return "\n".join(
        [
            f"**Resumed** as generation {event['generation']} on `{event.get('host')}`, golfray "
            f"{event['golfray_version']}, budget {budget}:",
            "",
            *changes,
        ]
    )


def trial_params(trial: TrialRecord, varied: Iterable[str]) -> dict[str, str]:
    """Parameters of a trial's run: every resolved setting, and those that the study varies once more under ``knob/``.

    A knob's value is the one that the trial ran with, which need not be the number that the sampler draws.
    """
    settings, drawn = flatten(trial.settings or {}), flatten(trial.params)
    params = dict(settings)
    for path in varied:
        value = settings.get(path, drawn.get(path))
        if value is not None:
            params[f"{KNOB_PREFIX}{path}"] = value
    return params


def trial_tags(trial: TrialRecord) -> dict[str, str]:
    """Tags of a trial's run that are known when it is asked."""
    tags = {
        "golfray.trial": str(trial.number),
        "golfray.role": trial.role,
        "golfray.told": "true" if trial.told else "false",
    }
    if trial.replicate_of is not None:
        tags["golfray.replicate_of"] = str(trial.replicate_of)
    return tags


def expected_points(trial: TrialRecord) -> int:
    """How many points the trial's curve will have at most, as its settings say."""
    return int((trial.settings or {}).get("runtime", {}).get("log_points", CURVE_POINTS))


def curve_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a ``progress`` record: the step and the elapsed seconds are MLflow's own two axes already."""
    return {name: finite_or_nan(value) for name, value in metrics.items() if name not in ("step", "elapsed_s")}


def fidelity_text(fidelity: Mapping[str, Any]) -> str:
    """One line a fidelity, keys sorted, so that equal fidelities are equal tags."""
    return ", ".join(f"{name}={fidelity[name]}" for name in sorted(fidelity))


def outcome_tags(outcome: Outcome, share: float = 1.0) -> dict[str, str]:
    """Tags of a trial's run, of a ``share`` of the study's length, that its end decides.

    ``golfray.feasible`` is ``unknown`` where no artifact was weighed, and for a short run, whose size means nothing.
    """
    feasible = {Kind.SCORED: "true", Kind.INFEASIBLE: "false"}.get(outcome.kind, "unknown")
    tags = {
        "golfray.outcome": outcome.kind.value,
        "golfray.reason": shorten(outcome.reason),
        "golfray.feasible": feasible if share == 1.0 else "unknown",
        "golfray.fidelity": fidelity_text(outcome.fidelity),
    }
    if outcome.search is not None:
        tags["golfray.export"] = shorten(str(outcome.search["words"]))
    if outcome.artifact_sha256:
        tags["golfray.artifact_sha256"] = outcome.artifact_sha256
    return tags


def outcome_metrics(outcome: Outcome, seconds: Mapping[str, float]) -> dict[str, float]:
    """Final metrics under the names of design.md, and where the time went as ``phase/<name>_s`` (seconds)."""
    metrics = {name: finite_or_nan(value) for name, value in outcome.metrics.items()}
    metrics.update({f"phase/{name}_s": finite_or_nan(value) for name, value in seconds.items()})
    return metrics


def study_metrics(found: LaneTime) -> dict[str, float]:
    """Metrics of the parent run: where the time of its lanes went, in seconds, and the share that was of use."""
    metrics = {f"lane_time/{part.replace(' ', '_')}_s": seconds for part, seconds in found.parts.items()}
    return metrics if found.share is None else {"lane_time/share": found.share, **metrics}


def outcome_note(outcome: Outcome, folder: str | None) -> str:
    """Markdown for the description of a trial's run: the first thing its page shows."""
    metrics = outcome.metrics
    lines = [f"**{outcome.kind.value}**: {shorten(outcome.reason or 'no reason given')}"]
    if "bytes/total" in metrics and "bytes/margin" in metrics:
        margin = int(metrics["bytes/margin"])
        side = f"{margin:,} under the cap" if margin >= 0 else f"{-margin:,} over the cap"
        lines += ["", f"{int(metrics['bytes/total']):,} bytes, {side}."]
    if "bpb/roundtrip" in metrics:
        lines += ["", f"{metrics['bpb/roundtrip']:.4f} bits per byte after the round trip."]
    if "bpb/live" in metrics:
        lines += ["", f"{metrics['bpb/live']:.4f} of the live weights before export; averaged ones were exported."]
    if "bpb/sliding" in metrics:
        lines += ["", f"{metrics['bpb/sliding']:.4f} by sliding windows, after the round trip."]
    if outcome.search is not None:
        lines += ["", f"Its export is the best of {outcome.search['tried']}: {outcome.search['words']}."]
    if folder is not None:
        lines += ["", f"Folder of the attempt, below the study's: `{folder}`"]
    return "\n".join(lines)


def trials_view(event: Mapping[str, Any]) -> str:
    """The experiment page's view that ``golfray ui`` opens: a row a trial, in order, with outcome, score and knobs.

    JSON of the page's own state, as MLflow 3.17 keeps it in a tag for a shared view; other versions that do not know
    a field leave it out. It is not ordered by score, because MLflow would put over-cap trials first.
    """
    columns = {f"tags.`golfray.{name}`": 130 for name in ("outcome", "best")}
    columns |= {f"metrics.`{name}`": 115 for name in ("bpb/roundtrip", "bytes/total", "bytes/margin")}
    columns |= {f"params.`{KNOB_PREFIX}{path}`": 60 + 7 * len(KNOB_PREFIX + path) for path in knobs(event)}
    view = {
        "selectedColumns": list(columns),
        "columnOrder": list(columns),
        "columnWidths": columns,
        "searchFilter": "tags.`golfray.role` != 'study'",
        "orderByKey": "tags.`mlflow.runName`",
        "orderByAsc": True,
        "runsHiddenMode": "SHOW_ALL",
    }
    return json.dumps(view)


class Curve:
    """Thins one attempt's progress, as it comes, so that no metric has more than ``CURVE_POINTS`` points.

    Which points are kept depends on their order alone, so a replay keeps the same ones. Two places are reserved: for
    the last point of the curve and for the final value that the outcome brings.
    """

    def __init__(self, expected_points: int) -> None:
        self._stride = max(1, math.ceil(expected_points / (CURVE_POINTS - 2)))
        self._seen = 0
        self._kept = 0
        self._held: Mapping[str, Any] | None = None

    def keep(self, event: Mapping[str, Any]) -> bool:
        """Whether this ``progress`` record is to be written now; if not, it is held in case it turns out the last."""
        kept = self._seen % self._stride == 0 and self._kept < CURVE_POINTS - 2
        self._seen += 1
        self._kept += kept
        self._held = None if kept else event
        return kept

    def last(self) -> Mapping[str, Any] | None:
        """The last record, where it was not kept."""
        return self._held
