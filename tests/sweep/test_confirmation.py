"""Trials run again on fresh seeds, in their study and by its driver, without becoming results of its search."""

from itertools import count

import pytest

from golfray.config.errors import ConfigError
from golfray.config.sections import LARGEST_SEED
from golfray.sweep.choosing import best_feasible, choose
from golfray.sweep.confirmation import plan_confirmations
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.space_record import space_of
from golfray.sweep.trial_record import CONFIRM
from golfray.sweep.trial_scores import trial_scores
from golfray.sweep.work_left import asked_trials, work_left
from tests.sweep.evidence_studies import searched
from tests.sweep.small_studies import RESUMED, SHORT, what_came_of


def planned(record, *numbers, seeds=3, paired=False):
    plan = plan_confirmations(record, [record.trials[number] for number in numbers], seeds, paired=paired)
    return [(item.of, item.seed) for item in plan]


def test_seeds_are_fresh_and_each_trials_own_or_shared():
    record = searched().record
    assert planned(record, 4, 0) == [(4, 2337), (0, 2338), (4, 2339), (0, 2340), (4, 2341), (0, 2342)]
    # One of each before a second one: what is interrupted has whole pairs.
    assert planned(record, 4, 0, paired=True) == [(4, 2337), (0, 2337), (4, 2338), (0, 2338), (4, 2339), (0, 2339)]


def test_a_seed_that_was_used_is_never_used_again():
    study = searched()
    study.run(1.96, CONFIRM, of=4, seed=2337)
    study.run(1.97, CONFIRM, of=5, seed=2339)
    assert planned(study.record, 4, seeds=2) == [(4, 2338), (4, 2340)]


def test_what_cannot_be_confirmed():
    study = searched()
    crashed = study.run(0.0, kind=Kind.CRASHED)
    with pytest.raises(ConfigError, match="t001: is t000 on another seed; confirm t000"):
        planned(study.record, 1)
    with pytest.raises(ConfigError, match="t006: ended as crashed, so there is no score to confirm"):
        planned(study.record, crashed)
    last = searched()
    last.record.trials[0].seed = LARGEST_SEED - 1001
    assert planned(last.record, 0, seeds=2)[-1] == (0, LARGEST_SEED)
    with pytest.raises(ConfigError, match="no 3 fresh seeds are left"):
        planned(last.record, 0, seeds=3)


@pytest.fixture
def confirmed(make_in, synthetic):
    """A complete study whose best trial and trial 0 were run on two fresh seeds each: before, after, its driver."""
    before = make_in(RESUMED, synthetic()).run()
    executor = synthetic(slots=2)
    study = make_in(RESUMED, executor)
    best = choose(before).lowest
    after = study.confirm(plan_confirmations(before, [best, before.trials[0]], 2, paired=True))
    return before, after, executor, study


def test_confirmations_are_trials_of_the_study_and_no_results_of_its_search(confirmed):
    before, after, executor, study = confirmed
    count_before, best = len(before.trials), choose(before).lowest
    fresh = after.trials[count_before:]
    assert [(trial.role, trial.replicate_of, trial.told) for trial in fresh] == [
        (CONFIRM, best.number, False),
        (CONFIRM, 0, False),
    ] * 2
    assert {trial.seed for trial in fresh}.isdisjoint({trial.seed for trial in before.trials})
    for trial in fresh:
        root = after.trials[trial.replicate_of]
        assert trial.settings == {**root.settings, "runtime": {**root.settings["runtime"], "seed": trial.seed}}
        assert trial.outcome.kind is Kind.SCORED
        assert (trial.foreseen, trial.too_large) == (root.foreseen, False)
    assert executor.most_at_once == 2
    # However well one of them scores.
    assert min(trial.bpb for trial in fresh) != best_feasible(after).bpb
    assert best_feasible(after).number == best_feasible(before).number
    assert choose(after).lowest.number == best.number
    assert [trial.number for trial in after.candidates] == [trial.number for trial in before.candidates]
    assert asked_trials(after) == asked_trials(before)
    assert (after.complete, after.end_reason) == (True, "confirmations done")
    assert what_came_of(StudyRecord.load(study.folder)) == what_came_of(after)
    scores = trial_scores(after, after.trials[best.number], study="one")
    assert (scores.sample.n, scores.objections) == (2, ())


def test_nothing_is_left_to_resume_after_it(confirmed, make_in, synthetic):
    _, after, _, study = confirmed
    assert work_left(space_of(after, "log"), after).nothing
    again = make_in(RESUMED, synthetic()).resume()
    assert len(again.trials) == len(after.trials)
    assert study.folder.name == "one"


def test_a_search_that_rests_goes_on_afterwards(make_in, synthetic):
    study = make_in(RESUMED, synthetic())
    numbers = count()

    class Leaving(synthetic):
        def events(self, timeout):
            if next(numbers) > 12:
                study.drain("enough for now")
            return super().events(timeout)

    study = make_in(RESUMED, Leaving())
    half = study.run()
    asked = len(half.trials)
    assert not half.complete
    rested = make_in(RESUMED, synthetic()).confirm(plan_confirmations(half, [half.trials[0]], 1, paired=False))
    # Neither are planned points asked, nor does the study count as searched to its end.
    assert [trial.role for trial in rested.trials[asked:]] == [CONFIRM]
    assert not rested.complete
    whole = make_in(RESUMED, synthetic()).resume()
    assert whole.complete
    assert asked_trials(whole) == 7


def test_what_was_cut_off_is_run_by_either_verb(make_in, synthetic):
    record = make_in(SHORT, synthetic()).run()
    plan = plan_confirmations(record, [record.trials[0]], 3, paired=False)
    study = make_in(SHORT, synthetic())

    class Stopping(synthetic):
        def events(self, timeout):
            study.stop("interrupted")
            return super().events(timeout)

    study = make_in(SHORT, Stopping())
    cut = study.confirm(plan)
    assert (cut.complete, cut.end_reason) == (False, "interrupted")
    left = work_left(space_of(cut, "log"), cut)
    assert len(left.unfinished) == 3
    finished = make_in(SHORT, synthetic()).confirm([])
    assert [trial.outcome.kind for trial in finished.trials if trial.role == CONFIRM] == [Kind.SCORED] * 3
    assert len(finished.trials) == len(record.trials) + 3


def test_a_confirmation_that_crashes_is_tried_again_like_any_trial(make_in, synthetic, law):
    record = make_in(SHORT, synthetic()).run()
    laws = iter([Outcome(Kind.CRASHED, "killed")])
    executor = synthetic(lambda settings: next(laws, None) or law(settings))
    after = make_in(SHORT, executor).confirm(plan_confirmations(record, [record.trials[0]], 1, paired=False))
    assert [attempt.outcome.kind for attempt in after.trials[-1].attempts] == [Kind.CRASHED, Kind.SCORED]
