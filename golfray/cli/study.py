"""The verb that runs a whole study: ``tune``."""

from __future__ import annotations

import enum
import time
from pathlib import Path

import typer

from golfray.cli.exit_codes import OK
from golfray.cli.options import ADDRESS, SETS, TRACKING_URI, USD_PER_HOUR, complete_study
from golfray.cli.output import Output, with_output
from golfray.cli.study_end import show_end

RESUME = typer.Option(
    None,
    metavar="STUDY",
    help="Go on with this study: its folder, or its name below ./studies. Without SPACE.yaml its space is that of "
    "its log.",
    autocompletion=complete_study,
)


class ExecutorName(enum.StrEnum):
    """What runs the trials."""

    RAY = "ray"
    SIM = "sim"


@with_output
def tune(
    space_file: Path | None = typer.Argument(None, metavar="SPACE.yaml", help="The search space."),
    study_dir: Path | None = typer.Option(None, help="Folder of this study; default: studies/<name of the space>."),
    resume: str | None = RESUME,
    allow_changes: bool = typer.Option(
        False, "--allow-changes", help="With --resume: go on although the space, its data or golfray have changed."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Say the trials, lanes, time, disk and sizes of a new study; start and write nothing."
    ),
    tracking_uri: str | None = TRACKING_URI,
    usd_per_hour: float | None = USD_PER_HOUR,
    address: str | None = ADDRESS,
    sets: list[str] = SETS,
    executor: ExecutorName = typer.Option(
        ExecutorName.RAY, help="ray trains; sim only simulates, in seconds and on any machine (docs/simulator.md)."
    ),
    sim: list[str] = typer.Option(
        [], metavar="NAME=VALUE", help="With --executor sim: lanes, seed, or a share of what goes wrong, as crash=0.05."
    ),
    isolate: bool = typer.Option(
        False, "--isolate", help="Start new ranks for every trial, which costs seconds each (docs/overhead.md)."
    ),
    *,
    output: Output,
) -> None:
    """Search a space: train, export and score trials, and end with the best that fits under the cap."""
    from golfray.cli.drive import drive
    from golfray.cli.prepare import on_its_corpus, prepare, read_space, study_price
    from golfray.cli.wiring import study_folder

    begun = time.time()
    simulated = executor is ExecutorName.SIM
    _refuse_contradictions(space_file, study_dir, resume, allow_changes, dry_run)
    _refuse_half_simulated(simulated, sim, dry_run, isolate)
    _refuse_useless_address(address, simulated, dry_run)
    space = None if space_file is None else read_space(space_file, sets, simulated=simulated, address=address)
    # Before anything heavy: a price that is wrong is a typing mistake.
    price = None if space is None else study_price(space, None, usd_per_hour)
    if resume is not None:
        from golfray.report.lookup import find_study

        folder = study_folder(find_study(resume))
    else:
        assert space is not None
        folder = study_folder(study_dir or Path("studies") / space.name)

    # Heavy, and hence only when what was typed is in order.
    from golfray.tracking.store import Store

    if dry_run:
        from golfray.cli.dry_run import dry_run as say_plan

        assert space is not None
        say_plan(space, folder, Store.of(folder, tracking_uri), price, output)
        return

    from golfray.sweep.study_folder import create_study_folder, only_driver_of

    # What is wrong with address or data is said before there is a folder.
    store = Store.of(folder, tracking_uri)
    if simulated:
        from golfray.cli.simulate import simulate

        named = store if resume is None or tracking_uri is not None else None
        code = simulate(
            space,
            folder,
            named,
            sim,
            resumes=resume is not None,
            allow=allow_changes,
            sets=sets,
            usd_per_hour=usd_per_hour,
            output=output,
        )
        if code != OK:
            raise typer.Exit(code)
        return
    opened = None if space is None else on_its_corpus(space)
    if resume is None:
        create_study_folder(folder)
    # A study that goes on is tracked where it was, unless an address says otherwise.
    named = store if resume is None or tracking_uri is not None else None
    with only_driver_of(folder):
        prepared = prepare(
            opened, folder, named, sets=sets, allow=allow_changes, output=output, usd_per_hour=usd_per_hour
        )
        if prepared.left.nothing:
            output.say(f"nothing is left to run: {prepared.record.end_reason}; a larger budget would go on")
            code = show_end(prepared.record, folder, output, None)
        else:
            record, interrupted = drive(
                prepared,
                folder,
                output,
                begun,
                lambda study: study.resume(prepared.changes) if prepared.resumes else study.run(),
                address=address,
                isolate=isolate,
            )
            code = show_end(record, folder, output, interrupted)
    if code != OK:
        raise typer.Exit(code)


def _refuse_contradictions(
    space_file: Path | None, study_dir: Path | None, resume: str | None, allow_changes: bool, dry_run: bool
) -> None:
    if resume is None and space_file is None:
        raise typer.BadParameter("name a search space, such as search_spaces/muon.yaml, or a study with --resume")
    if resume is None and allow_changes:
        raise typer.BadParameter("--allow-changes means something with --resume only")
    if resume is not None and study_dir is not None:
        raise typer.BadParameter("--resume names the study's folder already; leave --study-dir out")
    if resume is not None and dry_run:
        raise typer.BadParameter("--dry-run plans a new study; `golfray status` says what is left of one")


def _refuse_half_simulated(simulated: bool, sim: list[str], dry_run: bool, isolate: bool) -> None:
    if sim and not simulated:
        raise typer.BadParameter("--sim means something with --executor sim only")
    if isolate and (simulated or dry_run):
        raise typer.BadParameter("--isolate is about the ranks of real trials; leave it out of a plan or a simulation")
    if dry_run and simulated:
        raise typer.BadParameter(
            "--dry-run plans a real study; a simulated one takes seconds: leave --executor sim out"
        )


def _refuse_useless_address(address: str | None, simulated: bool, dry_run: bool) -> None:
    if address is not None and simulated:
        raise typer.BadParameter("--executor sim runs on no cluster; leave --address out")
    if address is not None and dry_run:
        raise typer.BadParameter("--dry-run plans for this machine and asks no cluster; leave --address out")
