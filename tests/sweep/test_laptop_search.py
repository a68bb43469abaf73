"""benchmarks/laptop_search.py: what it makes of studies that have ended, and that it runs none of them again."""

import importlib.util
import sys
from pathlib import Path

import pytest

from golfray.sweep.events import encode_record
from golfray.sweep.outcome import Kind
from golfray.sweep.space import load_space
from tests.sweep.evidence_studies import CAP_BYTES, EvidenceStudy

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "laptop_search.py"


@pytest.fixture(scope="module")
def script():
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("laptop_search_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class LoggedStudy(EvidenceStudy):
    """One with a log that can be written to a folder."""

    def __init__(self):
        self.events = []
        super().__init__()

    def _write(self, event, **fields):
        self.events.append({"seq": len(self.events), "time": 1_800_000_000.0, "event": event, **fields})
        super()._write(event, **fields)

    def end(self):
        """Its budget is spent."""
        self._write("study_ended", reason="budget spent: 4 trials", complete=True, hopeless=False)

    def write_to(self, folder):
        """Write the log as a driver would have."""
        folder.mkdir(parents=True)
        lines = "".join(encode_record(event) + "\n" for event in self.events)
        (folder / "events.jsonl").write_text(lines, encoding="utf-8")


def studied(best, winner, preset):
    """A study in which number 2 scored ``best``; then it and trial 0, which scored 2, ran on fresh seeds."""
    study = LoggedStudy()
    study.run(2.0, "preset")
    study.run(1.7, "preset_8bit", total=CAP_BYTES + 1)
    study.run(best, lr=0.06)
    study.run(2.1, lr=0.08)
    study.end()
    for seed, (ours, other) in enumerate(zip(winner, preset, strict=True), start=2337):
        for of, bpb in ((2, ours), (0, other)):
            diverged = None if bpb is not None else Kind.DIVERGED
            study.run(bpb or 0.0, "confirm", of=of, seed=seed, lr=0.06 if of else 0.04, kind=diverged)
    return study


def test_the_winner_is_compared_seed_by_seed(script):
    found = script.played(studied(1.8, [1.9, 2.05, 1.85], [2.0, 2.04, 2.0]).record)
    # The over-cap trial has the lowest score and is not the winner.
    assert (found.winner, found.trials, found.chosen_by, found.preset) == (2, 4, 1.8, 2.0)
    assert found.fresh == ((1.9, 2.0), (2.05, 2.04), (1.85, 2.0))
    assert found.differences == pytest.approx([-0.1, 0.01, -0.15])
    assert (found.wins, found.difference) == (2, pytest.approx(-0.08))
    # .2 below trial 0 in the search, .08 on fresh seeds.
    assert found.curse == pytest.approx(0.12)


def test_a_seed_without_a_score_is_not_won_and_a_seed_of_one_alone_does_not_count(script):
    study = studied(1.8, [None, 1.9, 1.9], [2.0, None, 2.0])
    study.run(1.5, "confirm", of=2, seed=2340, lr=0.06)
    found = script.played(study.record)
    assert found.fresh == ((None, 2.0), (1.9, None), (1.9, 2.0))
    assert (found.wins, found.differences) == (2, pytest.approx([-0.1]))


def test_trial_0_that_wins_is_beaten_nowhere(script):
    study = LoggedStudy()
    study.run(2.0, "preset")
    study.run(2.1, lr=0.06)
    for seed in (2337, 2338):
        study.run(2.05, "confirm", of=0, seed=seed)
    found = script.played(study.record)
    assert (found.winner, found.differences, found.wins) == (0, [0.0, 0.0], 0)


def test_a_study_without_a_comparison_is_refused_by_name(script):
    study = LoggedStudy()
    study.run(2.0, "preset")
    with pytest.raises(ValueError, match="muon: the winner and trial 0 have no score on the same fresh seed"):
        script.played(study.record)
    study = LoggedStudy()
    study.run(2.0, "preset", total=CAP_BYTES + 1)
    with pytest.raises(ValueError, match="muon: it has no trial that fits"):
        script.played(study.record)


def test_table(script):
    """Two seeds of each sampler; sums by hand."""
    played = {
        ("tpe", 0): studied(1.75, [1.875, 1.875], [2.0, 2.0]),
        ("tpe", 1): studied(1.75, [1.75, 2.0], [2.0, 2.0]),
        ("random", 0): studied(1.875, [2.125, 2.125], [2.0, 2.0]),
        ("random", 1): studied(1.75, [1.875, 1.875], [2.0, 2.0]),
    }
    lines = script.table({key: script.played(study.record) for key, study in played.items()})
    assert [" ".join(line.split()) for line in lines[1:5]] == [
        "tpe 0 4 1.7500 t002 1.8750 2.0000 -0.1250 (unknown) 2 of 2",
        # -.25 and 0: t of 1 with one degree of freedom, p of 1/4. Equal is not below.
        "tpe 1 4 1.7500 t002 1.8750 2.0000 -0.1250 (0.250) 1 of 2",
        "random 0 4 1.8750 t002 2.1250 2.0000 +0.1250 (unknown) 0 of 2",
        "random 1 4 1.7500 t002 1.8750 2.0000 -0.1250 (unknown) 2 of 2",
    ]
    assert lines[5:] == [
        "tpe: winner below trial 0 in 2 of 2 studies (mean of fresh seeds), on 3 of 4 fresh seeds",
        "  best in search: 1.7500 +-0.0000",
        "  winner minus trial 0: -0.2500 +-0.0000 in the search, -0.1250 +-0.0000 on fresh seeds; "
        "lost on the way +0.1250 +-0.0000",
        "random: winner below trial 0 in 1 of 2 studies (mean of fresh seeds), on 2 of 4 fresh seeds",
        "  best in search: 1.8125 +-0.0625",
        "  winner minus trial 0: -0.1875 +-0.0625 in the search, +0.0000 +-0.1250 on fresh seeds; "
        "lost on the way +0.1875 +-0.0625",
        # -.125 and 0, -.25 and 0.
        "tpe minus random, by best in search: -0.0625 +-0.0625; below in 1, equal in 1 of 2, p 0.250",
        "tpe minus random, by winner minus trial 0 on fresh seeds: -0.1250 +-0.1250; "
        "below in 1, equal in 1 of 2, p 0.250",
    ]


def test_a_small_p_keeps_its_size(script):
    """Differences of -.1 give or take .00005: t of 3,464 with two degrees of freedom, p of 1 / (2 t^2)."""
    found = script.played(studied(1.75, [1.9, 1.90005, 1.89995], [2.0, 2.0, 2.0]).record)
    assert "-0.1000 (4.2e-08)" in script.table({("tpe", 0): found})[1]


def test_spaces_are_equal_but_for_sampler_and_seed(script, tmp_path):
    spaces = {}
    for sampler, seed in (("tpe", 0), ("random", 0), ("random", 1)):
        file = tmp_path / f"{sampler}-{seed}.yaml"
        file.write_text(script.space_text(sampler, seed, trials=7, steps=40), encoding="utf-8")
        spaces[sampler, seed] = load_space(file, has_gpu=True)
    for (sampler, seed), space in spaces.items():
        config = space.base.config
        assert (space.sampler, space.seed, space.budget.trials, space.replicates) == (sampler, seed, 7, 1)
        assert (config.scale, config.stop.steps, config.stop.seconds) == ("laptop", 40, None)
        assert config.runtime.seed == 10_000 * (seed + 1)


def test_what_has_ended_is_not_run_again(script, tmp_path, monkeypatch, capsys):
    for sampler in ("tpe", "random"):
        folder = tmp_path / "studies" / f"{sampler}-0"
        studied(1.8, [1.9, 1.9], [2.0, 2.1]).write_to(folder / "study")
        (folder / "space.yaml").write_text(script.space_text(sampler, 0, trials=4, steps=60), encoding="utf-8")
    options = ["--seeds=1", "--trials=4", "--fresh=2", f"--folder={tmp_path / 'studies'}"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    script.main()
    out = capsys.readouterr().out
    assert "winner below trial 0 in 1 of 1 studies (mean of fresh seeds), on 2 of 2 fresh seeds" in out
    # Whatever it calls is kept there.
    assert {file.name for file in (tmp_path / "studies" / "tpe-0").iterdir()} == {"space.yaml", "study"}
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options, "--steps=61"])
    with pytest.raises(ValueError, match="begun with other options; name another --folder"):
        script.main()
