"""The verb that looks before anything is started: ``doctor`` prints what every floor's checks have found."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.exit_codes import ENVIRONMENT
from golfray.cli.options import SETS, TRACKING_URI, cluster_address
from golfray.cli.output import Output, with_output
from golfray.config.sizes import count_text

if TYPE_CHECKING:
    from golfray.config.resolve import Resolved
    from golfray.data.corpus import Corpus
    from golfray.findings import Finding
    from golfray.sweep.disk_room import DiskNeed
    from golfray.sweep.space import Space
    from golfray.tracking.store import Store

_MARKS = {"ok": "ok  ", "warning": "WARN", "error": "MISS"}


@with_output
def doctor(
    space_file: Path | None = typer.Argument(
        None, metavar="SPACE.yaml", help="The search space of the study that shall run; default: the preset alone."
    ),
    study_dir: Path | None = typer.Option(None, help="Folder of the study; default: studies/<name of the space>."),
    address: str | None = typer.Option(
        None,
        callback=cluster_address,
        metavar="HOST:PORT",
        help="Ray cluster it shall run on, every node of which is asked; default: none.",
    ),
    tracking_uri: str | None = TRACKING_URI,
    sets: list[str] = SETS,
    *,
    output: Output,
) -> None:
    """Look at what a study needs of machines, data, disks and MLflow, and say what to do about what is missing.

    Nothing is trained and nothing built. Ends with 4 where something is missing (MISS), with 0 where there are only
    warnings (WARN).
    """
    from golfray.cli.prepare import read_space
    from golfray.cli.wiring import resolve_configuration, study_folder
    from golfray.tracking.store import Store

    over = resolve_configuration("parameter-golf", "auto", sets) if space_file is None else read_space(space_file, sets)
    name = "study" if space_file is None else over.name  # type: ignore[union-attr]
    folder = study_folder(study_dir or Path("studies") / name)
    store = Store.of(folder, tracking_uri)
    findings = []
    for finding in _findings(over, folder, store, address, output):
        findings.append(finding)
        # With -q only what is wrong is worth a line.
        (output.say if finding.severity == "ok" else output.result)(f"{_MARKS[finding.severity]} {finding.line()}")
    errors, warnings = (sum(found.severity == severity for found in findings) for severity in ("error", "warning"))
    output.result(f"{count_text(len(findings), 'finding')}: {errors} missing, {count_text(warnings, 'warning')}")
    output.say("the arithmetic of this machine is checked by: golfray selftest")
    output.document(
        "doctor",
        {
            "address": address,
            "study_folder": folder,
            "errors": errors,
            "warnings": warnings,
            "findings": [dataclasses.asdict(finding) for finding in findings],
        },
    )
    if errors:
        raise typer.Exit(ENVIRONMENT)


def _findings(
    over: Resolved | Space, folder: Path, store: Store, address: str | None, output: Output
) -> Iterator[Finding]:
    """All findings, as they come: what takes long comes after what is quick to find."""
    from golfray.cluster.health import Subject
    from golfray.cluster.health import check as check_cluster
    from golfray.sweep.health import check as check_disks
    from golfray.sweep.node_rules import NodeRules
    from golfray.sweep.space import Space
    from golfray.tracking.health import check as check_store

    config = over.base.config if isinstance(over, Space) else over.config
    need = _disk_need(over, store) if isinstance(over, Space) else None
    yield from check_disks(folder, need, Path(tempfile.gettempdir()), store.path)
    corpus, found = _corpus(over, output)
    yield from found
    output.say("looking at " + ("this machine" if address is None else f"every node of the cluster at {address}"))
    data = None if corpus is None else corpus.settings()
    rules = over.nodes if isinstance(over, Space) else NodeRules()
    yield from check_cluster(Subject(folder, config.workers, config.runtime.device, data, rules, address))
    output.say(f"looking at MLflow's store {store.name}")
    yield from check_store(store)


def _corpus(over: Resolved | Space, output: Output) -> tuple[Corpus | None, list[Finding]]:
    """The corpus, None where there is none yet or it is damaged, and what is found about it."""
    from golfray.cli.wiring import corpus_for
    from golfray.config.errors import ConfigError
    from golfray.data.demo_counts import demo_is_built
    from golfray.data.errors import DataError
    from golfray.data.health import check, check_demo
    from golfray.findings import error
    from golfray.sweep.space import Space

    config = over.base.config if isinstance(over, Space) else over.config
    if config.scale == "laptop" and not config.data.folder and not demo_is_built():
        return None, check_demo()
    try:
        corpus = corpus_for(over)
    except DataError as problem:
        return None, [error("data", problem.where, " ".join(problem.what.split()), problem.remedy)]
    except ConfigError as problem:
        return None, [error("data", "", str(problem), "")]
    return corpus, check(corpus, lambda line: output.say(line))


def _disk_need(space: Space, store: Store) -> DiskNeed:
    """What the disks must hold for all of the study."""
    from golfray.cli.prepare import disk_of
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.work_left import work_left

    return disk_of(space, work_left(space, StudyRecord()), store).need
