"""Extra seeds for near-ties, and points that the sampler suggests again, in whole studies."""

import random
from pathlib import Path

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.choosing import choose
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.extra_seeds import next_round
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import EXTRA_SEED, SAMPLER
from golfray.sweep.work_left import asked_trials, work_left
from tests.sweep.small_studies import RESUMED, what_came_of

EXTRA = RESUMED.replace("{trials: 7}", "{trials: 7, extra_seeds: 5}").replace("replicates: 2", "replicates: 4")

# Nine points in all, of which a sampler of 20 finds some again.
FEW = """\
name: few
preset: parameter-golf
scale: laptop
budget: {trials: 20}
seed: 5
sampler: random
replicates: 2
knobs:
  optimizer.matrix_lr: {choices: [0.03, 0.04, 0.05]}
  muon.weight_decay: {choices: [0.0, 0.1, 0.2]}
"""


def noisy(law, sd: float = 0.05):
    """The synthetic law with more noise than its configurations differ by."""

    def outcome(settings):
        found = law(settings)
        found.metrics["bpb/roundtrip"] += random.Random(repr(settings)).gauss(0, sd)
        return found

    return outcome


def extra_of(record: StudyRecord):
    return [trial for trial in record.trials if trial.role == EXTRA_SEED]


@pytest.fixture
def build(make_in, synthetic, law):
    def study(text: str = EXTRA, slots: int = 1, **more):
        return make_in(text, synthetic(noisy(law), slots=slots), **more)

    return study


def test_extra_seeds_come_last_are_fresh_and_no_results_of_the_search(build):
    record = build().run()
    extra = extra_of(record)
    assert 2 <= len(extra) <= 5
    assert record.trials[-len(extra) :] == extra
    searched = record.trials[: -len(extra)]
    assert {trial.seed for trial in extra}.isdisjoint({trial.seed for trial in searched})
    assert len({trial.seed for trial in extra}) == len(extra)
    for trial in extra:
        root = record.trials[trial.replicate_of]
        assert (trial.configuration, trial.told) == (root.configuration, False)
    assert asked_trials(record) == 7
    assert record.complete
    best = choose(record).best
    assert best.trial.role != EXTRA_SEED
    assert best.seeds > 1


def test_a_round_is_in_the_log_before_any_of_it_runs_and_is_for_what_was_nearly_tied(build):
    study = build()
    study.run()
    events = list(read_events(study.folder / LOG_NAME))
    first = next(i for i, event in enumerate(events) if event.get("role") == EXTRA_SEED)
    before = StudyRecord.from_events(events[:first])
    near = [standing.trial.number for standing in choose(before).near_ties()][:5]
    asked = [event["replicate_of"] for event in events[first : first + len(near)]]
    assert asked == near
    assert next_round(before, 5) == near
    assert next_round(before, 1) == near[:1]
    assert next_round(StudyRecord.from_events(events[: first + 1]), 5) == near[1:]


def test_a_budget_that_was_lowered_asks_no_more(build):
    study = build()
    study.run()
    events = list(read_events(study.folder / LOG_NAME))
    asked = [place for place, event in enumerate(events) if event.get("role") == EXTRA_SEED]
    assert len(asked) >= 3
    for count, place in enumerate(asked, 1):
        record = StudyRecord.from_events(events[: place + 1])
        assert [next_round(record, most) for most in range(count)] == [[]] * count


@pytest.mark.parametrize("slots", [1, 3])
def test_cut_anywhere_it_ends_as_it_would_have(build, slots):
    whole = build(slots=slots)
    expected = what_came_of(whole.run())
    content = (whole.folder / LOG_NAME).read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    lines = content.splitlines()
    first = next(i for i, line in enumerate(lines) if b'"role":"extra_seed"' in line)
    for size in ends[first - 2 : -1 : 3] + ends[first : first + 3]:
        (whole.folder / LOG_NAME).write_bytes(content[:size])
        assert what_came_of(build(slots=slots).resume()) == expected, f"cut at {size}"


def test_a_complete_study_has_nothing_left_though_it_has_extra_seeds_to_spare(build, space_at):
    many = EXTRA.replace("extra_seeds: 5", "extra_seeds: 500")
    record = build(many).run()
    assert len(extra_of(record)) < 500
    assert choose(record).near_ties() == []
    assert work_left(space_at(many), record).nothing


def test_what_the_sampler_suggests_again_runs_on_a_fresh_seed_and_counts(build, tmp_path: Path):
    record = build(FEW, folder=tmp_path / "studies" / "few").run()
    again = [trial for trial in record.trials if trial.role == SAMPLER and trial.repeats]
    assert again
    assert len({(trial.configuration, trial.seed) for trial in record.trials}) == len(record.trials)
    for trial in again:
        root = record.trials[trial.replicate_of]
        assert (root.replicate_of, root.configuration) == (None, trial.configuration)
        assert trial.settings["runtime"]["seed"] == trial.seed
        assert trial.told
    assert asked_trials(record) == 20
    assert len(choose(record).standings) == len({trial.configuration for trial in record.trials})
    assert [trial.number for trial in record.candidates if trial.repeats] == []


def test_a_point_that_crashed_and_is_suggested_again_may_be_best(make_in, synthetic, law, tmp_path: Path):
    first_seeds = {}

    def crashing(settings):
        """Some configurations crash on the first seed that they run on, and on no other."""
        seed = settings["runtime"]["seed"]
        point = settings["optimizer"]["matrix_lr"], settings["muon"]["weight_decay"]
        if point[1] == 0.1 and first_seeds.setdefault(point, seed) == seed:
            return Outcome(Kind.CRASHED, "lost a rank", error=f"RuntimeError at step {point[0]}")
        return law(settings)

    record = make_in(FEW, synthetic(crashing), folder=tmp_path / "studies" / "few").run()
    crashed = {trial.configuration for trial in record.trials if trial.outcome.kind is Kind.CRASHED}
    again = [trial for trial in record.trials if trial.configuration in crashed and trial.outcome.kind is Kind.SCORED]
    assert len(again) >= 2
    assert record.complete
    assert len({(trial.configuration, trial.seed) for trial in record.trials}) == len(record.trials)
    for configuration in {trial.configuration for trial in again}:
        first, *others = [trial for trial in again if trial.configuration == configuration]
        assert not first.repeats
        assert all(trial.replicate_of == first.number for trial in others)
        assert first in record.candidates
        (standing,) = [found for found in choose(record).standings if found.trial is first]
        assert standing.seeds == 1 + len(others)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EXTRA.replace("trials: 7", "minutes: 7"), "come once the trials are spent; give budget.trials"),
        (EXTRA.replace("replicates: 4", "replicates: 1"), "what the noise does not set apart; give replicates of 2"),
        (EXTRA.replace("extra_seeds: 5", "extra_seeds: 0"), "must be >= 1, got 0"),
    ],
)
def test_extra_seeds_that_could_never_run_are_refused(space_at, text, message):
    with pytest.raises(ConfigError, match=f"budget.extra_seeds.*{message}"):
        space_at(text)
