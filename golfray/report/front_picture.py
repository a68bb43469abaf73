"""The front of bits per byte against bytes as a picture: one SVG file that needs nothing else."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from golfray.sweep.export_result import SearchResult, Tried, export_words

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 24, 64, 66
_INK, _PALE, _GRID = "#1f2933", "#9aa5b1", "#e4e7eb"
# Added bits per byte up to which the axis is about linear.
_TURN = 0.001
_FRONT, _CHOSEN, _CAP = "#0b69a3", "#c52707", "#7b8794"


def front_picture(result: SearchResult, title: str) -> str:
    """SVG text: every setting a dot, the front a line, the cap and the chosen setting marked.

    Upwards is what a setting adds to the bits per byte of the float weights on the same sequences, so that those scored
    on a part of the slice, in grey, stand in the same picture. Near 0 that is linear, farther away logarithmic: a front
    falls by orders of magnitude.
    """
    front = result.front()
    added = [0.0, *(each.added for each in result.tried)]
    sizes = [each.bytes for each in result.tried] + [result.max_bytes]
    axes = _Axes(min(sizes) * 0.97, max(sizes) * 1.03, min(added), max(added))
    below = f"{len(result.tried)} settings, {len(front)} on the front"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 28, title, size=17),
        _text(_LEFT, 48, f"{below}. {result.reserve}", color=_CAP),
        *axes.grid(),
        *axes.level(0.0, f"float weights: {result.unquantized:.4f}"),
        *axes.wall(result.max_bytes, "cap"),
        *(axes.dot(each, _pale(each, result), 2.6) for each in result.tried),
        axes.stairs(front),
        *(axes.dot(each, _FRONT, 4.0) for each in front),
    ]
    if result.chosen is not None:
        parts += axes.mark(result.chosen)
    return "\n".join([*parts, "</svg>", ""])


class _Axes:
    """Bytes to the right in their logarithm, added bits per byte upwards."""

    def __init__(self, left: float, right: float, least: float, most: float) -> None:
        self.left, self.right = left, right
        low, high = height(least), height(max(most, _TURN))
        self.bottom, self.top = low - 0.08 * (high - low), high + 0.04 * (high - low)

    def x(self, size: float) -> float:
        share = math.log(size / self.left) / math.log(self.right / self.left)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, score: float) -> float:
        share = (height(score) - self.bottom) / (self.top - self.bottom)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> list[str]:
        """Lines and numbers of both axes, and what they mean."""
        end, low = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        parts = []
        for score in round_scores(self.bottom, self.top):
            y = self.y(score)
            parts += [_line(_LEFT, y, end, y, _GRID), _text(_LEFT - 8, y + 4, f"{score:+g}", anchor="end")]
        for size in round_sizes(self.left, self.right):
            x = self.x(size)
            parts += [_line(x, _TOP, x, low, _GRID), _text(x, low + 18, f"{size:,}", anchor="middle")]
        return [
            *parts,
            _line(_LEFT, low, end, low, _INK),
            _line(_LEFT, _TOP, _LEFT, low, _INK),
            _text((_LEFT + end) / 2, _HEIGHT - 18, "bytes of the artifact", anchor="middle"),
            f'<text transform="translate(18 {(_TOP + low) / 2:.1f}) rotate(-90)" text-anchor="middle">'
            "bits per byte added, on reserved training tokens</text>",
        ]

    def level(self, score: float, words: str) -> list[str]:
        """A horizontal line."""
        y = self.y(score)
        return [
            _line(_LEFT, y, _WIDTH - _RIGHT, y, _CAP, dashed=True),
            # Where artifacts are small nothing comes near the float weights.
            _text(_LEFT + 6, y - 5, words, color=_CAP),
        ]

    def wall(self, size: int, words: str) -> list[str]:
        """A vertical line."""
        x = self.x(size)
        return [
            _line(x, _TOP, x, _HEIGHT - _BOTTOM, _CAP, dashed=True),
            _text(x + 5, _TOP + 12, f"{words} {size:,}", color=_CAP),
        ]

    def dot(self, tried: Tried, color: str, radius: float) -> str:
        """One setting, which says itself when pointed at."""
        told = f"{tried.bytes:,} bytes, {tried.bits_per_byte:.4f} bits per byte: {export_words(tried.export)}"
        return (
            f'<circle cx="{self.x(tried.bytes):.1f}" cy="{self.y(tried.added):.1f}" r="{radius}" '
            f'fill="{color}"><title>{html.escape(told)}</title></circle>'
        )

    def stairs(self, front: Sequence[Tried]) -> str:
        """The best at or under each size, which does not change between two settings."""
        if not front:
            return ""
        steps = [f"M{self.x(front[0].bytes):.1f} {self.y(front[0].added):.1f}"]
        steps += [f"H{self.x(each.bytes):.1f}V{self.y(each.added):.1f}" for each in front[1:]]
        steps.append(f"H{_WIDTH - _RIGHT}")
        return f'<path d="{"".join(steps)}" fill="none" stroke="{_FRONT}" stroke-width="1.6"/>'

    def mark(self, chosen: Tried) -> list[str]:
        """A ring around the chosen setting, and what it is."""
        x, y = self.x(chosen.bytes), self.y(chosen.added)
        # The front falls: what is free of it lies above to the right, and below to the left.
        anchor, shift, down = ("start", 12, -14) if x < _WIDTH * 0.6 else ("end", -12, 22)
        told = f"chosen: {chosen.bytes:,} bytes, {chosen.bits_per_byte:.4f} ({chosen.added:+.4f})"
        return [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{_CHOSEN}" stroke-width="2"/>',
            _text(x + shift, y + down, told, anchor=anchor, color=_CHOSEN),
        ]


def height(score: float) -> float:
    """Where added bits per byte stand: about in proportion up to .001 either way, then by their logarithm."""
    return math.asinh(score / _TURN)


def round_scores(low: float, high: float) -> list[float]:
    """0, and powers of ten times 1 and 3 either way, whose heights are from ``low`` to ``high``."""
    found = [0.0]
    for power in range(-3, 7):
        for factor in (1, 3):
            found += [factor * 10.0**power, -factor * 10.0**power]
    return sorted(score for score in found if low <= height(score) <= high)


def round_sizes(low: float, high: float) -> list[int]:
    """Round sizes for an axis in logarithms: 1, 2 and 5 times powers of ten, and more between where these are few."""
    for factors in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(tenth / 10 for tenth in range(10, 100))):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [round(factor * 10.0**power) for power in powers for factor in factors]
        found = [size for size in dict.fromkeys(found) if low <= size <= high]
        if len(found) >= 4:
            return found[:: math.ceil(len(found) / 9)]
    return found


def _pale(tried: Tried, result: SearchResult) -> str:
    return "#7bb0d6" if tried.sequences == result.sequences else _PALE


def _line(x: float, y: float, to_x: float, to_y: float, color: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}"{dashes}/>'


def _text(x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", color: str = _INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}">'
        f"{html.escape(words)}</text>"
    )
