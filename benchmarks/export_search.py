"""What the search over exports finds on a real laptop checkpoint, and what it costs.

``export_search.py FOLDER``: FOLDER is a run of ``golfray train --scale laptop --folder FOLDER``. Three questions: how
long 200 settings under four codecs take, against three trainings of 15 s; whether the race finds the winner of a grid
of 60 that is scored in full; and what the winner loses at half the bytes of int8, against the best uniform bit-width.
Writes export_front.svg and export_search.json into the folder. Beside seconds that passed it says CPU seconds, which a
busy neighbour changes less.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator

import torch

from golfray.core.byte_table import load_byte_table
from golfray.core.exporter import export_state, load_artifact
from golfray.core.gang import Gang, choose_device
from golfray.core.gptq import collect_hessians
from golfray.core.model import build_model
from golfray.core.runtime import choose_runtime
from golfray.core.settings import ExportSettings, RunSettings, settings_from_dict
from golfray.report.front_picture import front_picture
from golfray.sweep.export_reserve import reserve_tokens
from golfray.sweep.export_result import export_words
from golfray.sweep.export_scoring import ReserveScorer
from golfray.sweep.export_search import SearchPlan, SearchResult, search_exports
from golfray.sweep.export_sizes import with_codec
from golfray.sweep.export_space import CLASSES, ExportSpace, base_export, largest, shortest_k

State = dict[str, torch.Tensor]

# Steps, in deviations, beyond which nearly every integer is 0.
WIDEST_STEP = 1.5


def classes(export: ExportSettings, bits: tuple[int, int, int], clip: str) -> ExportSettings:
    """Bits of the three classes under one clip."""
    chosen = {f"bits_{kind}": width for kind, width in zip(CLASSES, bits, strict=True)}
    return dataclasses.replace(export, **chosen, **{f"clip_{kind}": clip for kind in CLASSES})


def full_scorer(state: State, settings: RunSettings, steps: int, plan: SearchPlan) -> ReserveScorer:
    """The scorer that a search of this plan has."""
    gang = Gang(0, 1, choose_device(settings.runtime.device, 0))
    model = build_model(settings.model, choose_runtime(settings, gang).dtype, gang.device)
    table = load_byte_table(settings.data.tokenizer, settings.model.vocab_size)
    return ReserveScorer(model, state, reserve_tokens(settings, steps, plan.sequences, plan.seed).tokens, table)


def scored(scorer: ReserveScorer, artifact: bytes) -> float:
    """Bits per byte of an artifact on the whole slice."""
    return scorer.bits_per_byte(scorer.nats(load_artifact(artifact), 0, scorer.sequences))


def search(state: State, settings: RunSettings, steps: int, cap: int) -> SearchResult:
    """The search as it is by default, timed.

    Codecs and scores have threads of their own, so on idle cores it takes what this thread computes and the rest
    shared out, and a little more where there is nothing to share.
    """
    start, spent, own = time.perf_counter(), time.process_time(), time.thread_time()
    result = search_exports(state, settings, steps=steps, max_bytes=cap, tell=print)
    seconds, cpu, mine = time.perf_counter() - start, time.process_time() - spent, time.thread_time() - own
    cores = len(os.sched_getaffinity(0))
    print(f"search: {len(result.tried)} settings in {seconds:.1f} s on the clock; three trainings take 45 s")
    print(
        f"  {cpu:.1f} CPU s, {mine:.1f} of them in one thread and the rest in {cores}: "
        f"{mine + (cpu - mine) / cores:.1f} s where these are idle"
    )
    return result


def uniform_exports(base: ExportSettings) -> Iterator[ExportSettings]:
    """One bit-width for all matrices, under every clip, k of "std" in steps of a quarter octave; without and with GPTQ.

    With GPTQ "std" and "max" alone, as it takes longest; narrower than half a deviation a bit, nobody clips.
    """
    for gptq, bits in itertools.product((False, True), range(2, 9)):
        width = dataclasses.replace(base, gptq=gptq)
        for clip in ("max",) if gptq else ("quantile", "max", "best"):
            yield classes(width, (bits, bits, bits), clip)
        for quarter in range(13):
            k = shortest_k(bits) * 2 ** (quarter / 4)
            if k / largest(bits) <= WIDEST_STEP:
                chosen = classes(width, (bits, bits, bits), "std")
                yield dataclasses.replace(chosen, **{f"clip_k_{kind}": k for kind in CLASSES})


def uniform(state: State, settings: RunSettings, scorer: ReserveScorer, cap: int, like: ExportSettings) -> None:
    """The best uniform bit-width at or under the cap, under the codec of ``like``, and with "std" left out.

    All are sized; scored in full are those within the cap that are at least half as large.
    """
    hessians = collected(state, settings)
    found: list[tuple[float, int, ExportSettings]] = []
    for export in uniform_exports(base_export(settings.export)):
        export = with_codec(export, like.codec, like.shuffle)
        artifact = export_state(state, export, hessians if export.gptq else None)
        if cap / 2 <= len(artifact) <= cap:
            found.append((scored(scorer, artifact), len(artifact), export))
    for what, some in (
        ("", found),
        (" without std and GPTQ", [each for each in found if each[2].clip_mlp != "std" and not each[2].gptq]),
    ):
        score, size, export = min(some, key=lambda each: each[:2])
        print(f"best uniform width{what}, of {len(some)}: {size:,} bytes, {score:.5f} on the reserve")
        print(f"  {export_words(export)}")


def collected(state: State, settings: RunSettings) -> State:
    """Hessians as a trial collects them."""
    gang = Gang(0, 1, choose_device(settings.runtime.device, 0))
    model = build_model(settings.model, choose_runtime(settings, gang).dtype, gang.device)
    model.load_state_dict(state)
    batches = reserve_tokens(settings, 0, 2, 0).calibration
    return collect_hessians(model, [batch.to(gang.device) for batch in batches])


def grid(state: State, settings: RunSettings, steps: int, scorer: ReserveScorer, plan: SearchPlan) -> None:
    """Race 60 settings, then score all of them in full."""
    base = base_export(settings.export)
    points = [classes(base, bits, "best") for bits in itertools.product((3, 4, 5), (3, 4, 5, 6), (4, 5, 6, 7, 8))]
    artifacts = [export_state(state, with_codec(point, "zlib", False)) for point in points]
    cap = sorted(map(len, artifacts))[len(points) // 2]
    space = ExportSpace(codecs=("zlib",), shuffles=(False,))
    raced = search_exports(
        state, settings, steps=steps, max_bytes=cap, plan=dataclasses.replace(plan, space=space), candidates=points
    )
    scores = [scored(scorer, artifact) for artifact in artifacts]
    fitting = [place for place, artifact in enumerate(artifacts) if len(artifact) <= cap]
    best = min(fitting, key=lambda place: scores[place])
    assert raced.chosen is not None
    print(f"grid of {len(points)} at {cap:,} bytes: raced {raced.chosen.bits_per_byte:.5f}, in full {scores[best]:.5f}")
    same = base_export(raced.chosen.export) == points[best]
    print(f"  the same setting: {same}; apart by {raced.chosen.bits_per_byte - scores[best]:+.5f}, at most .0005")


def main() -> None:
    """Answer the three questions."""
    folder = pathlib.Path(sys.argv[1])
    settings = settings_from_dict(json.loads((folder / "settings.json").read_text(encoding="utf-8")))
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    steps = int(result["metrics"]["train/steps"])
    print(f"trained for {result['phases']['train']:.1f} s, {sum(result['phases'].values()):.1f} s with all phases")
    state = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
    torch.set_num_threads(1)
    plan, base = SearchPlan(), base_export(settings.export)
    scorer = full_scorer(state, settings, steps, plan)
    int8 = export_state(state, with_codec(classes(base, (8, 8, 8), "quantile"), "brotli", False))
    cap = len(int8) // 2
    floats = scorer.bits_per_byte(scorer.nats({}, 0, scorer.sequences))
    print(
        f"float weights {floats:.5f}; int8 under brotli: {len(int8):,} bytes, {scored(scorer, int8):.5f}; half: {cap:,}"
    )
    found = search(state, settings, steps, cap)
    chosen = found.chosen
    assert chosen is not None
    assert found.validation is not None
    print(f"chosen: {chosen.bytes:,} bytes ({chosen.bytes / cap:.2%} of the cap): {export_words(chosen.export)}")
    print(f"  {chosen.bits_per_byte:.5f} on the reserve, {found.validation.bits_per_byte:.5f} on validation")
    print(f"  loses {chosen.bits_per_byte - floats:.5f} against the float weights there")
    uniform(state, settings, scorer, cap, chosen.export)
    grid(state, settings, steps, scorer, plan)
    (folder / "export_search.json").write_text(json.dumps(found.to_dict(), indent=1), encoding="utf-8")
    (folder / "export_front.svg").write_text(front_picture(found, "Exports of a laptop checkpoint"), encoding="utf-8")


if __name__ == "__main__":
    main()
