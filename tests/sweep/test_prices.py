"""Where the price of a node comes from, and what is said of one that cannot be."""

from pathlib import Path

import pytest

from golfray.config.errors import ConfigError
from golfray.config.positions import load_yaml
from golfray.sweep.budget import Price, StudyBudget
from golfray.sweep.prices import PRICES, price_of

ROOT = Path(__file__).parents[2]


def listed(folder: Path, text: str) -> Path:
    (folder / "clusters").mkdir()
    (folder / PRICES).write_text(text)
    return folder


def test_the_shipped_list_has_a_price_for_each_of_its_instances():
    names = load_yaml(ROOT / PRICES).values
    assert names
    for name in names:
        price = price_of(StudyBudget(usd=1, instance=name), None, ROOT)
        # Eight GPUs each: between one and ten dollars for a GPU.
        assert 8 <= price.usd_per_hour <= 80
        assert price.source == f"clusters/prices.yaml: {name}"
    assert price_of(StudyBudget(instance="aws-p5.48xlarge"), None, ROOT).usd_per_hour == 55.04


def test_a_list_of_ones_own_is_below_the_current_folder(tmp_path):
    folder = listed(tmp_path, "my-node: 3\n")
    assert price_of(StudyBudget(instance="my-node"), None, folder) == Price(3.0, "clusters/prices.yaml: my-node")


def test_an_option_says_it_too_and_without_both_there_is_none(tmp_path):
    assert price_of(StudyBudget(usd=5), 2.5, tmp_path) == Price(2.5, "--usd-per-hour")
    assert price_of(StudyBudget(trials=5), None, tmp_path) is None


@pytest.mark.parametrize(
    ("budget", "option", "text", "message"),
    [
        (StudyBudget(usd=5), None, "a: 1\n", "budget.usd is 5, but nothing says what a node costs"),
        (StudyBudget(instance="a"), 2.0, "a: 1\n", "--usd-per-hour 2: budget.instance is a, .*; remove one of the two"),
        (StudyBudget(), float("nan"), None, "--usd-per-hour nan: must be a finite number above 0"),
        (StudyBudget(), float("inf"), None, "--usd-per-hour inf: must be a finite number above 0"),
        (StudyBudget(), -1.0, None, "--usd-per-hour -1: must be a finite number above 0"),
        (StudyBudget(), 0.0, None, "--usd-per-hour 0: must be a finite number above 0"),
        (StudyBudget(instance="a"), None, None, "there is no list of prices .*prices.yaml: write one"),
        (
            StudyBudget(instance="p5.48xl"),
            None,
            "p5.48xlarge: 1\n",
            '"p5.48xl", which has no price in .*; did you mean p5',
        ),
        (
            StudyBudget(instance="a"),
            None,
            "b: 1\na: -2\n",
            "prices.yaml:2:1 a: must be a finite number .*got -2",
        ),
        (StudyBudget(instance="a"), None, "a: .nan\n", "a: must be a finite number above 0.*got NaN"),
        (StudyBudget(instance="a"), None, "a: dear\n", 'a: must be a finite number above 0.*got "dear"'),
        (StudyBudget(instance="a"), None, "a: true\n", "a: must be a finite number above 0.*got true"),
        (StudyBudget(instance="a"), None, "a: 1\na: 2\n", "prices.yaml:2:"),
        (StudyBudget(instance="a"), None, "- a\n", "expected a mapping"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, budget, option, text, message):
    folder = tmp_path if text is None else listed(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        price_of(budget, option, folder)
    assert caught.value.exit_code == 2
