"""The verb that runs a whole study: ``tune``."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import typer

from golfray.cli.exit_codes import CRASHES, INTERRUPTED, NO_FEASIBLE
from golfray.cli.options import SETS


def tune(
    space_file: Path = typer.Argument(..., metavar="SPACE.yaml", help="The search space."),
    study_dir: Path | None = typer.Option(None, help="Folder of this study; default: studies/<name of the space>."),
    sets: list[str] = SETS,
) -> None:
    """Search a space: train, export and score trials, and end with the best that fits under the cap."""
    from golfray.cli.wiring import absolute, corpus_for, has_gpu, passes_lines
    from golfray.config.resolve import Layer
    from golfray.sweep.space import load_space

    # First of all, and before torch and Ray are imported: a typing mistake is answered at once.
    space = load_space(space_file, has_gpu=has_gpu, layers=[Layer.from_sets(sets)])

    from golfray.cluster.executor import RayExecutor
    from golfray.report.console import ConsoleObserver
    from golfray.report.summary import print_summary
    from golfray.ship.packer import bytes_code
    from golfray.sweep.records import best_feasible
    from golfray.sweep.study import Study, create_study_folder, only_driver_of
    from golfray.tracking.mlflow_observer import MlflowObserver

    config = space.base.config
    corpus = corpus_for(space.base)
    for line in [*space.describe(), *corpus.describe(config.batch.tokens), *passes_lines(config, corpus)]:
        print(line, flush=True)
    paths = {"data.folder": str(corpus.folder), "data.tokenizer": str(corpus.tokenizer)}
    space = dataclasses.replace(space, base=space.base.with_values(paths, f"corpus {corpus.name}"))

    folder = create_study_folder(absolute(study_dir or Path("studies") / space.name))
    # On a large machine no more lanes are started than trials will ever fill.
    most = None if space.trials is None else space.trials + space.replicates - 1
    with (
        only_driver_of(folder),
        RayExecutor(folder, config.workers, device=config.runtime.device, max_lanes=most) as executor,
    ):
        study = Study(
            space,
            executor,
            folder,
            bytes_code=bytes_code(),
            uniform_bpb=corpus.reference_points["uniform"],
            data=corpus.to_record(),
            observers=[ConsoleObserver(), MlflowObserver(folder)],
        )
        interrupts: list[int] = []

        def on_interrupt(number: int, _frame: object) -> None:
            if interrupts:
                raise KeyboardInterrupt
            interrupts.append(number)
            print("interrupted: ending the running trials; once more to leave at once", flush=True)
            study.stop("interrupted")

        before = {number: signal.signal(number, on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            record = study.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    print_summary(record, folder)
    if interrupts:
        raise typer.Exit(INTERRUPTED)
    if study.hopeless:
        raise typer.Exit(CRASHES)
    if best_feasible(record) is None:
        raise typer.Exit(NO_FEASIBLE)
