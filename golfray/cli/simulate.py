"""``tune --executor sim``: the same study, log, tables and MLflow, and trials that a law makes up."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golfray.cli.output import Output
from golfray.cli.study_end import show_end

if TYPE_CHECKING:
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.sim.law import Law
    from golfray.sweep.sim.simulation import Simulation
    from golfray.sweep.space import Space
    from golfray.tracking.store import Store

WARNING = (
    "SIMULATED: no model was trained. Every number here is made up by a law fitted to public results "
    "(docs/simulator.md): it is evidence of nothing."
)

# The study itself is over before MLflow has been loaded.
_MLFLOW_SECONDS = 600.0


def simulate(
    space: Space | None,
    folder: Path,
    named: Store | None,
    options: Sequence[str],
    *,
    resumes: bool,
    allow: bool,
    sets: list[str],
    usd_per_hour: float | None,
    output: Output,
) -> int:
    """Run or resume a simulated study in ``folder``; returns the exit code.

    ``space`` None: that of the folder's log. ``named``: the MLflow store that was asked for; None takes the log's.
    ``options``: texts NAME=VALUE; a study that goes on does so on the machine that its log has, and any other is
    refused. ``usd_per_hour``: a node's price, where it is said. Raises, with an exit code, what is wrong with any of
    these.
    """
    from golfray.sweep.study_folder import create_study_folder, only_driver_of

    if not resumes:
        create_study_folder(folder)
    with only_driver_of(folder):
        return _drive(space, folder, named, options, allow=allow, sets=sets, usd_per_hour=usd_per_hour, output=output)


def _drive(
    space: Space | None,
    folder: Path,
    named: Store | None,
    options: Sequence[str],
    *,
    allow: bool,
    sets: list[str],
    usd_per_hour: float | None,
    output: Output,
) -> int:
    from golfray.cli.interrupts import Interrupts
    from golfray.cli.observers import study_observers
    from golfray.cli.prepare import study_price
    from golfray.config.resolve import Layer
    from golfray.ship.packer import bytes_code
    from golfray.sweep.events import LOG_NAME, read_events
    from golfray.sweep.paid_work import paid_work
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.sim.clock import FakeClock
    from golfray.sweep.sim.executor import SimulatedExecutor
    from golfray.sweep.sim.law import LAWS
    from golfray.sweep.sim.sizes import SimulatedSizes
    from golfray.sweep.space_diff import allowed_changes, changes_since
    from golfray.sweep.space_record import space_of
    from golfray.sweep.study import Study
    from golfray.sweep.work_left import work_left
    from golfray.tracking.mlflow_observer import MlflowObserver
    from golfray.tracking.store import Store

    log = folder / LOG_NAME
    past = list(read_events(log)) if log.exists() else []
    record = StudyRecord.from_events(past)
    goes_on = space is None
    if space is None:
        space = space_of(record, str(log), [Layer.from_sets(sets)])
    config = space.base.config
    simulation = _simulation_of(record, folder, config.scale, options)
    law, size = LAWS[simulation.scale], bytes_code(config.to_run_settings(0))
    data, machine, changes = _data(law), simulation.to_record(), list[str]()
    price = study_price(space, record if goes_on else None, usd_per_hour)
    if past:
        found = changes_since(record, space, bytes_code=size, data=data, simulation=machine, price=price)
        changes = allowed_changes(found, folder, allow=allow)
    output.say(WARNING, *space.describe())
    output.detail(*space.describe_knobs())
    clock = FakeClock(max(time.time(), record.last_event or 0.0))
    executor = SimulatedExecutor(
        simulation, clock, workers=config.workers, limits=space.limits, knobs=[knob.path for knob in space.knobs]
    )
    left = paid_work(
        work_left(space, record), record, space, price, executor.holding, clock.now(), slots=executor.slots
    )
    if left.nothing:
        output.say(f"nothing is left to run: {record.end_reason}; a larger budget would go on")
        return show_end(record, folder, output, None)
    store = Store.of(folder, record.header.get("tracking_uri")) if named is None else named
    output.say(f"MLflow: {store.name}")
    warning = store.check()
    if warning is not None:
        output.result(warning)
    with contextlib.ExitStack() as stack:
        stack.enter_context(executor)
        study = Study(
            space,
            executor,
            folder,
            bytes_code=size,
            uniform_bpb=law.uniform_bpb,
            data=data,
            observers=[*study_observers(output, past), MlflowObserver(folder, store, output.result, _MLFLOW_SECONDS)],
            tracking_uri=store.recorded_uri,
            clock=clock.now,
            now=clock.now,
            simulation=machine,
            sizes=SimulatedSizes(law),
            price=price,
        )
        interrupts = stack.enter_context(Interrupts(study, output))
        record = study.resume(changes) if past else study.run()
    return show_end(record, folder, output, interrupts.exit_code)


def _simulation_of(record: StudyRecord, folder: Path, scale: str, options: Sequence[str]) -> Simulation:
    """The machine that was asked for; that of the log where nothing was, in a study that goes on."""
    from golfray.config.errors import ConfigError
    from golfray.sweep.sim.simulation import Simulation

    if record.header and record.simulation is None:
        raise ConfigError(
            f"is a real study, which no simulated trial may join; `golfray tune --resume {shlex.quote(str(folder))}` "
            "goes on with it",
            file=str(folder),
        )
    if record.simulation is None or options:
        return Simulation.from_options(scale, options)
    return Simulation.from_record(record.simulation)


def _data(law: Law) -> dict[str, Any]:
    """What the log has in the place of a corpus."""
    return {
        "folder": "",
        "name": f"simulated ({law.name})",
        "reference": {"uniform": law.uniform_bpb},
        "warning": WARNING,
        "digest": None,
    }
