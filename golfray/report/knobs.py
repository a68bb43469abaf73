"""What a study has taught about its knobs, as a table for a person and as a document for a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from golfray.config.sizes import count_text
from golfray.report.numbers import bpb_text
from golfray.report.printable import line
from golfray.sweep.importance import LEAST_TRIALS, Importance, Importances
from golfray.sweep.knowledge import Estimate, KnobKnown, Knowledge, PartKnown
from golfray.sweep.outcome_rates import OutcomeRates, Rate
from golfray.sweep.records import StudyRecord
from golfray.sweep.statistics import claim

# An importance is printed where shuffled scores give as much no more often than this.
CHANCE = 0.05

_TOKENS = "at equal tokens"
_RATES = {"over cap": "over_cap", "diverged": "diverged", "crashed": "crashed"}


def print_knobs(record: StudyRecord, known: Knowledge, importances: Importances | None, console: Console) -> None:
    """The table and what its numbers mean. ``importances`` is None where there are too few trials for them."""
    names, rows, styles = _rows(known, importances)
    kept = _columns_that_fit(names, rows, console.width)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for index in kept:
        table.add_column(line(names[index]), no_wrap=True, justify="right" if index else "left")
    for cells, style in zip(rows, styles, strict=True):
        table.add_row(*(line(cells[index]) for index in kept), style=style)
    console.print(table)
    left_out = [name for index, name in enumerate(names) if index not in kept]
    for text in (*_notes(record, known, importances), *_rate_notes(names, left_out)):
        console.print(text, soft_wrap=not console.is_terminal)


def knobs_document(
    record: StudyRecord, folder: Path, known: Knowledge, importances: Importances | None
) -> dict[str, Any]:
    """The same as plain values, nothing left out for being noise."""
    found = {} if importances is None else importances.knobs
    return {
        "study": record.name,
        "folder": str(folder),
        "runs": known.runs,
        "outside": known.outside,
        "residual_sd": known.residual_sd,
        "why_no_effects": known.why_no_effects,
        "slope": _estimate(known.slope),
        "why_no_slope": known.why_no_slope,
        "importance_best": None if importances is None else importances.best,
        "importance_trials": None if importances is None else importances.trials,
        "importance_shuffles": None if importances is None else importances.shuffles,
        "why_no_importance": _why_no_importance(known) if importances is None else None,
        "knobs": [_knob(knob, found.get(knob.path)) for knob in known.knobs],
        "at_tokens": [
            {"trial": entry.trial, "ratio": entry.ratio, **dataclasses.asdict(entry.score)} for entry in known.at_tokens
        ],
    }


def _rows(known: Knowledge, importances: Importances | None) -> tuple[list[str], list[list[str]], list[str]]:
    """Names of the columns, cells, and a style for each row; rates of what never happened have no column."""
    rates = [name for name, field in _RATES.items() if any(_count(knob, field) for knob in known.knobs)]
    levelled = [_TOKENS] if known.slope is not None else []
    names = ["knob", "ran", "BPB", "effect", *levelled, *rates]
    rows, styles = [], []
    for knob in known.knobs:
        rows.append([knob.path, "", "", _importance_words(knob, importances), *[""] * (len(names) - 4)])
        styles.append("bold")
        for part in knob.parts:
            cells = [f"  {part.label}", str(part.rates.trials), bpb_text(part.mean), _effect_text(part.effect)]
            cells += [_effect_text(part.effect_at_tokens) for _ in levelled]
            rows.append(cells + [_rate_text(getattr(part.rates, _RATES[name])) for name in rates])
            styles.append(_style(part))
    return names, rows, styles


def _columns_that_fit(names: list[str], rows: list[list[str]], width: int) -> list[int]:
    """Indices of the columns that a line holds; what is left out first matters least."""
    wide = [max(len(cells[index]) for cells in (names, *rows)) for index in range(len(names))]
    kept = list(range(len(names)))
    for name in (*reversed(_RATES), _TOKENS):
        if name in names and sum(wide[index] + 1 for index in kept) - 1 > width:
            kept.remove(names.index(name))
    return kept


def _style(part: PartKnown) -> str:
    """Bold where an effect is told apart from none by two standard deviations; dim where nothing ran."""
    if not part.rates.trials:
        return "dim"
    effect = part.effect
    return "bold" if effect is not None and abs(effect.value) > 2 * effect.sd > 0 else ""


def _importance_words(knob: KnobKnown, importances: Importances | None) -> str:
    found = None if importances is None else importances.knobs.get(knob.path)
    return "" if found is None or found.chance > CHANCE else f"importance {found.share:.2f}"


def _effect_text(effect: Estimate | None) -> str:
    return "-" if effect is None else f"{effect.value:+.4f} +-{effect.sd:.4f}"


def _rate_text(rate: Rate) -> str:
    if not rate.trials:
        return "-"
    return f"{rate.count}/{rate.trials} ({100 * rate.low:.0f}-{100 * rate.high:.0f} %)"


def _count(knob: KnobKnown, field: str) -> int:
    return sum(getattr(part.rates, field).count for part in knob.parts)


def _rate_notes(names: list[str], left_out: list[str]) -> Iterator[Text]:
    absent = [name for name in _RATES if name not in names]
    if absent:
        yield line(f"no trial {' or '.join('was over the cap' if name == 'over cap' else name for name in absent)}")
    if len(absent) < len(_RATES):
        yield line("shares: of the trials that ran to an end of their own, with the 95 % interval (Wilson)")
    if left_out:
        yield line(
            f"too narrow for: {', '.join(left_out)}; a wider terminal (COLUMNS=140) or --json has them", "yellow"
        )


def _notes(record: StudyRecord, known: Knowledge, importances: Importances | None) -> Iterator[Text]:
    if known.why_no_effects is not None:
        yield line(f"no effects: {known.why_no_effects}", "yellow")
    else:
        noise = claim(record).noise
        yield line(
            f"effect: BPB against the mean of the knob's parts, beside the other knobs, +- 1 SD; additive model of "
            f"{count_text(known.runs, 'run')}, {bpb_text(known.residual_sd)} unexplained; "
            f"between seeds: {noise}"
        )
    if known.outside:
        yield line(f"{count_text(known.outside, 'scored run')} outside the space: not counted")
    yield from _token_lines(record, known)
    if importances is None:
        yield line(f"no importance: {_why_no_importance(known)}", "yellow")
        return
    told = [path for path, found in importances.knobs.items() if found.chance <= CHANCE]
    by_luck = f"; of {count_text(len(importances.knobs), 'knob')} about {CHANCE * len(importances.knobs):.1f} by luck"
    which = by_luck if told else "; no knob has one that is told apart from chance"
    yield line(
        f"importance: share in what sets the best {importances.best} of {importances.trials} trials apart (PED-ANOVA); "
        f"shown where at most {100 * CHANCE:g} % of {importances.shuffles} shuffles of the scores give as much{which}"
    )


def _token_lines(record: StudyRecord, known: Knowledge) -> Iterator[Text]:
    if known.slope is None:
        yield line(f"no scores at equal tokens: {known.why_no_slope}")
        return
    yield line(
        f"at equal tokens: score - b ln(tokens / trial 0's), b = {known.slope.value:+.4f} +-{known.slope.sd:.4f} BPB "
        "by the same model; what is left of an effect there is not speed"
    )
    said = claim(record)
    levels = {entry.trial: entry for entry in known.at_tokens}
    if said.best is None or said.difference is None or said.best.number not in levels or said.best.number == 0:
        return
    entry = levels[said.best.number]
    level = entry.score.value - (said.reference_bpb or 0.0)
    yield line(
        f"best feasible t{entry.trial:03d}: {said.difference:+.4f} BPB against trial 0 with {entry.ratio:.2f} times "
        f"its tokens; {level:+.4f} +-{entry.score.sd:.4f} (of the slope alone) at equal tokens"
    )


def _why_no_importance(known: Knowledge) -> str:
    return f"{len(known.scores)} scored trials are too few, {LEAST_TRIALS} are needed"


def _knob(knob: KnobKnown, importance: Importance | None) -> dict[str, Any]:
    return {
        "path": knob.path,
        "importance": None if importance is None else importance.share,
        "chance": None if importance is None else importance.chance,
        "inactive": knob.inactive,
        "parts": [_part(part) for part in knob.parts],
    }


def _part(part: PartKnown) -> dict[str, Any]:
    return {
        "label": part.label,
        "trials": part.rates.trials,
        "scored": part.scored,
        "mean": part.mean,
        "effect": _estimate(part.effect),
        "effect_at_tokens": _estimate(part.effect_at_tokens),
        **_rates(part.rates),
    }


def _rates(rates: OutcomeRates) -> dict[str, Any]:
    found: dict[str, Rate] = {field: getattr(rates, field) for field in _RATES.values()}
    return {name: {"count": rate.count, "low": rate.low, "high": rate.high} for name, rate in found.items()}


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else dataclasses.asdict(estimate)
