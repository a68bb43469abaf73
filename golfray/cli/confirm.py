"""The verb that runs trials again on seeds that their search never used: ``confirm``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.exit_codes import CRASHES, OK
from golfray.cli.options import ADDRESS, complete_trial
from golfray.cli.output import Output, with_output

if TYPE_CHECKING:
    from golfray.report.lookup import FoundTrial
    from golfray.sweep.records import StudyRecord


@with_output
def confirm(
    trials: list[str] = typer.Argument(
        ..., metavar="TRIAL...", help="Trials of one study: 3, t003, muon/3.", autocompletion=complete_trial
    ),
    seeds: int = typer.Option(..., min=1, max=1000, help="How many fresh seeds each of them runs on."),
    paired: bool = typer.Option(False, "--paired", help="The same seeds for all of them; default: each its own."),
    allow_changes: bool = typer.Option(
        False, "--allow-changes", help="Go on although golfray or the place of the data have changed since the study."
    ),
    address: str | None = ADDRESS,
    *,
    output: Output,
) -> None:
    """Run trials again on fresh seeds, in their study: what `golfray claim` counts."""
    from golfray.cli.wiring import study_folder

    begun = time.time()
    from golfray.sweep.study_folder import CONFIRM, only_driver_of

    found = _of_one_study(trials)
    folder = study_folder(found[0].study.folder)
    with only_driver_of(folder, CONFIRM):
        code = _confirm(found, folder, seeds, paired, allow_changes, begun, address, output)
    if code != OK:
        raise typer.Exit(code)


def _of_one_study(texts: list[str]) -> list[FoundTrial]:
    """The trials that were named, each once."""
    from golfray.report.lookup import load_trial

    found = {(trial.study.folder, trial.trial.number): trial for trial in map(load_trial, texts)}
    folders = dict.fromkeys(str(folder) for folder, _ in found)
    if len(folders) > 1:
        raise typer.BadParameter(f"all trials must be of one study, got {', '.join(folders)}")
    return list(found.values())


def _confirm(
    found: list[FoundTrial],
    folder: Path,
    seeds: int,
    paired: bool,
    allow_changes: bool,
    begun: float,
    address: str | None,
    output: Output,
) -> int:
    """Run them; returns the exit code."""
    from golfray.cli.drive import drive
    from golfray.cli.prepare import prepare
    from golfray.sweep.confirmation import plan_confirmations
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.work_left import confirming_left

    # Read again now that nobody else can write it: another driver may have ended in between.
    record = StudyRecord.load(folder)
    plan = plan_confirmations(record, [record.trials[each.trial.number] for each in found], seeds, paired=paired)
    prepared = prepare(
        None,
        folder,
        None,
        sets=[],
        allow=allow_changes,
        output=output,
        left_of=lambda _, now: confirming_left(now, len(plan)),
    )
    for each in found:
        own = ", ".join(str(item.seed) for item in plan if item.of == each.trial.number)
        output.say(f"t{each.trial.number:03d} runs again on {'seed' if seeds == 1 else 'seeds'} {own}")
    ended, interrupted = drive(
        prepared, folder, output, begun, lambda study: study.confirm(plan, prepared.changes), address=address
    )
    return _show_end(ended, found, folder, interrupted, output)


def _show_end(
    record: StudyRecord, found: list[FoundTrial], folder: Path, interrupted: int | None, output: Output
) -> int:
    """Say what came of it; returns the exit code."""
    from golfray.report.confirmed import confirmed_document, confirmed_lines
    from golfray.report.scores_lookup import trial_label

    names = {each.trial.number: trial_label(each) for each in found}
    ended = CRASHES if record.hopeless else OK
    code = ended if interrupted is None else interrupted
    output.result(*confirmed_lines(record, names))
    output.document("confirm", {**confirmed_document(record, names), "folder": str(folder), "exit_code": code})
    return code
