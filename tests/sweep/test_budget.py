"""Budgets in USD and GPU-hours: what is booked, until when nodes may be held, and that what may start surely fits."""

import dataclasses
import math

import pytest

from golfray.config.errors import ConfigError
from golfray.core.settings import RunSettings
from golfray.sweep.budget import (
    BOOT_S,
    CLOSE_S,
    END_S,
    Booked,
    BudgetTooSmall,
    Price,
    StudyBudget,
    allowance,
    booked,
    check_first,
    hard_limit_s,
)
from golfray.sweep.confirmation import plan_confirmations
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.executor import Holding
from golfray.sweep.limits import PHASES, PhaseLimits
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import CONFIRM
from tests.sweep.conftest import synthetic_law
from tests.sweep.small_studies import RESUMED

LIMITS = PhaseLimits(start=10, data=10, compile=20, train=100, validate=5, calibrate=7, search=11, export=5, score=10)
TRIAL_S = 10 + 10 + 20 + 100 + 5 + 5 + 10 + END_S
NOTHING = Booked(0.0, 0.0, None)
NODE = Holding(nodes=1, gpus=8)
DOLLAR_AN_HOUR = Price(1.0, "--usd-per-hour")

# By these a trial is over after 100 s and the 60 in which it is ended; it takes what the test says.
TENS = "limits: {start: 10, data: 10, compile: 10, train: 10, validate: 10, calibrate: 10, export: 10, score: 40}\n"
BOUNDED = RESUMED + TENS


def settings(**changes: object) -> dict:
    return dataclasses.asdict(dataclasses.replace(RunSettings(), **changes))


def allowed(
    budget: StudyBudget,
    spent: Booked = NOTHING,
    holding: Holding = NODE,
    price=DOLLAR_AN_HOUR,
    slots: int = 1,
    confirmed: int = 0,
):
    at = {"held_since": 1000.0, "slots": slots, "confirmed": confirmed}
    return allowance(budget, LIMITS, settings(), spent, holding, price, **at)


def test_the_hard_limit_is_the_sum_of_those_of_the_phases_that_a_trial_has():
    assert hard_limit_s(settings(), LIMITS) == TRIAL_S
    plain = RunSettings()
    learned = settings(export=dataclasses.replace(plain.export, gptq=True))
    assert hard_limit_s(learned, LIMITS) == TRIAL_S + 7
    sliding = dataclasses.replace(plain.evaluation, sliding_stride=64, sliding_seconds=30.0)
    assert hard_limit_s(settings(evaluation=sliding), LIMITS) == TRIAL_S + 2 * 30 + 120
    # Every phase that there is counts; a new one must too.
    every = settings(evaluation=sliding, export=dataclasses.replace(plain.export, gptq=True, search=2), stop=plain.stop)
    total = sum(getattr(LIMITS, phase) or 180 for phase in PHASES)
    assert hard_limit_s(every, LIMITS) == total + END_S


def test_a_phase_without_a_limit_leaves_the_trial_without_one():
    endless = dataclasses.replace(LIMITS, train=None)
    timed = dataclasses.replace(RunSettings().stop, seconds=600.0)
    stepped = dataclasses.replace(RunSettings().stop, seconds=None, steps=20)
    assert hard_limit_s(settings(stop=timed), endless) == TRIAL_S - 100 + 2 * 600 + 120
    assert hard_limit_s(settings(stop=stepped), endless) is None
    with pytest.raises(ConfigError, match=r"need a limit on every phase.*give limits\.train"):
        allowance(
            StudyBudget(usd=5),
            endless,
            settings(stop=stepped),
            NOTHING,
            NODE,
            DOLLAR_AN_HOUR,
            held_since=0.0,
            slots=1,
            confirmed=0,
        )


def test_caps_are_moments():
    # Two dollars at a dollar an hour, of which closing takes its part.
    assert allowed(StudyBudget(usd=2)).until == 1000 + 2 * 3600 - CLOSE_S
    assert allowed(StudyBudget(usd=2), Booked(1800.0, 0.0, 0.5)).until == pytest.approx(1000 + 1.5 * 3600 - CLOSE_S)
    assert allowed(StudyBudget(usd=2), holding=Holding(4, 32)).until == 1000 + 0.5 * 3600 - CLOSE_S
    assert allowed(StudyBudget(gpu_hours=2)).until == 1000 + 900 - CLOSE_S
    assert allowed(StudyBudget(gpu_hours=2), Booked(100.0, 800.0, None)).until == 1000 + 800 - CLOSE_S
    both = allowed(StudyBudget(gpu_hours=2, usd=2))
    assert (both.until, both.cap) == (1000 + 900 - CLOSE_S, "2 GPU-hours")
    assert allowed(StudyBudget(trials=2, minutes=3), price=None).until == math.inf


def test_confirmations_are_kept_back_and_have_what_was_kept():
    kept = allowed(StudyBudget(usd=2, confirmations=5), slots=2)
    assert kept.until - kept.search_until == BOOT_S + 3 * TRIAL_S + CLOSE_S
    last = kept.search_until - TRIAL_S
    assert kept.fits(settings(), last, confirms=False)
    assert not kept.fits(settings(), last + 0.001, confirms=False)
    assert kept.fits(settings(), kept.until - TRIAL_S, confirms=True)
    assert not kept.fits(settings(), kept.until - TRIAL_S + 0.001, confirms=True)
    with pytest.raises(
        BudgetTooSmall,
        match=rf"2 USD hold .* for {TRIAL_S - 1:.0f} s more beside {kept.until - kept.search_until:.0f} s kept back",
    ):
        check_first(kept, settings(), last + 1, confirms=False)


def test_what_was_confirmed_is_not_kept_back_for_again():
    budget = StudyBudget(usd=2, confirmations=5)
    some, all_of_them, more = (allowed(budget, slots=2, confirmed=count) for count in (2, 5, 9))
    assert some.until - some.search_until == BOOT_S + 2 * TRIAL_S + CLOSE_S
    assert all_of_them.search_until == all_of_them.until == more.search_until == allowed(StudyBudget(usd=2)).until


def test_what_runs_is_ended_while_its_end_can_still_be_paid():
    found = allowed(StudyBudget(usd=2))
    assert not found.is_over(found.until - END_S)
    assert found.is_over(found.until - END_S + 0.001)
    assert not allowed(StudyBudget(trials=1), price=None).is_over(1e12)


@pytest.mark.parametrize(
    ("budget", "changes", "message"),
    [
        (StudyBudget(usd=5), {"price": None}, "budget.usd is 5, but nothing says what a node costs"),
        (
            StudyBudget(usd=5),
            {"spent": Booked(100.0, 0.0, None)},
            "budget.usd is 5, but the study has run without a price before",
        ),
        (StudyBudget(gpu_hours=5), {"holding": Holding(1, 0)}, "budget.gpu_hours is 5, but no GPU is held here"),
    ],
)
def test_caps_that_cannot_be_reckoned_with(budget, changes, message):
    with pytest.raises(ConfigError, match=message):
        allowed(budget, **changes)


class Timed:
    """A clock that a law of trials moves on."""

    def __init__(self, seconds: float, start: float = 5000.0) -> None:
        self.now, self.seconds = start, seconds

    def __call__(self) -> float:
        return self.now

    def run(self, raw: dict) -> Outcome:
        self.now += self.seconds
        return Outcome(Kind.DIVERGED, "nan")


def played(make_in, synthetic, clock: Timed, text: str, usd_per_hour: float, resume: bool = False, **more):
    study = make_in(
        text,
        synthetic(clock.run),
        clock=clock,
        now=clock,
        price=Price(usd_per_hour, "--usd-per-hour"),
        held_since=clock.now - 20,
        **more,
    )
    return study.resume() if resume else study.run()


def test_a_study_stops_before_the_first_trial_that_may_overrun(make_in, synthetic):
    # 3,600 USD an hour are one a second: 20 for the boot, 90 for closing, and 160 must be left for a trial of 30.
    clock = Timed(30.0)
    record = played(make_in, synthetic, clock, BOUNDED.replace("{trials: 7}", "{usd: 400}"), 3600.0)
    assert [trial.attempt.submitted - 5000 for trial in record.trials] == [0, 30, 60, 90, 120]
    assert record.complete
    assert record.end_reason == (
        "budget spent: 400 USD hold these nodes for 140 s more, and a trial may take 160 s, the limits of its phases "
        "together"
    )
    assert booked(record).usd == pytest.approx(20 + 150 + CLOSE_S)
    assert booked(record).node_s == 20 + 150 + CLOSE_S
    assert (record.header["price"], record.header["holding"]) == (
        {"usd_per_hour": 3600.0, "source": "--usd-per-hour"},
        {"nodes": 1, "gpus": 0},
    )


def test_a_budget_that_holds_no_trial_leaves_no_log(make_in, synthetic):
    with pytest.raises(BudgetTooSmall, match="200 USD hold these nodes for 90 s more, and a trial may take 160 s"):
        played(make_in, synthetic, Timed(30.0), BOUNDED.replace("{trials: 7}", "{usd: 200}"), 3600.0)


def test_earlier_drivers_count_and_one_that_has_nothing_left_writes_nothing(make_in, synthetic, tmp_path):
    text = BOUNDED.replace("{trials: 7}", "{usd: 400}")
    clock = Timed(30.0)
    played(make_in, synthetic, clock, text.replace("{usd", "{trials: 1, usd"), 3600.0)
    log = tmp_path / "studies" / "one" / LOG_NAME
    before = log.read_bytes()
    clock.now += 1000
    with pytest.raises(BudgetTooSmall):
        played(make_in, synthetic, clock, text.replace("400", "430"), 3600.0, resume=True)
    assert log.read_bytes() == before
    record = played(make_in, synthetic, clock, text.replace("400", "700"), 3600.0, resume=True)
    first, second = record.generations
    assert (first.held_since, second.held_since) == (4980, first.last_event + 980)
    assert booked(record).usd == pytest.approx(
        first.last_event - 4980 + CLOSE_S + second.last_event - second.held_since + CLOSE_S
    )
    assert 700 - 160 < booked(record).usd <= 700
    # What was said without a price can no more be held against a cap.
    cheap = StudyRecord.from_events([{**event, "price": None} for event in read_events(log)])
    assert booked(cheap).usd is None


def test_a_retry_needs_the_money_too(make_in, synthetic):
    class Unlucky(Timed):
        def run(self, raw: dict) -> Outcome:
            self.now += self.seconds
            return Outcome(Kind.PREEMPTED, "taken away", error=f"taken at {self.now}")

    record = played(make_in, synthetic, Unlucky(100.0), BOUNDED.replace("{trials: 7}", "{usd: 500}"), 3600.0)
    assert [len(trial.attempts) for trial in record.trials] == [3]
    assert record.trials[0].outcome.kind is Kind.PREEMPTED
    assert booked(record).usd == pytest.approx(20 + 300 + CLOSE_S)


def test_confirmations_are_run_from_what_was_kept_back(make_in, synthetic):
    class Lucky(Timed):
        def run(self, raw: dict) -> Outcome:
            self.now += self.seconds
            return synthetic_law(raw)

    clock = Lucky(30.0)
    text = BOUNDED.replace("{trials: 7}", "{usd: 1200, confirmations: 2}")
    record = played(make_in, synthetic, clock, text, 3600.0)
    assert "kept back for confirmations" in record.end_reason
    plan = plan_confirmations(record, [record.trials[0]], 2, paired=False)
    study = make_in(
        text, synthetic(clock.run), clock=clock, now=clock, price=Price(3600.0, "x"), held_since=clock.now - 20
    )
    confirmed = study.confirm(plan)
    assert [t.outcome.kind for t in confirmed.trials if t.role == CONFIRM] == [Kind.SCORED, Kind.SCORED]
    assert booked(confirmed).usd <= 1200
    # What is left is the search's: as much as if nothing had been to be confirmed.
    resumed = make_in(
        text, synthetic(clock.run), clock=clock, now=clock, price=Price(3600.0, "x"), held_since=clock.now - 20
    ).resume()
    assert "kept back" not in resumed.end_reason
    assert len(resumed.trials) > len(confirmed.trials)
    assert booked(resumed).usd <= 1200


def test_an_attempt_that_outlives_its_limits_is_ended_in_time(make_in, synthetic):
    """An executor that does not keep them: the study itself asks for the end, while it can be paid."""
    clock = Timed(0.0)

    class Endless(synthetic):
        def events(self, timeout: float) -> list:
            clock.now += 10
            return super().events(timeout) if self.cancelled else []

    study = make_in(
        BOUNDED.replace("{trials: 7}", "{usd: 400}"),
        Endless(),
        clock=clock,
        now=clock,
        price=Price(3600.0, "x"),
        held_since=clock.now,
    )
    record = study.run()
    assert record.end_reason == "400 USD are all but booked, and what runs has not ended within its limits"
    assert not record.complete
    assert 400 - END_S - 30 < booked(record).usd <= 400
