"""What a running study and one trial print off a terminal, as lines and as documents."""

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from golfray.cli.observers import study_observers
from golfray.cli.output import Output
from golfray.report.console import ConsoleObserver
from golfray.report.documents import study_document
from golfray.report.summary import print_summary
from golfray.report.train_line import TrainLine, outcome_of, print_result
from golfray.sweep.records import StudyRecord
from tests.report.scripted import eventful_study, plain_study
from tests.report.snapshots import check

# What `golfray tune` prints before the study starts: the scale, the corpus, its warning, MLflow.
LINES_BEFORE = 4


def off_terminal(width=80):
    return Console(file=io.StringIO(), width=width, highlight=False)


def on_terminal(width=80):
    return Console(file=io.StringIO(), width=width, highlight=False, force_terminal=True, color_system=None)


def printed(script, **options):
    """What a study's events print off a terminal."""
    console = off_terminal()
    observer = ConsoleObserver(console, **options)
    for event in script:
        observer.on_event(event)
    observer.close()
    return console.file.getvalue()


def summary(script):
    console = off_terminal()
    print_summary(StudyRecord.from_events(script), Path("studies/muon"), console)
    return console.file.getvalue()


@pytest.mark.parametrize("script", [plain_study, eventful_study])
def test_off_a_terminal_an_event_is_a_line(script):
    text = printed(script()) + summary(script())
    assert "\x1b" not in text
    check(f"pipe_{script.__name__}.txt", text)


def test_a_study_of_eight_trials_and_two_replicates_prints_at_most_40_lines():
    lines = (printed(plain_study()) + summary(plain_study())).splitlines()
    assert len(lines) + LINES_BEFORE <= 40


@pytest.mark.parametrize(
    ("uri", "page"),
    [
        (None, "golfray ui studies/muon"),
        ("https://tracker.example.org/mlflow", "https://tracker.example.org/mlflow"),
        ("sqlite:////data/all.db", "mlflow ui --backend-store-uri sqlite:////data/all.db"),
    ],
)
def test_the_end_says_where_the_trials_can_be_compared(uri, page):
    script = plain_study()
    script.events[0]["tracking_uri"] = uri
    assert f"compare the trials in MLflow: {page}" in summary(script).splitlines()
    script.events[-1]["complete"] = False
    tracked = "" if uri is None else f" --tracking-uri {uri}"
    assert f"go on: golfray tune --resume studies/muon{tracked}" in summary(script).splitlines()


def test_verbose_says_what_happens_between():
    check("pipe_verbose.txt", printed(eventful_study(), verbose=True))


def test_quiet_says_only_that_somebody_no_longer_watches():
    assert printed(eventful_study(), quiet=True).splitlines() == [
        "MlflowObserver stopped: TrackingError: MLflow failed at event 30"
    ]


def test_a_study_that_goes_on_is_known_from_its_past():
    events = list(eventful_study())
    resumed = next(number for number, event in enumerate(events) if event["event"] == "study_resumed")
    whole, rest = printed(events), printed(events[resumed:], past=events[:resumed])
    assert rest.splitlines()[0].startswith("study muon resumed (driver 2), 4 of 8 trials ended: ")
    # The first start and the fidelity are said once a driver.
    assert [line for line in rest.splitlines() if line not in whole.splitlines()] == [
        "t004 sampler, attempt 2: started on lane-0"
    ]


def test_only_feasible_trials_are_called_best():
    best = [line.split(":")[0] for line in printed(plain_study()).splitlines() if line.endswith("best so far")]
    assert best == ["t000 preset", "t004 sampler", "t006 sampler"]


def test_documents_go_to_standard_output_and_lines_to_standard_error(capsys):
    output = Output(as_json=True)
    observers = study_observers(output)
    for event in eventful_study():
        for observer in observers:
            observer.on_event(event)
    record = StudyRecord.from_events(eventful_study())
    output.document("study", study_document(record, Path("studies/muon")) | {"exit_code": 130})
    out, err = capsys.readouterr()
    check("documents.jsonl", out)
    assert err == printed(eventful_study())


def test_with_documents_points_of_curves_are_for_the_asking(capsys):
    (documents, _) = study_observers(Output(as_json=True, verbose=True))
    for event in plain_study():
        documents.on_event(event)
    assert capsys.readouterr().out.count('"event": "progress"') == 30


def test_quiet_documents_are_the_last_one_only():
    assert [type(observer) for observer in study_observers(Output(as_json=True, quiet=True))] == [ConsoleObserver]


def point(step, **changes):
    base = {
        "step": step,
        "train/loss": 3.25,
        "train/lr_multiplier": 0.5,
        "train/step_ms": 60.0,
        "train/tokens_per_s": 68_000.0,
        "elapsed_s": 7.5,
    }
    return {**base, **changes}


def test_train_line_off_a_terminal_prints_the_first_point():
    console = off_terminal()
    with TrainLine(None, 15.0, console) as line:
        line.point(point(1))
        line.text("compiled: no, the CPU shape is too small")
        line.point(point(2, **{"train/loss": math.nan}))
    assert console.file.getvalue().splitlines() == [
        "step 1  loss 3.2500  lr x0.500  68,000 tokens/s  7.5 s of 15.0 s",
        "compiled: no, the CPU shape is too small",
    ]


def test_train_line_on_a_terminal_shows_the_latest_point():
    console = on_terminal()
    with TrainLine(20, None, console) as line:
        line.point(point(1))
        line.point(point(20, **{"train/loss": math.nan}))
    text = console.file.getvalue()
    assert "step 20/20  loss nan" in text
    assert "\x1b[?25h" in text


def test_train_line_prints_every_point_where_asked_for():
    console = off_terminal()
    with TrainLine(None, 15.0, console, every_point=True) as line:
        line.point(point(1))
        line.point(point(2))
    assert [text.split("  ")[0] for text in console.file.getvalue().splitlines()] == ["step 1", "step 2"]


def test_train_line_without_a_console_says_nothing(capsys):
    with TrainLine(None, 15.0, None) as line:
        line.point(point(1))
        line.text("compiled")
    assert capsys.readouterr() == ("", "")


def test_result_of_a_scored_trial(tmp_path, ran_to_end):
    console = off_terminal()
    print_result(ran_to_end(2.0712, 480_000), tmp_path, console, "No FineWeb score.")
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "2.0712 BPB, 480,000 bytes, margin +20,000"
    assert "bytes: 48,000 code + 432,000 model, +20,000 to cap 500,000" in lines
    assert f"artifact: {tmp_path / 'final_model.int8.ptz'}" in lines
    assert lines[-1] == "No FineWeb score."


def test_result_of_a_trial_over_the_cap_says_so_first(tmp_path, ran_to_end):
    console = off_terminal()
    print_result(ran_to_end(1.9, 560_000), tmp_path, console)
    assert console.file.getvalue().startswith("infeasible: 60,000 bytes over the cap (560,000 bytes)\n")


def test_result_of_a_trial_whose_score_is_no_number(tmp_path, ran_to_end):
    written = ran_to_end(1.9, 480_000).to_dict() | {"kind": "diverged", "reason": "bpb/roundtrip is nan"}
    written["metrics"]["bpb/roundtrip"] = "nan"
    outcome = outcome_of(written)
    assert math.isnan(outcome.metrics["bpb/roundtrip"])
    console = off_terminal()
    print_result(outcome, tmp_path, console)
    assert console.file.getvalue().startswith("diverged: bpb/roundtrip is nan\n")
