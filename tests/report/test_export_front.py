"""The front of an export search as lines: the setting chosen, and whether turning k to the cap has won or lost."""

import dataclasses
from typing import Any

from golfray.core.settings import ExportSettings
from golfray.report.export_front import front_lines

EXPORT = dataclasses.asdict(ExportSettings(format="flat"))


def row(bits_per_byte: float, size: int, landed: bool = False) -> dict[str, Any]:
    known = {"bits_per_byte": bits_per_byte, "added": 0.01, "error": 0.001, "codecs": {}, "sequences": 8}
    return {"export": EXPORT, "bytes": size, "landed": landed, **known}


def last_line(chosen: dict[str, Any], tried: list[dict[str, Any]]) -> str:
    document = {
        "reserve": {"description": "8 sequences"},
        "unquantized": 1.99,
        "front": [chosen],
        "tried": tried,
        "chosen": chosen,
        "max_bytes": 1000,
        "landing": "k ends 2 bytes below the cap",
    }
    return front_lines(document)[-1]


def test_landed_settings_that_lost_are_said_to_have_lost_and_by_what() -> None:
    chosen, worse, worst = row(2.0, 900), row(2.0125, 998, landed=True), row(2.5, 999, landed=True)
    line = last_line(chosen, [chosen, worse, worst])
    assert "k ends 2 bytes below the cap; these lost: 2.01250 bpb at best, the setting chosen has 2.00000" in line


def test_a_landed_setting_that_was_chosen_has_won() -> None:
    chosen, other = row(2.0, 998, landed=True), row(2.1, 900)
    assert last_line(chosen, [other, chosen]).endswith(
        "k ends 2 bytes below the cap; the setting chosen is one of these"
    )


def test_nothing_is_added_where_nothing_landed() -> None:
    assert last_line(row(2.0, 900), [row(2.0, 900)]).endswith("k ends 2 bytes below the cap")
