"""``golfray size``: what it says of presets and spaces, and that it leaves nothing behind."""

import json
import pathlib
import re
import shlex
import shutil

import pytest

from tests.cli.documented import read_tables
from tests.report.scripted import plain_study, write_study

ROOT = pathlib.Path(__file__).parents[2]

FLAT = [
    "export.format=flat",
    "export.scale_floor=0",
    *(f"export.clip_{part}=std" for part in ("attention", "mlp", "embedding")),
]


def sets(*words: str) -> list[str]:
    return [part for word in words for part in ("--set", word)]


@pytest.fixture(scope="module")
def documents(golfray, write_space):
    space = write_space(golfray.folder / "sized.yaml", first_points=[{"optimizer.matrix_lr": 0.09}])
    ends = golfray.run_all(
        {
            "preset": ["size", "parameter-golf", "--scale", "laptop", "--steps", 150, "--json"],
            "guess": ["size", "--scale", "laptop", "--json"],
            "flat": ["size", "--scale", "laptop", *sets(*FLAT), "--json"],
            "space": ["size", space, "--json"],
            "wrong": ["size", "nowhere.yaml"],
            "searched": ["size", "--scale", "laptop", *sets("export.format=flat", "export.search=200")],
        }
    )
    assert [name for name, ended in ends.items() if ended.code != 0] == ["wrong", "searched"], ends
    return {name: ended if ended.code else json.loads(ended.out) for name, ended in ends.items()}


def test_documents_are_as_the_page_says(documents) -> None:
    tables = read_tables()
    for name in ("preset", "guess", "flat", "space"):
        assert tables.mistakes(documents[name]) == []


def test_the_laptop_preset_has_the_size_that_it_is_known_for(documents) -> None:
    (entry,) = documents["preset"]["configurations"]
    # Trials of the laptop preset end at 280 to 292 kB of model.
    assert entry["bytes_model_low"] < 286_000 < entry["bytes_model_high"]
    assert entry["bytes_total"] == entry["bytes_model"] + documents["preset"]["bytes_code"]
    assert entry["margin"] == documents["preset"]["cap_bytes"] - entry["bytes_total"]
    assert sum(entry["parts"].values()) == entry["bytes_model"]
    assert (entry["steps"], entry["steps_known"]) == (150, True)


def test_what_a_search_finds_is_not_foreseen(documents) -> None:
    assert documents["searched"].code == 2
    assert "export.search finds an export that fits" in documents["searched"].err


def test_a_guess_of_the_steps_is_called_one_and_less_certain(documents) -> None:
    (told,), (guess,) = documents["preset"]["configurations"], documents["guess"]["configurations"]
    assert not guess["steps_known"]

    def width(entry) -> int:
        return entry["bytes_model_high"] - entry["bytes_model_low"]

    assert width(guess) > width(told)


def test_under_standard_deviations_no_steps_are_needed(documents) -> None:
    (entry,) = documents["flat"]["configurations"]
    assert (entry["method"], entry["steps"]) == ("closed form", None)


def test_a_space_has_the_points_that_it_runs_anyway(documents) -> None:
    roles = [entry["role"] for entry in documents["space"]["configurations"]]
    assert roles == ["preset", "preset_8bit", "first_point"]
    assert documents["space"]["level"] == 0.95


def test_what_is_neither_preset_nor_file_is_an_error(documents) -> None:
    ended = documents["wrong"]
    assert ended.code == 2
    assert "nowhere.yaml" in ended.one_line()


def page_commands() -> list[list[str]]:
    block = re.search("^```\n(.*?)^```", (ROOT / "docs" / "size.md").read_text(encoding="utf-8"), re.M | re.S)
    return [shlex.split(line, comments=True)[1:] for line in block[1].splitlines()]


@pytest.mark.slow
def test_what_the_page_shows_runs(golfray) -> None:
    shutil.copytree(ROOT / "search_spaces", golfray.folder / "search_spaces")
    write_study(golfray.folder / "studies" / "muon", plain_study())
    commands = {shlex.join(command): command for command in page_commands()}
    assert len(commands) >= 5
    assert {command[0] for command in commands.values()} == {"size"}
    ends = golfray.run_all({name: [*command, "-q"] for name, command in commands.items()})
    assert {name: ended.err for name, ended in ends.items() if ended.code != 0} == {}
    assert all("fits with a chance of" in ended.out or '"fit_probability"' in ended.out for ended in ends.values())
    corrected = [ended.out for name, ended in ends.items() if "--study muon" in name]
    assert [out.count("corrected by") > 0 for out in corrected] == [True]
    assert "seeds differ by" in corrected[0]
    assert "(3 seen)" in corrected[0]
