"""Expected sizes as lines for a person and as a document for a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from golfray.report.numbers import bytes_text, margin_text
from golfray.sweep.fit import chance_text
from golfray.sweep.size_outlook import SizeOutlook


def size_lines(outlooks: Sequence[SizeOutlook], level: float) -> list[str]:
    """Every configuration with its interval, and the parts of the first one; ``level``: what intervals hold."""
    first = outlooks[0]
    cap, code = first.fit.cap_bytes, first.fit.bytes_code
    lines = [f"cap {bytes_text(cap)} bytes, {bytes_text(code)} of them code; intervals hold {100 * level:g} %"]
    for outlook in outlooks:
        lines += _outlook(outlook, level)
    lines.append(f"parts of {first.role}:")
    widest = max(len(part) for part in first.estimate.parts)
    for part, taken in sorted(first.estimate.parts.items(), key=lambda entry: -entry[1]):
        share = 100 * taken / first.estimate.bytes
        lines.append(f"  {part:<{widest}}  {bytes_text(taken):>12}  {share:4.1f} %")
    return lines


def size_document(outlooks: Sequence[SizeOutlook], level: float) -> dict[str, Any]:
    """The same as plain values, in bytes."""
    first = outlooks[0].fit
    return {
        "cap_bytes": first.cap_bytes,
        "bytes_code": first.bytes_code,
        "level": level,
        "configurations": [_entry(outlook, level) for outlook in outlooks],
    }


def _outlook(outlook: SizeOutlook, level: float) -> Iterator[str]:
    fit, estimate = outlook.fit, outlook.estimate
    low, high = fit.interval(level)
    yield (
        f"{outlook.role}: model about {bytes_text(estimate.bytes)} ({bytes_text(max(low - fit.bytes_code, 0))} to "
        f"{bytes_text(high - fit.bytes_code)}), total {bytes_text(fit.bytes_total)}, margin {margin_text(fit.margin)}, "
        f"fits with a chance of {chance_text(fit.probability)}"
    )
    known = "" if outlook.steps_known else ", a guess"
    steps = "" if outlook.steps is None else f" after {outlook.steps:,} steps{known}"
    learned = f", corrected by {outlook.learned_from} measured" if outlook.learned_from else ""
    spread = f"seeds differ by {100 * outlook.spread.relative:.2g} %"
    source = f"{outlook.spread.seeds} seen" if outlook.spread.seeds else "assumed"
    yield f"  by {estimate.method}{steps}{learned}; {spread} ({source})"


def _entry(outlook: SizeOutlook, level: float) -> dict[str, Any]:
    fit, estimate = outlook.fit, outlook.estimate
    low, high = fit.interval(level)
    return {
        "role": outlook.role,
        "method": estimate.method,
        "steps": outlook.steps,
        "steps_known": outlook.steps_known,
        "bytes_model": estimate.bytes,
        "bytes_model_low": max(low - fit.bytes_code, 0),
        "bytes_model_high": high - fit.bytes_code,
        "bytes_total": fit.bytes_total,
        "margin": fit.margin,
        "fit_probability": fit.probability,
        "parts": dict(estimate.parts),
        "learned_from": outlook.learned_from,
        "seed_spread": outlook.spread.relative,
        "seeds_seen": outlook.spread.seeds,
    }
