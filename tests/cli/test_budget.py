"""Budgets as they are typed: one clear message and an exit code for each mistake, and what a study says it has cost."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]

SPACE = """\
name: {name}
preset: parameter-golf
scale: laptop
budget: {budget}
replicates: 1
sampler: random
limits: {{start: 10, data: 10, compile: 30, train: 60, validate: 20, export: 20, score: 20}}
fixed: {{cap_bytes: 400000, runtime.log_points: 2, stop.steps: 120, stop.seconds: null}}
knobs: {{optimizer.matrix_lr: {{low: 0.02, high: 0.2, log: true}}}}
"""

# What is wrong with it, as budget and further arguments: exit code, and the message.
MISTAKES: dict[str, tuple[str, list[str], int, str]] = {
    "negative": ("{usd: -1}", [], 2, "negative.yaml:4:10 budget.usd: must be > 0, got -1"),
    "nan": ("{gpu_hours: .nan}", [], 2, "nan.yaml:4:10 budget.gpu_hours: must be a finite number, got NaN"),
    "nothing": (
        "{confirmations: 2}",
        [],
        2,
        "nothing.yaml:4:1 budget: limits nothing; give one or more of trials, minutes, gpu_hours, usd",
    ),
    "kept_of_nothing": (
        "{trials: 2, confirmations: 2}",
        [],
        2,
        "kept_of_nothing.yaml:4:21 budget.confirmations: keeps back gpu_hours and usd; give one of them, or remove it",
    ),
    "misspelt": ("{usdd: 1}", [], 2, "misspelt.yaml:4:10 budget.usdd: is unknown here; did you mean usd?"),
    "unpriced": (
        "{usd: 5}",
        [],
        2,
        "budget.usd is 5, but nothing says what a node costs: name its type as budget.instance, one of "
        "clusters/prices.yaml, or give --usd-per-hour",
    ),
    "price_nan": ("{usd: 5}", ["--usd-per-hour=nan"], 2, "--usd-per-hour nan: must be a finite number above 0"),
    "price_negative": ("{trials: 1}", ["--usd-per-hour=-2"], 2, "--usd-per-hour -2: must be a finite number above 0"),
    "unlisted": ("{usd: 5, instance: nodes}", [], 2, 'budget.instance is "nodes", which has no price in '),
    "twice": (
        "{usd: 5, instance: node}",
        ["--usd-per-hour=2"],
        2,
        "--usd-per-hour 2: budget.instance is node, which has its price in clusters/prices.yaml; remove one of the two",
    ),
    "too_little": (
        "{usd: 0.1}",
        ["--executor=sim", "--usd-per-hour=3"],
        3,
        "the budget does not hold one more trial: 0.1 USD hold these nodes for 30 s more, and a trial may take 230 s, "
        "the limits of its phases together; give more, or lower limits",
    ),
}


@pytest.fixture(scope="module")
def mistaken(golfray):
    clusters = golfray.folder / "clusters"
    clusters.mkdir(exist_ok=True)
    (clusters / "prices.yaml").write_text("node: 3.6\n")
    commands = {}
    for name, (budget, more, _, _) in MISTAKES.items():
        space = golfray.folder / f"{name}.yaml"
        space.write_text(SPACE.format(name=name, budget=budget))
        commands[name] = ["tune", space.name, *more]
    return golfray.run_all(commands)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_one_message_and_its_exit_code(mistaken, name):
    _, _, code, message = MISTAKES[name]
    ended = mistaken[name]
    assert ended.code == code, ended
    assert message in ended.one_line()


@pytest.mark.slow
def test_a_priced_study_says_what_it_has_cost_and_keeps_its_price(golfray):
    clusters = golfray.folder / "clusters"
    clusters.mkdir(exist_ok=True)
    (clusters / "prices.yaml").write_text("node: 3.6\n")
    space = golfray.folder / "dollars.yaml"
    space.write_text(SPACE.format(name="dollars", budget="{usd: 0.8, instance: node}"))
    ended = golfray.run("tune", space.name, "--executor=sim")
    assert ended.code == 0, ended
    assert "0.8 USD" in ended.out
    assert " of 0.8 USD booked; a node costs 3.6 USD an hour (clusters/prices.yaml: node)" in ended.out
    document = json.loads(golfray.run("status", "dollars", "--json", "-q").out)
    assert 0.8 - 0.23 < document["cost"]["usd"] <= 0.8
    assert (document["cost"]["usd_per_hour"], document["cost"]["price_source"]) == (3.6, "clusters/prices.yaml: node")
    assert document["end_reason"].startswith("budget spent: 0.8 USD hold these nodes for ")
    # The list may have changed since, or be gone: a study goes on at the price that it began with.
    (clusters / "prices.yaml").unlink()
    again = golfray.run("tune", "--resume", "dollars", "--executor=sim")
    assert (again.code, "nothing is left to run" in again.out) == (0, True), again
    dearer = golfray.folder / "dollars.yaml"
    dearer.write_text(SPACE.format(name="dollars", budget="{usd: 2}"))
    refused = golfray.run("tune", dearer.name, "--resume", "dollars", "--executor=sim", "--usd-per-hour=7.2")
    assert refused.code == 2
    assert "usd_per_hour: 3.6 -> 7.2" in refused.err
