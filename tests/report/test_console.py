"""Lines of a running study and of one trial, on a terminal and off it."""

import io
import math

from rich.console import Console

from golfray.report.console import ConsoleObserver
from golfray.report.train_line import TrainLine, print_result
from golfray.sweep.outcome import Kind, Outcome


def off_terminal(width=80):
    return Console(file=io.StringIO(), width=width, highlight=False)


def on_terminal(width=80):
    return Console(file=io.StringIO(), width=width, highlight=False, force_terminal=True, color_system=None)


def test_off_a_terminal_every_event_is_one_plain_line(tmp_path, mixed_study):
    console = off_terminal(width=40)
    mixed_study(tmp_path, ConsoleObserver(console))
    text = console.file.getvalue()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0].endswith("8 trials or 8 minutes, cap 500,000 bytes")
    assert lines[1] == "1 lane of 2 workers: 2 CPU cores, 1 a worker"
    assert lines[2] == "t000 preset: started on lane-0"
    assert lines[3] == "trials run as: cpu, float32, eager, 2 rank(s), 15 s"
    assert lines[4].startswith("t000 preset: 2.0712 BPB, 480,000 bytes, margin +20,000, ")
    assert "t007 sampler, attempt 2: crashed: rank 0: out of memory" in text
    assert lines[-1] == "study ended: budget: 8 trials"
    # Two of the study, one of the fidelity, two an attempt (11 attempts), one at the end.
    assert len(lines) == 2 + 1 + 2 * 11 + 1


def test_only_feasible_trials_are_called_best(tmp_path, mixed_study):
    console = off_terminal()
    mixed_study(tmp_path, ConsoleObserver(console))
    best = [line.split(":")[0] for line in console.file.getvalue().splitlines() if line.endswith("best so far")]
    assert best == ["t000 preset", "t004 sampler"]


def test_on_a_terminal_the_same_lines_and_a_status_that_goes_away(tmp_path, StudyLog, ran_to_end):
    console = on_terminal()
    observer = ConsoleObserver(console)
    log = StudyLog(tmp_path, observer)
    log.start()
    trial = log.ask("preset")
    log.submit(trial)
    log.progress(trial, 40, 4.25)
    assert observer._status().plain.startswith("0/8 trials | ")
    assert "none feasible yet | t000 step 40 loss 4.250" in observer._status().plain
    log.finish(trial, ran_to_end(2.0712, 480_000))
    assert "best 2.0712 (t000)" in observer._status().plain
    log.end()
    text = console.file.getvalue()
    assert "t000 preset: 2.0712 BPB" in text
    assert "\x1b[?25h" in text  # the cursor is back


def test_a_failed_observer_and_a_refused_configuration_are_printed(tmp_path, StudyLog):
    console = off_terminal()
    log = StudyLog(tmp_path, ConsoleObserver(console))
    log.start()
    trial = log.ask(settings=None)
    refused = Outcome(Kind.CRASHED, "configuration refused: model_dim=100 must be a multiple of num_heads=8")
    log.append("attempt_ended", trial=trial, attempt=1, job_id="muon-0000-1", outcome=refused.to_dict())
    log.append("observer_failed", observer="MlflowObserver", error="disk full")
    log.close()
    text = console.file.getvalue()
    assert "t000 sampler: crashed: configuration refused: model_dim=100 must be a multiple" in text
    assert "MlflowObserver stopped: disk full" in text


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


def test_train_line_off_a_terminal_prints_the_first_point(tmp_path):
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


def test_result_of_a_scored_trial(tmp_path, ran_to_end):
    console = off_terminal()
    print_result(ran_to_end(2.0712, 480_000).to_dict(), tmp_path, "No FineWeb score.", console)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "2.0712 BPB, 480,000 bytes, margin +20,000"
    assert "bytes: 48,000 code + 432,000 model, +20,000 to cap 500,000" in lines
    assert f"artifact: {tmp_path / 'final_model.int8.ptz'}" in lines
    assert lines[-1] == "No FineWeb score."


def test_result_of_a_trial_over_the_cap_says_so_first(tmp_path, ran_to_end):
    console = off_terminal()
    print_result(ran_to_end(1.9, 560_000).to_dict(), tmp_path, None, console)
    assert console.file.getvalue().startswith("infeasible: 60,000 bytes over the cap (560,000 bytes)\n")
