"""``tune --dry-run``: what a study would do, found out without starting or writing anything."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golfray.cli.output import Output
    from golfray.cluster.preflight import LanePlan
    from golfray.sweep.budget import Price
    from golfray.sweep.costs import Costs, Work
    from golfray.sweep.plan import CorpusFacts
    from golfray.sweep.space import Space
    from golfray.tracking.store import Store


def dry_run(space: Space, study_folder: Path, store: Store, price: Price | None, output: Output) -> None:
    """Say the plan of a study of ``space`` in ``study_folder``, and what of it could not be kept here.

    ``price``: what a node costs, None where nobody said. Raises ``BudgetTooSmall``, ``EnvironmentProblem``,
    ``DiskTooSmall``, ``CodecMissing``, ``DataError`` or ``TrackingError`` where the study itself would be refused.
    """
    from golfray.cli.prepare import disk_of
    from golfray.cli.wiring import check_codecs
    from golfray.cluster.preflight import plan_lanes
    from golfray.cluster.resources import local_resources
    from golfray.report.plan import Surroundings, plan_document, plan_lines
    from golfray.ship.packer import bytes_code
    from golfray.sweep.costs import work_of
    from golfray.sweep.disk_room import check_disk
    from golfray.sweep.executor import Holding
    from golfray.sweep.paid_work import paid_work
    from golfray.sweep.past_studies import recorded_study
    from golfray.sweep.plan import plan_study
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.study_folder import holds_study
    from golfray.sweep.work_left import work_left

    check_codecs(space)
    space, corpus = _planned_on(space)
    warning = store.foresee()
    config, new_study = space.base.config, work_left(space, StudyRecord())
    lanes = plan_lanes(local_resources(), config.workers, config.runtime.device, new_study.most_lanes)
    work, fidelity = work_of(space, lanes.device, corpus.val_tokens, lanes.threads_per_worker)
    costs = _costs(work, lanes, study_folder.parent)
    holding = Holding(nodes=1, gpus=lanes.gpus)
    paid = paid_work(new_study, StudyRecord(), space, price, holding, time.time(), slots=lanes.slots)
    disk = disk_of(space, paid, store)
    code = bytes_code(config.to_run_settings(0))
    earlier = recorded_study(study_folder.parent, work, lanes.slots)
    record = None if earlier is None else earlier[1]
    plan = plan_study(
        space,
        corpus,
        costs,
        disk,
        lanes=lanes.slots,
        bytes_code=code,
        holding=holding,
        price=price,
        earlier=record,
    )
    here = Surroundings(
        lanes=lanes.describe(),
        fidelity=fidelity,
        study_folder=study_folder,
        temporary_folder=Path(tempfile.gettempdir()),
        taken=holds_study(study_folder),
        store=store.name,
        warning=warning,
    )
    output.detail(*space.describe(), *space.describe_knobs())
    output.result(*plan_lines(plan, here))
    output.document("plan", plan_document(plan, here))
    check_disk(disk.need, here.study_folder, here.temporary_folder, store.path)


def _costs(work: Work, lanes: LanePlan, studies: Path) -> Costs:
    from golfray.sweep.costs import published_costs, rehearsed_costs
    from golfray.sweep.past_studies import recorded_costs

    recorded = recorded_costs(studies, work, lanes.slots)
    if recorded is not None:
        return recorded
    return rehearsed_costs(work, lanes.slots) if lanes.device == "cpu" else published_costs(work)


def _planned_on(space: Space) -> tuple[Space, CorpusFacts]:
    """The space on its corpus, as the study has it, and what is known of that; the demo corpus is not built for it."""
    from golfray.cli.prepare import on_its_corpus
    from golfray.data.corpus import DEMO_RECIPE
    from golfray.data.demo_counts import DEMO_TRAIN_TOKENS, DEMO_UNSEEN, DEMO_VAL_TOKENS, demo_is_built
    from golfray.sweep.corpus_limits import CorpusLimits
    from golfray.sweep.plan import CorpusFacts, check_budget
    from golfray.sweep.size import unseen_tokens

    config = space.base.config
    if config.scale == "laptop" and not config.data.folder and not demo_is_built():
        check_budget(space)
        name = f"the corpus {DEMO_RECIPE.name}"
        CorpusLimits(name, f"{name}'s tokenizer", DEMO_VAL_TOKENS, DEMO_RECIPE.vocab_size).check_space(space)
        return space, CorpusFacts(DEMO_RECIPE.name, DEMO_TRAIN_TOKENS, DEMO_VAL_TOKENS, DEMO_UNSEEN, built=False)
    named, corpus = on_its_corpus(space)
    unseen = unseen_tokens(corpus.folder, config.model.vocab_size, corpus.train_tokens)
    return named, CorpusFacts(corpus.name, corpus.train_tokens, corpus.val_tokens, unseen, built=True)
