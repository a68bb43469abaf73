"""What a resumed study has still to do: budgets in trials and in minutes, and what of them is spent."""

import dataclasses
from typing import Any

import pytest

from golfray.sweep.budget import StudyBudget
from golfray.sweep.events import LOG_NAME
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import Space
from golfray.sweep.space_record import space_of
from golfray.sweep.trial_record import PRESET, REPLICATE
from golfray.sweep.work_left import work_left
from tests.sweep.small_studies import RESUMED, what_came_of


def with_trials(space: Space, trials: int) -> Space:
    return dataclasses.replace(space, budget=StudyBudget(trials=trials))


def test_a_study_with_nothing_left_says_so_without_a_driver(make_in, synthetic) -> None:
    record = make_in(RESUMED, synthetic()).run()
    space = space_of(record, "log")
    assert work_left(space, record).nothing
    assert work_left(space, record).most_lanes == 1
    more = with_trials(space, 9)
    assert (work_left(more, record).suggestions, work_left(more, record).nothing) == (2, False)
    seeds = dataclasses.replace(space, replicates=4)
    assert [point.role for point in work_left(seeds, record).planned] == [REPLICATE, REPLICATE]
    # A first point without a trial to spare for it is not asked; with one, it is, and before the sampler's.
    points = dataclasses.replace(space, first_points=(*space.first_points, {"optimizer.matrix_lr": 0.05}))
    assert work_left(points, record).nothing
    roomy = work_left(with_trials(points, 9), record)
    assert ([point.role for point in roomy.planned], roomy.suggestions) == (["first_point"], 1)


def test_a_driver_that_was_lost_before_it_could_say_so_leaves_the_end_to_be_said(make_in, synthetic) -> None:
    whole = make_in(RESUMED, synthetic())
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: content.rindex(b'{"seq"')])
    record = StudyRecord.load(whole.folder)
    left = work_left(space_of(record, "log"), record)
    assert (left.nothing, left.unfinished, left.suggestions) == (False, (), 0)
    executor = synthetic()
    assert make_in(RESUMED, executor).resume().complete
    assert executor.submitted == []


def test_a_longer_budget_asks_what_the_longer_study_would_have(make_in, synthetic) -> None:
    longer = RESUMED.replace("trials: 7", "trials: 11")
    expected = what_came_of(make_in(longer, synthetic()).run())
    (make_in(RESUMED, synthetic()).folder / LOG_NAME).unlink()
    make_in(RESUMED, synthetic()).run()
    record = make_in(longer, synthetic()).resume(["budget.trials: 7 -> 11"])
    assert what_came_of(record) == expected
    assert record.changes == ["budget.trials: 7 -> 11"]
    assert record.header["budget"] == StudyBudget(trials=11).to_dict()
    assert record.end_reason == "budget spent: 11 trials"


def test_only_the_time_of_drivers_counts_against_the_minutes(make_in, synthetic) -> None:
    """Ten minutes; the first driver lived for four of them, then nobody for an hour."""
    text = RESUMED.replace("{trials: 7}", "{minutes: 10}")
    now = [1000.0]

    def minute(settings: dict[str, Any]) -> Outcome:
        now[0] += 60
        return Outcome(Kind.DIVERGED, "nan")

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            if len(self.submitted) == 5:
                raise SystemExit
            return super().events(timeout)

    study = make_in(text, Dying(minute), clock=lambda: now[0], now=lambda: now[0])
    with pytest.raises(SystemExit):
        study.run()
    assert study.record.driven_seconds == 240
    now[0] += 3600
    record = make_in(text, synthetic(minute), clock=lambda: now[0], now=lambda: now[0]).resume()
    assert record.driven_seconds == 600
    assert sum(attempt.final for trial in record.trials for attempt in trial.attempts) == 10
    assert record.end_reason == "budget spent: 10 minutes"
    assert work_left(space_of(record, "log"), record).nothing


def test_a_trial_asked_in_time_is_run_again_after_it(make_in, synthetic) -> None:
    text = RESUMED.replace("{trials: 7}", "{minutes: 1}")
    now = [1000.0]

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            now[0] += 61
            raise SystemExit

    with pytest.raises(SystemExit):
        make_in(text, Dying(), clock=lambda: now[0], now=lambda: now[0]).run()
    record = make_in(text, synthetic(), clock=lambda: now[0], now=lambda: now[0]).resume()
    assert [(trial.role, trial.outcome.kind) for trial in record.trials] == [(PRESET, Kind.SCORED)]


def test_every_trial_stands_for_one_planned_point_in_whatever_order(make_in, synthetic) -> None:
    """Three first points were asked, one of them twice; then the file has them in another order, and one more."""
    rates = (0.1, 0.05, 0.1)
    text = RESUMED.replace("trials: 7", "trials: 4")
    asked = text.replace("[{optimizer.matrix_lr: 0.1}]", str([{"optimizer.matrix_lr": rate} for rate in rates]))
    record = make_in(asked, synthetic()).run()
    space = with_trials(space_of(record, "log"), 20)

    def left(*rates: float) -> list[float]:
        points = tuple({"optimizer.matrix_lr": rate} for rate in rates)
        planned = work_left(dataclasses.replace(space, first_points=points), record).planned
        return [point.params["optimizer.matrix_lr"] for point in planned]

    assert left(0.05, 0.1, 0.1) == []
    assert left(0.1, 0.1, 0.03, 0.1, 0.05) == [0.03, 0.1]
