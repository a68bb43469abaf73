"""The front of a search over exports as a table: bits per byte against bytes, and what each setting is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golfray.report.numbers import bytes_text

_CLASSES = ("attention", "mlp", "embedding")


def front_lines(document: Mapping[str, Any]) -> list[str]:
    """Lines of a table for the content of front.json, by rising bytes; the setting chosen has a star.

    ``bpb`` is on the reserved slice of training tokens, the loss against the weights as they are beside it.
    """
    reserve, unquantized = document["reserve"], document["unquantized"]
    lines = [
        f"{reserve['description']}; {unquantized:.5f} bpb there before quantization",
        f"  {'model bytes':>12} {'bpb':>8} {'loss':>8} {'+-':>7}  {'codec':<9} "
        + " ".join(f"{kind:<15}" for kind in _CLASSES)
        + " rest",
    ]
    for row in document["front"]:
        star = "*" if row == document["chosen"] else " "
        export, bpb = row["export"], row["bits_per_byte"]
        codec = export["codec"] + ("+shuf" if export["shuffle"] else "")
        lines.append(
            f"{star} {bytes_text(row['bytes']):>12} {bpb:>8.5f} {row['added']:>+8.5f} {row['error']:>7.5f}  "
            f"{codec:<9} " + " ".join(f"{class_text(export, kind):<15}" for kind in _CLASSES) + f" {_rest(export)}"
        )
    if document["chosen"] is None:
        lines.append(f"nothing fits into {bytes_text(document['max_bytes'])} bytes")
    else:
        lines.append(f"* the best at or under {bytes_text(document['max_bytes'])} bytes")
        lines.append(f"k of finalists turned towards the cap: {document['landing']}{_landed_words(document)}")
    return lines


def search_text(search: Mapping[str, Any]) -> str:
    """What the search of a trial's export found, from the outcome's summary of it."""
    front = f"{len(search['front'])} on the front, in front.json"
    return f"export: the best that fits of {search['tried']} ({front}): {search['words']}"


def _landed_words(document: Mapping[str, Any]) -> str:
    """Whether turning k has won or lost, where it came to anything."""
    scores = [row["bits_per_byte"] for row in document["tried"] if row["landed"]]
    if not scores:
        return ""
    if document["chosen"]["landed"]:
        return "; the setting chosen is one of these"
    best = document["chosen"]["bits_per_byte"]
    return f"; these lost: {min(scores):.5f} bpb at best, the setting chosen has {best:.5f}"


def class_text(export: Mapping[str, Any], kind: str) -> str:
    """How one class of tensors is stored, such as ``6 std k=12.85``."""
    bits, clip = export[f"bits_{kind}"], export[f"clip_{kind}"]
    if bits > 8:
        return f"float{bits}"
    return f"{bits} {clip}" + (f" k={export[f'clip_k_{kind}']:.4g}" if clip == "std" else "")


def _rest(export: Mapping[str, Any]) -> str:
    words = ["gptq"] if export["gptq"] else []
    words += [f"groups of {export['group_size']}"] if export["group_size"] else []
    return ", ".join(words) or "-"
