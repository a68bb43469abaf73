"""The final table at two widths: what it says, and that an over-cap trial is never the best in it."""

import io
import re

import pytest
from rich.console import Console

from golfray.report.ranking import ranked_trials
from golfray.report.summary import print_summary
from golfray.sweep.events import encode_record
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from tests.report.scripted import Script

WIDTHS = (80, 120)


def printed(folder, width):
    """The summary as plain text, with all that a terminal shows."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False)
    print_summary(StudyRecord.load(folder), folder, console, verbose=True)
    return stream.getvalue()


def line_with(text, start):
    """The only line that begins so."""
    lines = [line for line in text.splitlines() if line.startswith(start)]
    assert len(lines) == 1, text
    return lines[0]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, mixed_study):
    folder = tmp_path_factory.mktemp("studies") / "muon"
    mixed_study(folder)
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_best_is_the_best_that_fits_although_an_over_cap_trial_scored_lower(mixed, width):
    text = printed(mixed, width)
    assert "t004 (sampler), 1.9987" in line_with(text, "best feasible:")
    assert re.search(r"^\* +t004 .* 1\.9987 +470,000 +\+30,000$", text, re.MULTILINE)
    assert re.search(r"^  +t005 .*OVER CAP +1\.9412 +530,000 +-30,000$", text, re.MULTILINE)
    assert text.count("* t0") == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_fit_the_width_and_cut_no_cell(mixed, width):
    tables = printed(mixed, width).split("\n\n")[:2]
    assert max(len(line) for table in tables for line in table.splitlines()) <= width
    assert "…" not in "".join(tables)


def test_ranking_puts_candidates_first_then_replicates_then_over_cap_then_failures(mixed):
    record = StudyRecord.load(mixed)
    assert [trial.number for trial in ranked_trials(record)] == [4, 8, 0, 3, 2, 5, 1, 6, 7, 9]


@pytest.mark.parametrize("width", WIDTHS)
def test_knobs_are_named_in_full_and_replicates_have_no_column(mixed, width):
    text = printed(mixed, width)
    assert line_with(text, "knob ").split()[:3] == ["knob", "t004*", "t008"]
    assert line_with(text, "export.bits_mlp").split()[1:4] == ["6", "5", "6"]
    assert "t002" not in line_with(text, "knob ")


def test_difference_stands_beside_the_noise_and_the_luck(mixed):
    text = printed(mixed, 80)
    # Trial 0 and its replicates: 2.0712, 2.0775, 2.0660; mean 2.07157, sample SD .00576; E[max of 3] = .84628.
    assert "0.0729 BPB better than the mean of trial 0 on 3 seeds" in line_with(text, "against trial 0:")
    assert "0.0058 BPB (SD over 3 seeds); the difference is 12.7 times that" in text
    assert "0.0049" in line_with(text, "luck of the best of 3:")


def test_every_failure_has_its_reason_and_the_corpus_its_warning(mixed):
    text = printed(mixed, 80)
    assert line_with(text, "t006 diverged:") == "t006 diverged: train/loss is NaN at step 10"
    assert line_with(text, "t007 crashed:") == "t007 crashed: rank 0: out of memory"
    assert "xz -9e 2.2302" in text
    assert "Scores on this demo corpus are no FineWeb scores." in text


def test_next_commands_name_the_folder_the_artifact_and_the_best_knobs(mixed):
    text = printed(mixed, 80)
    assert f"golfray ui {mixed}" in text
    assert f"golfray score {mixed}/trials/004/attempt_1/final_model.int8.ptz" in text
    assert (
        "golfray train --folder runs/muon-t004 --preset parameter-golf --scale laptop --set optimizer.matrix_lr=0.0712"
        in text
    )


def test_nothing_feasible_says_so_and_offers_no_artifact(tmp_path, StudyLog):
    log = StudyLog(tmp_path)
    log.start()
    log.run(1.9, 600_000, role="preset")
    log.run(1.8, 500_001)
    log.end()
    text = printed(tmp_path, 80)
    assert line_with(text, "best feasible:").startswith("best feasible: none")
    assert "* t" not in text
    assert "golfray score" not in text
    assert "golfray ui" in text


def test_noise_that_was_not_measured_is_unknown(tmp_path, StudyLog):
    log = StudyLog(tmp_path)
    log.start()
    log.run(2.07, 480_000, role="preset")
    log.run(2.05, 480_000)
    log.end()
    text = printed(tmp_path, 80)
    assert "0.0200 BPB better than trial 0" in text
    assert "noise unknown" in text
    assert "luck of the best of 2: unknown" in text


def test_trial_0_as_best_is_no_improvement(tmp_path, StudyLog):
    log = StudyLog(tmp_path)
    log.start()
    log.run(2.00, 480_000, role="preset")
    log.run(2.05, 480_000)
    log.end()
    assert "no trial that fits beat the preset" in line_with(printed(tmp_path, 80), "against trial 0:")


def test_exactly_at_the_cap_is_feasible(tmp_path, StudyLog):
    log = StudyLog(tmp_path)
    log.start()
    log.run(2.05, 480_000, role="preset")
    log.run(2.00, 500_000)
    log.end()
    text = printed(tmp_path, 80)
    assert "t001" in line_with(text, "best feasible:")
    assert "500,000 bytes, 0 under the cap of 500,000" in text


def test_an_interrupted_study_has_a_table_too(tmp_path, StudyLog, ended_early):
    log = StudyLog(tmp_path)
    log.start()
    log.submit(log.ask("preset"))
    trial = log.ask()
    log.submit(trial)
    log.finish(trial, ended_early(Kind.CANCELLED, "interrupted\nwith a second line"))
    log.close()
    text = printed(tmp_path, 80)
    assert re.search(r"^ +t000 +preset +running", text, re.MULTILINE)
    assert line_with(text, "t001 cancelled:") == "t001 cancelled: interrupted"
    assert "not ended" in text


@pytest.mark.parametrize(("refused", "said"), [(1, "1 point was"), (9, "9 points were")])
def test_points_that_cannot_fit_have_one_line_and_no_row(tmp_path, refused, said):
    script = Script()
    script.start()
    script.run(1.9, 300_000, role="preset")
    for _ in range(refused):
        script.refuse_for_size(40_000)
    script.finish("9 points in a row cannot fit", complete=False)
    (tmp_path / "events.jsonl").write_text("".join(encode_record(event) + "\n" for event in script), encoding="utf-8")
    text = printed(tmp_path, 80)
    assert re.search(r"^\* +t000 ", text, re.MULTILINE)
    names = "t001" if refused == 1 else "t001, t002, t003, t004, t005, ..., t009"
    assert line_with(text, said) == f"{said} refused before training, too large to fit: {names}"
    assert line_with(text, "1 trials in ").endswith(": 1 scored; 9 points in a row cannot fit")
    assert not re.search("^ +t001", text, re.MULTILINE)
