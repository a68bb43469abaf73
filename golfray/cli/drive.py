"""A study driven on this machine: lanes, those who watch, and what Ctrl-C does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from golfray.cli.output import Output

if TYPE_CHECKING:
    from golfray.cli.prepare import Prepared
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.study import Study


def drive(
    prepared: Prepared,
    folder: Path,
    output: Output,
    held_since: float,
    conduct: Callable[[Study], StudyRecord],
    *,
    address: str | None = None,
    isolate: bool = False,
) -> tuple[StudyRecord, int | None]:
    """Start the lanes and let ``conduct`` run the study on them until it ends, however that is.

    ``held_since``: when the command began, in unix seconds; this machine is booked from then on. ``address``: of the
    Ray cluster whose lanes they are; None: of one of the study's own, on this machine. ``isolate``: every trial has
    ranks of its own. Returns the study's record, and the exit code that follows from an interruption, None where there
    was none.
    """
    from golfray.cli.interrupts import Interrupts
    from golfray.cli.observers import study_observers
    from golfray.cluster.executor import RayExecutor
    from golfray.cluster.recycling import Recycling
    from golfray.sweep.study import Study
    from golfray.tracking.mlflow_observer import MlflowObserver

    space, config = prepared.space, prepared.space.base.config
    with contextlib.ExitStack() as stack:
        # On a large machine no more lanes are started than trials will ever fill.
        executor = stack.enter_context(
            RayExecutor(
                folder,
                config.workers,
                device=config.runtime.device,
                address=address,
                max_lanes=prepared.left.most_lanes,
                data=prepared.corpus.settings(),
                limits=space.limits,
                recycling=Recycling(trials=1) if isolate else None,
                rules=space.nodes,
            )
        )
        study = Study(
            space,
            executor,
            folder,
            bytes_code=prepared.bytes_code,
            uniform_bpb=prepared.corpus.reference_points["uniform"],
            data=prepared.corpus.to_record(),
            observers=[
                *study_observers(output, prepared.past),
                MlflowObserver(folder, prepared.store, output.result),
            ],
            tracking_uri=prepared.store.recorded_uri,
            price=prepared.price,
            held_since=held_since,
        )
        interrupts = stack.enter_context(Interrupts(study, output))
        record = conduct(study)
    return record, interrupts.exit_code
