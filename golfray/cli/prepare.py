"""What is settled before the first trial: which study, on which data, with what changed, and whether it fits here.

Nothing heavy is imported before the space has been read, so that a typing mistake is answered at once.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golfray.cli.output import Output

if TYPE_CHECKING:
    from golfray.config.resolve import Layer
    from golfray.data.corpus import Corpus
    from golfray.sweep.budget import Price
    from golfray.sweep.disk_room import StudyDisk
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.space import Space
    from golfray.sweep.work_left import WorkLeft
    from golfray.tracking.store import Store


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A study that may start, or go on where ``record`` has something; its folder is ours.

    ``past`` are the events of its log, ``changes`` the lines of what is allowed to differ from them.
    """

    space: Space
    corpus: Corpus
    store: Store
    bytes_code: int
    price: Price | None
    record: StudyRecord
    past: list[dict[str, Any]]
    changes: list[str]
    left: WorkLeft

    @property
    def resumes(self) -> bool:
        """Whether the study goes on."""
        return bool(self.past)


def read_space(space_file: Path, sets: list[str], *, simulated: bool = False, address: str | None = None) -> Space:
    """The space of a file, ``--set`` over it.

    What ``scale: auto`` means depends on whether there are GPUs: on the cluster at ``address``, or else on this
    machine; a simulated one has them.
    """
    from golfray.cli.wiring import cluster_has_gpu
    from golfray.config.resolve import Layer
    from golfray.sweep.space import load_space

    if not simulated:
        return load_space(space_file, has_gpu=cluster_has_gpu(address), layers=[Layer.from_sets(sets)])
    space = load_space(space_file, has_gpu=True, layers=[Layer.from_sets(sets)])
    origins = dict(space.base.origins)
    if origins["scale"].startswith("auto"):
        origins["scale"] = "auto: a simulated machine has GPUs"
    return dataclasses.replace(space, base=dataclasses.replace(space.base, origins=origins))


def on_its_corpus(space: Space) -> tuple[Space, Corpus]:
    """The corpus that a space trains on, and the space with its paths.

    Raises, with an exit code, on a budget that does not hold one trial, and on data that are not there or damaged.
    """
    from golfray.cli.wiring import corpus_for
    from golfray.sweep.plan import check_budget

    check_budget(space)
    corpus = corpus_for(space)
    paths = {"data.folder": str(corpus.folder), "data.tokenizer": str(corpus.tokenizer)}
    return dataclasses.replace(space, base=space.base.with_values(paths, f"corpus {corpus.name}")), corpus


def prepare(
    opened: tuple[Space, Corpus] | None,
    folder: Path,
    named: Store | None,
    *,
    sets: list[str],
    allow: bool,
    output: Output,
    usd_per_hour: float | None = None,
    left_of: Callable[[Space, StudyRecord], WorkLeft] | None = None,
) -> Prepared:
    """Settle everything about the study in ``folder``, which this process holds, and say it.

    ``opened``: what :func:`on_its_corpus` made of a file's space; None takes the space of the folder's log, with
    ``sets`` over it. ``named``: the MLflow store that was asked for; None takes the one that the log has.
    ``usd_per_hour``: a node's price; None leaves it to the space, or to the log where its space goes on. ``left_of``
    says what is to be run, by default all that the budget leaves. Raises, with an exit code, what would end the study
    later: changes nobody allowed, data that are not there, a budget or disk that is too small, a store that cannot be
    written.
    """
    import torch

    from golfray.cli.wiring import check_codecs, passes_lines
    from golfray.config.errors import ConfigError
    from golfray.config.resolve import Layer
    from golfray.ship.packer import bytes_code
    from golfray.sweep.disk_room import check_disk
    from golfray.sweep.events import LOG_NAME, read_events
    from golfray.sweep.executor import Holding
    from golfray.sweep.paid_work import paid_work
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.space_diff import allowed_changes, changes_since
    from golfray.sweep.space_record import space_of
    from golfray.sweep.work_left import work_left
    from golfray.tracking.store import Store

    log = folder / LOG_NAME
    past = list(read_events(log)) if log.exists() else []
    record = StudyRecord.from_events(past)
    if record.simulation is not None:
        raise ConfigError(
            f"is a simulated study, which no trained trial may join; `golfray tune --resume {shlex.quote(str(folder))} "
            "--executor sim` goes on with it",
            file=str(folder),
        )
    goes_on = opened is None
    if opened is None:
        layers = [*_demo_built_again(record), Layer.from_sets(sets)]
        opened = on_its_corpus(space_of(record, str(log), layers))
    space, corpus = opened
    check_codecs(space)
    size, changes = bytes_code(space.base.config.to_run_settings(0)), []
    price = study_price(space, None if not goes_on else record, usd_per_hour)
    if past:
        found = changes_since(record, space, bytes_code=size, data=corpus.to_record(), price=price)
        changes = allowed_changes(found, folder, allow=allow)
    left = paid_work(
        (left_of or work_left)(space, record),
        record,
        space,
        price,
        Holding(nodes=1, gpus=torch.cuda.device_count()),
        time.time(),
        slots=_most_lanes(space),
        confirms=left_of is not None,
    )
    config = space.base.config
    output.say(*space.describe())
    output.detail(*space.describe_knobs())
    output.say(*corpus.describe(config.batch.tokens), *passes_lines(config, corpus))
    store = Store.of(folder, record.header.get("tracking_uri")) if named is None else named
    if not left.nothing:
        output.say(f"MLflow: {store.name}")
        check_disk(disk_of(space, left, store).need, folder, Path(tempfile.gettempdir()), store.path)
        warning = store.check()
        if warning is not None:
            output.result(warning)
    return Prepared(space, corpus, store, size, price, record, past, changes, left)


def study_price(space: Space, going_on: StudyRecord | None, usd_per_hour: float | None) -> Price | None:
    """What a node costs: as the option says, or the space; ``going_on``: the study whose own space and price it is."""
    from golfray.sweep.budget import Price
    from golfray.sweep.prices import price_of

    known = None if going_on is None else Price.of(going_on)
    return known if known is not None and usd_per_hour is None else price_of(space.budget, usd_per_hour, Path())


def _demo_built_again(record: StudyRecord) -> list[Layer]:
    """The demo corpus by no folder, where the one that the log has is gone: it can be built anew, to the same bytes."""
    from golfray.config.resolve import Layer
    from golfray.data.corpus import DEMO_RECIPE
    from golfray.data.manifest import FILE_NAME

    folder = Path(record.header.get("data", {}).get("folder", ""))
    was_demo = folder.name == f"{DEMO_RECIPE.name}-{DEMO_RECIPE.key()}"
    return [Layer("the demo corpus", {"data.folder": ""})] if was_demo and not (folder / FILE_NAME).is_file() else []


def disk_of(space: Space, left: WorkLeft, store: Store) -> StudyDisk:
    """What the trials that are left write: the same for a plan as for the check before a study."""
    from golfray.sweep.disk_room import study_disk

    return study_disk(space, left, _most_lanes(space), own_store=store.is_own)


def _most_lanes(space: Space) -> int:
    """Ray counts more exactly, but may not be imported yet; more lanes than this no machine of our own has."""
    import torch

    workers, device = space.base.config.workers, space.base.config.runtime.device
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    ranks = gpus or len(os.sched_getaffinity(0))
    return max(1, ranks // workers)
