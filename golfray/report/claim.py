"""``golfray claim``: what one configuration has to show against another, for a person and for a program."""

from __future__ import annotations

import dataclasses
from typing import Any

from golfray.report.numbers import bytes_text, first_line
from golfray.sweep.evidence import Evidence, Needed, Verdict
from golfray.sweep.scores import Run, Scores
from golfray.sweep.significance import OneSided


def claim_lines(evidence: Evidence) -> list[str]:
    """Every run of both sides, the difference, its tests, the rules, and what speaks against the claim."""
    first, second = evidence.first, evidence.second
    lines = [
        f"is {first.name} below {second.name}? ({first.evaluation}; {_fidelity(first)})",
        *_scores_lines(first),
        *_scores_lines(second),
        _difference(evidence),
        f"  Welch, one-sided: {_tests(evidence.tests)}",
    ]
    if evidence.paired is not None:
        lines.append(f"  paired on {evidence.pairs} seeds that both ran on: {_test(evidence.paired)} in BPB")
    if evidence.noise is None:
        lines.append("  noise unknown: no configuration of this fidelity ran on several seeds")
    else:
        lines.append(f"  with the noise of the fidelity: {_tests(evidence.known_tests)}")
        noise = f"{evidence.noise.sd:.5f} BPB over {evidence.noise.df} degrees of freedom"
        lines.append(f"    pooled SD {noise}, from {evidence.noise_of}")
    if evidence.luck is not None:
        lines.append(
            f"  luck of the best of {first.chosen_of}: {evidence.luck:.5f} BPB if all were equally good; "
            f"without it the difference is {evidence.difference + evidence.luck:+.5f}"
        )
    for verdict in evidence.verdicts:
        lines += _verdict_lines(evidence, verdict)
    lines += [f"against it: {objection}" for objection in evidence.objections]
    notes = [*evidence.notes, *(scores.note for scores in (first, second) if scores.note is not None)]
    return lines + [f"note: {note}" for note in dict.fromkeys(notes)]


def claim_document(evidence: Evidence) -> dict[str, Any]:
    """The document of the kind "claim"."""
    return {
        "first": _scores_document(evidence.first),
        "second": _scores_document(evidence.second),
        "difference": evidence.difference,
        "difference_nats": evidence.difference_nats,
        "welch": {unit: _test_document(test) for unit, test in evidence.tests.items()},
        "known_noise": {unit: _test_document(test) for unit, test in evidence.known_tests.items()},
        "pairs": evidence.pairs,
        "paired": _test_document(evidence.paired),
        "noise": None if evidence.noise is None else dataclasses.asdict(evidence.noise),
        "noise_of": evidence.noise_of,
        "luck": evidence.luck,
        "identical": evidence.identical,
        "objections": list(evidence.objections),
        "notes": list(evidence.notes),
        "power": evidence.power,
        "rules": [_verdict_document(verdict) for verdict in evidence.verdicts],
    }


def _scores_lines(scores: Scores) -> list[str]:
    sample = scores.sample
    spread = "" if sample.sd is None else f", SD {sample.sd:.5f}"
    runs = f"{sample.n} run" if sample.n == 1 else f"{sample.n} runs"
    return [f"{scores.name}: {sample.mean:.5f} BPB{spread}, {runs}", *map(_run_line, scores.runs)]


def _run_line(run: Run) -> str:
    parts = [] if run.bpb is None else [f"{run.bpb:.5f} BPB"]
    parts += [] if run.nats is None else [f"{run.nats:.5f} nats per token"]
    parts += [] if run.bytes_total is None else [f"{bytes_text(run.bytes_total)} bytes"]
    parts += [] if run.left_out is None else [f"not counted: {first_line(run.left_out)}"]
    return f"  {run.label}: {', '.join(parts)}"


def _difference(evidence: Evidence) -> str:
    nats = "" if evidence.difference_nats is None else f", {evidence.difference_nats:+.5f} nats per token"
    side = "better" if evidence.difference < 0 else "worse" if evidence.difference > 0 else "equal"
    return f"difference: {evidence.difference:+.5f} BPB{nats}: {side}"


def _tests(tests: dict[str, OneSided | None]) -> str:
    bpb, nats = tests["bpb"], tests["nats"]
    if bpb is None:
        return "needs two runs of each side that differ"
    return f"{_test(bpb)} in BPB" + ("" if nats is None else f", p {_p(nats.p)} in nats")


def _test(test: OneSided) -> str:
    return f"t {test.t:.2f}, {test.df:.1f} degrees of freedom, p {_p(test.p)}"


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def _verdict_lines(evidence: Evidence, verdict: Verdict) -> list[str]:
    rule = verdict.rule
    if verdict.unknown is not None:
        told = f"not met: {verdict.unknown}"
    elif verdict.met:
        told = "met"
    else:
        told = "not met" if verdict.welch is not None and verdict.welch.p >= rule.alpha else "met by the numbers only"
    values = [] if verdict.welch is None else [f"Welch p {_p(verdict.welch.p)}"]
    values += [] if verdict.known is None else [f"with the fidelity's noise p {_p(verdict.known.p)}"]
    told += f" ({', '.join(values)})" if values else ""
    lines = [f"rule {rule.name}, {rule.words}: {told}"]
    if verdict.needed is not None and not verdict.met:
        lines.append(f"  {_needed(evidence, verdict.needed)}")
    return lines


def _needed(evidence: Evidence, needed: Needed) -> str:
    first, second = evidence.first, evidence.second
    seen = "what was seen" if evidence.luck is None else "what was seen less the luck"
    head = f"for {evidence.power:.0%} power, if the true difference is {seen}:"
    if needed.first is None:
        return f"{head} no number of runs of {first.name} is enough"
    own = _more(first, needed.first)
    if second.kind != "trial" or needed.second is None:
        return f"{head} {own}"
    return f"{head} {own}; {_more(second, needed.second)}"


def _more(scores: Scores, runs: int) -> str:
    """A score that the trial was chosen by is no run of these."""
    have = 0 if scores.chosen_of is not None else scores.sample.n
    return f"{runs} runs of {scores.name}, {max(runs - have, 0)} more than there are"


def _fidelity(scores: Scores) -> str:
    return ", ".join(f"{name} {value}" for name, value in scores.fidelity.items())


def _scores_document(scores: Scores) -> dict[str, Any]:
    return {
        "name": scores.name,
        "kind": scores.kind,
        **dataclasses.asdict(scores.sample),
        "runs": [dataclasses.asdict(run) for run in scores.runs],
        "text": scores.text.name,
        "evaluation": scores.evaluation,
        "fidelity": dict(scores.fidelity),
        "bytes_per_token": scores.bytes_per_token,
        "implied_bytes": scores.implied_bytes,
        "chosen_of": scores.chosen_of,
        "note": scores.note,
    }


def _test_document(test: OneSided | None) -> dict[str, float] | None:
    return None if test is None else dataclasses.asdict(test)


def _verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {
        "rule": verdict.rule.name,
        "margin_nats": verdict.rule.margin,
        "alpha": verdict.rule.alpha,
        "met": verdict.met,
        "unknown": verdict.unknown,
        "welch": _test_document(verdict.welch),
        "known_noise": _test_document(verdict.known),
        "runs_needed": None if verdict.needed is None else verdict.needed.first,
        "runs_needed_second": None if verdict.needed is None else verdict.needed.second,
    }
