"""A plan of a study as lines for a person and as a document for a program."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from golfray.config.sizes import count_text, size_text
from golfray.report.cost import forecast_document, time_words, usd_words
from golfray.report.numbers import bytes_text, fidelity_text, margin_text, seconds_text, value_text
from golfray.sweep.disk_room import free_bytes
from golfray.sweep.fit import chance_text
from golfray.sweep.plan import ForeseenPoint, StudyPlan


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What a plan meets here: lines that say the concurrency, the trials' fidelity, what is written into.

    ``store`` is what MLflow's store is called, ``warning`` what is wrong with it for the moment.

    ``taken``: whether the study's folder holds a study already, which is never overwritten.
    """

    lanes: Sequence[str]
    fidelity: Mapping[str, Any]
    study_folder: Path
    temporary_folder: Path
    taken: bool
    store: str
    warning: str | None = None


def plan_lines(plan: StudyPlan, here: Surroundings) -> list[str]:
    """The whole plan."""
    return [
        "dry run: nothing is started and nothing is written",
        f"study {plan.study}: {plan.preset} at scale {plan.scale}, cap {plan.cap_bytes:,} bytes of code and model",
        *_trials(plan),
        f"trials run as: {fidelity_text(here.fidelity)}",
        *here.lanes,
        *_time(plan),
        *_forecast(plan),
        *_disk(plan, here),
        f"MLflow: {here.store}",
        *([] if here.warning is None else [f"  {here.warning}"]),
        *_data(plan),
        *_sizes(plan),
    ]


def plan_document(plan: StudyPlan, here: Surroundings) -> dict[str, Any]:
    """The same as plain values; times in seconds, sizes in bytes."""
    costs = plan.time.costs
    return {
        "study": plan.study,
        "preset": plan.preset,
        "scale": plan.scale,
        "cap_bytes": plan.cap_bytes,
        "budget": plan.budget.to_dict(),
        "trials": {"count": len(plan.roles), "roles": list(plan.roles), "limited_by_time": plan.time.limited},
        "fidelity": dict(here.fidelity),
        "lanes": {"count": plan.lanes, "workers": plan.workers, "describe": list(here.lanes)},
        "time": {
            "total_s": plan.time.total_s,
            "rounds": plan.time.rounds,
            "open_s": costs.open_s,
            "lanes_s": costs.lanes_s,
            "trial_s": costs.trial_s,
            "phases_s": dict(costs.phases),
            "handover_s": costs.handover_s,
            "compile_first_s": costs.compile_first_s,
            "close_s": costs.close_s,
            "sources": list(costs.sources),
        },
        "forecast": forecast_document(plan.forecast),
        "usd_per_hour": None if plan.price is None else plan.price.usd_per_hour,
        "disk": {
            "study_folder": str(here.study_folder),
            "study_folder_taken": here.taken,
            "study_bytes": plan.disk.need.study,
            "parts": dict(plan.disk.need.parts),
            "trials": plan.disk.trials,
            "retries": plan.disk.retries,
            "bounded": plan.disk.bounded,
            "attempt_bytes": plan.disk.an_attempt,
            "elsewhere_bytes": plan.disk.need.elsewhere,
            "study_free_bytes": free_bytes(here.study_folder),
            "temporary_bytes": plan.disk.need.temporary,
            "temporary_free_bytes": free_bytes(here.temporary_folder),
        },
        "store": here.store,
        "data": {
            "corpus": plan.corpus.name,
            "built": plan.corpus.built,
            "train_tokens": plan.corpus.train_tokens,
            "steps": costs.steps,
            "passes": plan.passes,
        },
        "bytes_code": plan.bytes_code,
        "points": [dataclasses.asdict(point) for point in plan.points],
    }


def _trials(plan: StudyPlan) -> Iterator[str]:
    counted = collections.Counter(plan.roles)
    words = ", ".join(role if count == 1 else f"{count} {role}" for role, count in counted.items())
    limits = plan.budget.words(" without replicates")
    ends = ", as time allows" if plan.time.limited else ""
    yield f"{count_text(len(plan.roles), 'trial')}{ends}: {words} (budget: {' or '.join(limits)})"


def _time(plan: StudyPlan) -> Iterator[str]:
    time, costs = plan.time, plan.time.costs
    rounds = count_text(time.rounds, "round")
    yield f"time: about {seconds_text(time.total_s)} in all, {rounds} of {_lanes(plan)}"
    yield f"  start: {seconds_text(costs.open_s)} to Ray, {seconds_text(costs.lanes_s)} to the first trial"
    phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in costs.phases.items())
    yield f"  a trial: {seconds_text(costs.trial_s)} = {phases}, to the next {costs.handover_s:.1f}"
    if costs.first_extra_s >= 0.05:
        yield f"  the first of a lane: {seconds_text(costs.first_extra_s)} more, to compile"
    yield f"  end: {seconds_text(costs.close_s)}"
    for source in costs.sources:
        yield f"  {source}"


def _forecast(plan: StudyPlan) -> Iterator[str]:
    if plan.forecast is None:
        return
    yield f"  to the last trial's end: {time_words(plan.forecast)}"
    usd = usd_words(plan.forecast)
    if plan.price is not None and usd is not None:
        yield f"cost: {usd}; a node costs {plan.price.usd_per_hour:g} USD an hour ({plan.price.source})"


def _lanes(plan: StudyPlan) -> str:
    return "one trial" if plan.lanes == 1 else f"{plan.lanes} trials"


def _disk(plan: StudyPlan, here: Surroundings) -> Iterator[str]:
    disk, need = plan.disk, plan.disk.need
    if here.taken:
        yield f"{here.study_folder} holds a study already: to start this one, give another folder with --study-dir"
    parts = ", ".join(f"{what} {size_text(size)}" for what, size in need.parts.items())
    limit = "at most" if disk.bounded else "about"
    yield f"disk: {limit} {size_text(need.study)} in {here.study_folder} ({_free(here.study_folder)}): {parts}"
    retries = f"{disk.retries} of them made once more" if disk.retries > 1 else "one of them made once more"
    trials = count_text(disk.trials, "trial")
    ends = "" if disk.bounded else "; nothing but time limits their number"
    yield f"  for {trials}, {retries}; each further attempt at one needs {size_text(disk.an_attempt)}{ends}"
    if need.elsewhere:
        yield f"  and {size_text(need.elsewhere)} in MLflow's store, {here.store}"
    free = _free(here.temporary_folder)
    yield f"  and {size_text(need.temporary)} in {here.temporary_folder} while it runs ({free})"


def _free(folder: Path) -> str:
    return f"{size_text(free_bytes(folder))} free"


def _data(plan: StudyPlan) -> Iterator[str]:
    corpus, steps = plan.corpus, plan.time.costs.steps
    built = "" if corpus.built else " (not built yet: its known counts)"
    yield (
        f"data: about {steps:,} steps a trial are {plan.passes:.2f} passes over the {corpus.train_tokens:,} training "
        f"tokens of {corpus.name}{built}"
    )
    if plan.passes > 1:
        yield f"  warning: every trial reads its training text {plan.passes:.1f} times"


def _sizes(plan: StudyPlan) -> Iterator[str]:
    yield f"expected bytes of the first trials, {plan.bytes_code:,} of them code; +- is what is usually missed by"
    for point in plan.points:
        before = plan.points[0].params if point.number else {}
        yield f"  t{point.number:03d} {point.role}: {_size(point)}{_knobs(point, before)}"


def _size(point: ForeseenPoint) -> str:
    if point.bytes_total is None or point.margin is None or point.error is None or point.fit_probability is None:
        return "the best export under the cap" if point.refused is None else f"refused: {point.refused}"
    total, error = bytes_text(point.bytes_total), bytes_text(point.error)
    chance = f"fits with a chance of {chance_text(point.fit_probability)}"
    end = ", too little to be tried" if point.too_large else ""
    return f"about {total} +-{error}, margin {margin_text(point.margin)}, {chance}{end}"


def _knobs(point: ForeseenPoint, before: Mapping[str, Any]) -> str:
    """Knobs whose values are not those of trial 0."""
    own = [f"{path} {value_text(value)}" for path, value in point.params.items() if before.get(path) != value]
    return f" ({', '.join(own) or 'as trial 0'})"
