"""``golfray size``: how large a model will be, before it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.options import SCALE, SETS, complete_study
from golfray.cli.output import Output, with_output

if TYPE_CHECKING:
    from golfray.config.resolve import Resolved


@with_output
def size(
    config: str = typer.Argument(
        "parameter-golf", metavar="CONFIG|SPACE.yaml", help="A preset, or a search space: the points it runs anyway."
    ),
    scale: str = SCALE,
    sets: list[str] = SETS,
    steps: int | None = typer.Option(
        None, min=1, help="Optimizer steps of a run; default: those of the study, or of the configuration, or a guess."
    ),
    study: str | None = typer.Option(
        None,
        metavar="STUDY",
        help="Correct by the finished trials of this study: its folder, or its name below ./studies.",
        autocompletion=complete_study,
    ),
    *,
    output: Output,
) -> None:
    """Say how many bytes a model will take, with an interval and by parts; trains nothing."""
    from golfray.cli.wiring import has_gpu, resolve_configuration
    from golfray.config.resolve import Layer, preset_names
    from golfray.sweep.space import load_space
    from golfray.sweep.space_file import DEFAULT_FIT_PROBABILITY

    if config in preset_names():
        space, level = None, DEFAULT_FIT_PROBABILITY
        points = [("configuration", resolve_configuration(config, scale, sets))]
    else:
        space = load_space(Path(config), has_gpu=has_gpu, layers=[Layer.from_sets(sets)], scale=scale)
        level, points = space.fit_probability, []

    # Heavy, and hence only when what was typed is in order.
    from golfray.report.lookup import find_study
    from golfray.report.size import size_document, size_lines
    from golfray.ship.packer import bytes_code
    from golfray.sweep.points import planned_points
    from golfray.sweep.records import StudyRecord
    from golfray.sweep.size_outlook import guessed_steps, size_outlook
    from golfray.sweep.trial_record import REPLICATE

    if space is not None:
        points = [(point.role, point.resolved) for point in planned_points(space) if point.role != REPLICATE]
    if points[0][1].config.export.search is not None:
        raise typer.BadParameter(
            "export.search finds an export that fits; set it to null to foresee the one that is set"
        )
    record = None if study is None else StudyRecord.load(find_study(study))
    code = bytes_code(points[0][1].config.to_run_settings(0))
    outlooks = []
    for role, own in points:
        settings = own.config.to_run_settings(code)
        guess = guessed_steps(settings, own.config.workers, gpu=own.config.scale == "full")
        unseen = _unseen(own)
        outlooks.append(size_outlook(role, settings, unseen=unseen, steps=steps, guessed_steps=guess, record=record))
    output.result(*size_lines(outlooks, level))
    output.document("size", size_document(outlooks, level))


def _unseen(resolved: Resolved) -> tuple[int, ...]:
    """Tokens that training never meets, as far as data are named or known; every token is met at full scale."""
    from golfray.data.demo_counts import DEMO_UNSEEN
    from golfray.sweep.size import unseen_tokens

    data, vocabulary = resolved.config.data, resolved.config.model.vocab_size
    if data.folder:
        return unseen_tokens(Path(data.folder), vocabulary, 2**62)
    # At laptop scale the demo corpus is taken, whose counts are known.
    demo = resolved.config.scale == "laptop"
    return tuple(token for token in DEMO_UNSEEN if token < vocabulary) if demo else ()
