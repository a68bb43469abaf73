"""Whether the scores of two configurations may be compared at all: same text, same bytes, same evaluation, same run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golfray.config.errors import shown
from golfray.sweep.scores import ClaimRefused, Scores

# Beyond this share two byte counts are of different texts; below it lies the last, incomplete sequence of a small one.
_SAME_BYTES = 1e-3


def refuse_incomparable(first: Scores, second: Scores) -> list[str]:
    """Raise ``ClaimRefused`` where the two may not be compared; returns what could not be checked, a line each."""
    for scores in (first, second):
        if scores.text.contaminated:
            raise ClaimRefused(
                f"{scores.name}: contaminated data: the training part of {scores.text.name} has validation "
                "documents in it, so no score on it may be quoted"
            )
    notes = _compare_texts(first, second)
    if first.evaluation != second.evaluation:
        raise ClaimRefused(
            f"different evaluation: {first.name} was scored {first.evaluation}, {second.name} {second.evaluation}; "
            "score both in the same way"
        )
    return notes + _compare_fidelity(first, second)


def fits(fidelity: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether everything that ``wanted`` says of a run is said of it in ``fidelity``, and the same."""
    return all(name in fidelity and _same(name, fidelity[name], value) for name, value in wanted.items())


def different_tokenizers(first: Scores, second: Scores) -> bool:
    """Whether a token stands for another number of bytes on one side than on the other, as far as both are known."""
    one, other = first.bytes_per_token, second.bytes_per_token
    return one is not None and other is not None and abs(one - other) > _SAME_BYTES * one


def _compare_texts(first: Scores, second: Scores) -> list[str]:
    one, other = first.text, second.text
    if one.digest is not None and other.digest is not None and one.digest != other.digest:
        raise ClaimRefused(
            f"different data: {first.name} has {one.name} (digest {one.digest[:12]}), {second.name} {other.name} "
            f"(digest {other.digest[:12]}); run both on the same files"
        )
    counts = [_bytes_of(scores) for scores in (first, second)]
    if counts[0] is not None and counts[1] is not None and abs(counts[0] - counts[1]) > _SAME_BYTES * counts[0]:
        what = "data" if one.name != other.name else "byte counts"
        raise ClaimRefused(
            f"different {what}: {first.name} divides by {counts[0]:,.0f} bytes of {one.name}, {second.name} by "
            f"{counts[1]:,.0f} of {other.name}; bits per byte compare on one text only"
        )
    same_files = one.digest is not None and one.digest == other.digest
    if same_files and different_tokenizers(first, second):
        raise ClaimRefused(
            f"different byte counts: a token of {one.name} stands for {first.bytes_per_token:.4f} bytes in the scores "
            f"of {first.name} and for {second.bytes_per_token:.4f} in those of {second.name}, on the same files"
        )
    if None in counts and not same_files and one.name != other.name:
        raise ClaimRefused(
            f"different data: {first.name} was scored on {one.name or 'an unnamed text'}, {second.name} on "
            f"{other.name or 'an unnamed text'}, and their byte counts are not known"
        )
    notes = _unchecked(first, second)
    unknown = [scores.text for scores in (first, second) if scores.text.contaminated is None]
    for text in dict.fromkeys(unknown):
        told = f"it is unknown whether {text.name} has validation documents in its training part"
        if not same_files and one.name != other.name:
            raise ClaimRefused(f"{told}, so it compares with scores on the same files only; `golfray data check` looks")
        notes.append(told)
    return notes


def _bytes_of(scores: Scores) -> float | None:
    """What the scores divide by, as far as it is known: by what they imply, else by what their text has."""
    return scores.text.most_bytes if scores.implied_bytes is None else scores.implied_bytes


def _unchecked(first: Scores, second: Scores) -> list[str]:
    names: dict[str, list[str]] = {}
    for scores in (first, second):
        if scores.text.least_bytes is None:
            why = f"nobody says how many bytes {scores.text.name or 'its text'} has"
        elif scores.implied_bytes is None:
            why = "that takes the loss in nats per token and the number of predicted tokens"
        else:
            continue
        names.setdefault(why, []).append(scores.name)
    return [f"byte counts of {' and '.join(told)} could not be checked: {why}" for why, told in names.items()]


def _compare_fidelity(first: Scores, second: Scores) -> list[str]:
    names = dict.fromkeys([*first.fidelity, *second.fidelity])
    both = [name for name in names if name in first.fidelity and name in second.fidelity]
    different = [name for name in both if not _same(name, first.fidelity[name], second.fidelity[name])]
    if different:
        told = "; ".join(
            f"{name} {shown(first.fidelity[name])} and {shown(second.fidelity[name])}" for name in different
        )
        raise ClaimRefused(
            f"different fidelity: {first.name} and {second.name} have {told}; confirm both on the same machine"
        )
    notes = []
    for scores, other in ((first, second), (second, first)):
        unsaid = [name for name in other.fidelity if name not in scores.fidelity]
        if unsaid:
            notes.append(f"{scores.name} does not say its {', '.join(unsaid)}")
    return notes


def _same(name: str, one: Any, other: Any) -> bool:
    """Devices go by more than one name: "H100" is "NVIDIA H100 80GB HBM3"."""
    if name == "device":
        short, long = sorted((str(one).casefold(), str(other).casefold()), key=len)
        return short in long
    return bool(one == other)
