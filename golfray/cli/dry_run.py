"""``tune --dry-run``: what a study would do, found out without starting or writing anything."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golfray.cli.output import Output
    from golfray.cluster.preflight import LanePlan
    from golfray.sweep.costs import Costs, Work
    from golfray.sweep.plan import CorpusFacts
    from golfray.sweep.space import Space


def dry_run(space: Space, study_folder: Path, output: Output) -> None:
    """Say the plan of a study of ``space`` in ``study_folder``, and what of it could not be kept here.

    Raises ``BudgetTooSmall``, ``EnvironmentProblem``, ``DiskTooSmall`` or ``DataError`` where the study itself would be
    refused.
    """
    from golfray.cluster.preflight import plan_lanes
    from golfray.cluster.resources import local_resources
    from golfray.report.plan import Surroundings, plan_document, plan_lines
    from golfray.ship.packer import bytes_code
    from golfray.sweep.agenda import work_left
    from golfray.sweep.costs import work_of
    from golfray.sweep.disk_room import check_disk
    from golfray.sweep.plan import check_budget, plan_study
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.study_folder import holds_study

    check_budget(space)
    config, new_study = space.base.config, work_left(space, StudyRecord())
    lanes = plan_lanes(local_resources(), config.workers, config.runtime.device, new_study.most_lanes)
    space, corpus = _on_its_corpus(space)
    work, fidelity = work_of(space, lanes.device, corpus.val_tokens, lanes.threads_per_worker)
    costs = _costs(work, lanes, study_folder.parent)
    plan = plan_study(space, corpus, costs, lanes=lanes.slots, bytes_code=bytes_code(config.to_run_settings(0)))
    here = Surroundings(
        lanes.describe(), fidelity, study_folder, Path(tempfile.gettempdir()), taken=holds_study(study_folder)
    )
    output.detail(*space.describe(), *space.describe_knobs())
    output.result(*plan_lines(plan, here))
    output.document("plan", plan_document(plan, here))
    check_disk(plan.disk, here.study_folder, here.temporary_folder)


def _costs(work: Work, lanes: LanePlan, studies: Path) -> Costs:
    from golfray.sweep.costs import published_costs, rehearsed_costs
    from golfray.sweep.past_studies import recorded_costs

    recorded = recorded_costs(studies, work, lanes.slots)
    if recorded is not None:
        return recorded
    return rehearsed_costs(work, lanes.slots) if lanes.device == "cpu" else published_costs(work)


def _on_its_corpus(space: Space) -> tuple[Space, CorpusFacts]:
    """The space with its corpus named, as the study has it; the demo corpus is not built for this."""
    from golfray.cli.wiring import corpus_for
    from golfray.data.corpus import DEMO_RECIPE
    from golfray.data.demo_counts import DEMO_TRAIN_TOKENS, DEMO_UNSEEN, DEMO_VAL_TOKENS, demo_is_built
    from golfray.sweep.plan import CorpusFacts
    from golfray.sweep.size import unseen_tokens

    config = space.base.config
    if config.scale == "laptop" and not config.data.folder and not demo_is_built():
        return space, CorpusFacts(DEMO_RECIPE.name, DEMO_TRAIN_TOKENS, DEMO_VAL_TOKENS, DEMO_UNSEEN, built=False)
    corpus = corpus_for(space.base)
    paths = {"data.folder": str(corpus.folder), "data.tokenizer": str(corpus.tokenizer)}
    named = dataclasses.replace(space, base=space.base.with_values(paths, f"corpus {corpus.name}"))
    unseen = unseen_tokens(corpus.folder, config.model.vocab_size, corpus.train_tokens)
    return named, CorpusFacts(corpus.name, corpus.train_tokens, corpus.val_tokens, unseen, built=True)
