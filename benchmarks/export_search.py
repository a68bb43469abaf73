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
import pathlib
import sys
import time

import torch

from golfray.core.byte_table import load_byte_table
from golfray.core.exporter import export_state, load_artifact
from golfray.core.gang import Gang, choose_device
from golfray.core.model import build_model
from golfray.core.runtime import choose_runtime
from golfray.core.settings import ExportSettings, RunSettings, settings_from_dict
from golfray.report.front_picture import front_picture
from golfray.sweep.export_reserve import reserve_tokens
from golfray.sweep.export_result import export_words
from golfray.sweep.export_scoring import ReserveScorer
from golfray.sweep.export_search import SearchPlan, SearchResult, search_exports
from golfray.sweep.export_sizes import with_codec
from golfray.sweep.export_space import CLASSES, ExportSpace, base_export

State = dict[str, torch.Tensor]


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
    """The search as it is by default, timed."""
    start, spent = time.perf_counter(), time.process_time()
    result = search_exports(state, settings, steps=steps, max_bytes=cap, tell=print)
    seconds, cpu = time.perf_counter() - start, time.process_time() - spent
    print(f"search: {len(result.tried)} settings in {seconds:.1f} s ({cpu:.1f} CPU s); three trainings take 45 s")
    print("largest errors of predicted sizes: " + ", ".join(f"{k} {v:.2%}" for k, v in result.predictions.items()))
    return result


def uniform(state: State, base: ExportSettings, scorer: ReserveScorer, cap: int, like: ExportSettings) -> None:
    """The best uniform bit-width at or under the cap, of every clip, under the codec of ``like``."""
    found = []
    for bits, clip in itertools.product(range(2, 9), ("quantile", "max", "best")):
        export = with_codec(classes(base, (bits, bits, bits), clip), like.codec, like.shuffle)
        artifact = export_state(state, export)
        if len(artifact) <= cap:
            found.append((scored(scorer, artifact), len(artifact), bits, clip))
    score, size, bits, clip = min(found)
    print(f"best uniform width: {bits} bits, {clip}: {size:,} bytes, {score:.5f} on the reserve")


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
    uniform(state, base, scorer, cap, chosen.export)
    grid(state, settings, steps, scorer, plan)
    (folder / "export_search.json").write_text(json.dumps(found.to_dict(), indent=1), encoding="utf-8")
    (folder / "export_front.svg").write_text(front_picture(found, "Exports of a laptop checkpoint"), encoding="utf-8")


if __name__ == "__main__":
    main()
