"""The search over export settings of one trained checkpoint: hundreds of them, without retraining.

Sizes come first, exact and cheap, as settings share their classes. Then settings race for bits per byte on a growing
slice of reserved training tokens. At last k is turned so that the best end just below the cap, and the one that is
chosen is scored on the validation tokens: once, so that nothing was chosen by them.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy
import torch

from golfray.core.byte_table import load_byte_table
from golfray.core.exporter import load_artifact
from golfray.core.gang import Gang, choose_device
from golfray.core.gptq import collect_hessians
from golfray.core.model import build_model
from golfray.core.runtime import choose_runtime, prepare_device
from golfray.core.score import Score, score_model
from golfray.core.settings import ExportSettings, RunSettings
from golfray.core.shards import list_shards, load_validation_tokens
from golfray.sweep.export_landing import CLOSE, knobs, land_below, turned
from golfray.sweep.export_proposals import propose
from golfray.sweep.export_race import plan_rounds, run_race
from golfray.sweep.export_reserve import reserve_tokens
from golfray.sweep.export_result import SearchResult, Tried, front_of
from golfray.sweep.export_scoring import ReserveScorer
from golfray.sweep.export_sizes import ExportSizes
from golfray.sweep.export_space import CLASSES, ExportSpace, base_export, class_choices
from golfray.sweep.export_tensors import ExportTensors, NotStorable

_LANDINGS = 2
_LANDING_WINDOW = (0.85, 1.15)
_FARTHEST = 1.5
# Matrices of smaller models are multiplied faster by one thread than shared out to several.
_ONE_THREAD_BELOW = 4_000_000


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """How much a search does; the defaults are for laptop and full scale alike.

    ``space``: what may be tried. ``settings``: how many quantizations are sized and scored, each sized under every
    codec; fewer where the space has no more. ``sequences``: length of the reserved slice, in sequences of
    ``batch.seq_len`` tokens. ``seed``: which tokens these are; the same seed gives the same search.
    """

    space: ExportSpace = dataclasses.field(default_factory=ExportSpace)
    settings: int = 200
    sequences: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if self.settings < 1 or self.sequences < 2:
            raise ValueError(
                f"export.search needs settings >= 1 and sequences >= 2, got {self.settings} and {self.sequences}"
            )

    def scored_sequences(self) -> int:
        """How many sequences are scored in all, about: of choices of single classes, then in the rounds of a race."""
        rounds = plan_rounds(self.settings, self.sequences)
        probes = [
            choice for v in self.space.variants() for kind in CLASSES for choice in class_choices(self.space, kind, v)
        ]
        before, raced = 0, 0
        for each in rounds:
            raced += each.places * (each.sequences - before)
            before = each.sequences
        return len(probes) * rounds[0].sequences + raced + (_LANDINGS + 1) * self.sequences


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a search runs, and what the run that it is part of has already; by default it is alone on this machine.

    ``device``: None: the one that the settings mean. ``threads``: that compress and score side by side, None: as many
    as there are cores. ``hessians``: what GPTQ needs, None: collected where it is tried. ``validates``: whether the
    setting chosen is scored on validation; a trial does so itself. ``pulse`` is called again and again, every few
    seconds at the latest while a model is small, for whoever waits.
    """

    device: torch.device | None = None
    threads: int | None = None
    hessians: dict[str, torch.Tensor] | None = None
    validates: bool = True
    pulse: Callable[[], None] = lambda: None


def search_exports(
    state: dict[str, torch.Tensor],
    settings: RunSettings,
    *,
    steps: int | None,
    max_bytes: int,
    plan: SearchPlan | None = None,
    candidates: Sequence[ExportSettings] | None = None,
    tell: Callable[[str], None] | None = None,
    site: Site | None = None,
) -> SearchResult:
    """Search the export of a trained state dict of the model that ``settings.model`` describes, in one process.

    ``settings`` say model, batch, data, runtime, and the export settings that a space does not vary
    (keep_float_max_numel, bits_small, bits_control, scale_floor, clip_quantile, clip_best_of, overrides, gptq_batches,
    gptq_damping). ``steps``: optimizer steps that the run made, which tells what training tokens it did not reach;
    None: not known. ``max_bytes``: of the artifact, that is cap less code. ``candidates``: race exactly these instead
    of what the space proposes; their codec is still chosen by the space. ``tell`` hears a line a stage. ``site``: None:
    alone on this machine.

    Raises ``ValueError`` on weights that are not finite or are not the model's, and on data too short to reserve from;
    ``FileNotFoundError`` where shards or tokenizer are missing; ``CodecMissing`` where a codec of
    the space is not installed.
    """
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, got {max_bytes}: the code alone fills the cap")
    parameters = sum(tensor.numel() for tensor in state.values())
    with _threads(1 if parameters < _ONE_THREAD_BELOW else torch.get_num_threads()):
        search = _Search(
            state, settings, steps, max_bytes, plan or SearchPlan(), tell or (lambda line: None), site or Site()
        )
        return search.run(candidates)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Search:
    def __init__(
        self,
        state: dict[str, torch.Tensor],
        settings: RunSettings,
        steps: int | None,
        max_bytes: int,
        plan: SearchPlan,
        tell: Callable[[str], None],
        site: Site,
    ) -> None:
        self.settings, self.max_bytes, self.plan, self.tell, self.site = settings, max_bytes, plan, tell, site
        self.seconds: dict[str, float] = {}
        self.mark = time.perf_counter()
        self.gang = Gang(0, 1, site.device or choose_device(settings.runtime.device, 0))
        dtype = choose_runtime(settings, self.gang).dtype
        prepare_device(self.gang, dtype)
        with torch.random.fork_rng(devices=[]):
            self.model = build_model(settings.model, dtype, self.gang.device)
        self.model.load_state_dict(state)
        self.state = {name: tensor.detach() for name, tensor in state.items()}
        self.table = load_byte_table(settings.data.tokenizer, settings.model.vocab_size)
        self.reserve = reserve_tokens(settings, steps, plan.sequences, plan.seed, calibrates=True in plan.space.gptq)
        threads = len(os.sched_getaffinity(0)) if site.threads is None else site.threads
        # Where one thread is enough for a product of matrices, the others score other sequences.
        side_by_side = threads if self.gang.device.type == "cpu" and torch.get_num_threads() == 1 else 1
        self.scorer = ReserveScorer(self.model, self.state, self.reserve.tokens, self.table, side_by_side)
        self.tensors = ExportTensors(self.state, self.collect)
        self.sizes = ExportSizes(self.tensors, plan.space.codecs, plan.space.shuffles, threads, site.pulse)
        self.nats: dict[ExportSettings, numpy.ndarray] = {}
        self.float_nats = self.scorer.nats({}, 0, self.scorer.sequences)
        self.landed: set[ExportSettings] = set()
        self.stage("data", self.reserve.description)

    def run(self, candidates: Sequence[ExportSettings] | None) -> SearchResult:
        """All stages in their order."""
        rounds = plan_rounds(1, self.scorer.sequences)
        if candidates is None:
            exports = propose(
                base_export(self.settings.export),
                self.plan.space,
                self.plan.settings,
                self.max_bytes,
                lambda kind, export: self.probe(kind, export, rounds[0].sequences),
            )
        else:
            exports = list(dict.fromkeys(map(base_export, candidates)))
        self.stage("probe", f"{len(exports)} quantizations to try")
        self.learn_sizes(exports)
        rounds = plan_rounds(len(exports), self.scorer.sequences)
        finalists = [
            exports[place]
            for place in run_race(
                len(exports),
                rounds,
                self.max_bytes,
                lambda place: self.sizes.smallest(exports[place]),
                lambda place, sequences: self.scorer.bits_per_byte(self.score(exports[place], sequences)),
            )
        ]
        self.stage("race", f"{len(finalists)} finalists on {self.scorer.sequences} sequences")
        landing = self.land(finalists)
        self.stage("landing", landing)
        tried = [self.tried(export) for export in self.nats]
        front = [each for each in front_of(tried, self.scorer.sequences) if each.bytes <= self.max_bytes]
        chosen = front[-1] if front else None
        smallest = front_of(tried, self.scorer.sequences)[0]
        artifact = self.sizes.artifact((chosen or smallest).export)
        validation = self.validate(artifact) if chosen and self.site.validates else None
        self.stage("validate", "nothing fits" if chosen is None else f"chosen: {chosen.bytes:,} bytes")
        return SearchResult(
            tried=tuple(sorted(tried, key=lambda each: (each.bytes, each.bits_per_byte))),
            max_bytes=self.max_bytes,
            sequences=self.scorer.sequences,
            reserve=self.reserve.description,
            trained_on=self.reserve.trained_on,
            unquantized=self.scorer.bits_per_byte(self.float_nats),
            chosen=chosen,
            artifact=artifact,
            validation=validation,
            landing=landing,
            seconds=self.seconds,
        )

    def stage(self, name: str, found: str) -> None:
        """A stage is over: its seconds, and a line on what it found."""
        now = time.perf_counter()
        self.seconds[name], self.mark = now - self.mark, now
        self.tell(f"{name} {self.seconds[name]:.1f} s: {found}")

    def collect(self) -> dict[str, torch.Tensor]:
        """Hessians of the float weights on the calibration tokens."""
        if self.site.hessians is not None:
            return self.site.hessians
        self.model.load_state_dict(self.state)
        return collect_hessians(self.model, [batch.to(self.gang.device) for batch in self.reserve.calibration])

    def probe(self, kind: str, export: ExportSettings, sequences: int) -> tuple[float, float]:
        """Bytes of one class by entropy, and bits per byte with nothing but it quantized."""
        self.site.pulse()
        try:
            weights = self.tensors.restored((kind,), export)
        except NotStorable as error:
            self.tell(f"left out: {error}")
            raise
        nats = self.scorer.nats(weights, 0, sequences)
        return self.sizes.class_entropy(kind, export), self.scorer.bits_per_byte(nats)

    def learn_sizes(self, exports: list[ExportSettings]) -> None:
        """Size all under every codec."""
        self.sizes.learn(exports)
        sizes = [self.sizes.smallest(export) for export in exports]
        best = {self.sizes.best_packing(export).codec for export in exports}
        self.stage("bytes", f"{min(sizes):,} to {max(sizes):,} bytes, smallest under {' or '.join(sorted(best))}")

    def score(self, export: ExportSettings, sequences: int) -> numpy.ndarray:
        """Nats of the first sequences; those already known are not computed again."""
        known = self.nats.get(export, numpy.empty(0))
        if len(known) < sequences:
            self.site.pulse()
            weights = self.tensors.restored(CLASSES, export)
            known = self.nats[export] = numpy.concatenate([known, self.scorer.nats(weights, len(known), sequences)])
        return known[:sequences]

    def tried(self, export: ExportSettings) -> Tried:
        """What is known of a setting."""
        nats = self.nats[export]
        floats = self.float_nats[: len(nats)]
        return Tried(
            export=self.sizes.best_export(export),
            bytes=self.sizes.smallest(export),
            codecs=self.sizes.by_codec(export),
            bits_per_byte=self.scorer.bits_per_byte(nats),
            added=self.scorer.bits_per_byte(nats) - self.scorer.bits_per_byte(floats),
            error=self.scorer.standard_error(nats, floats),
            sequences=len(nats),
            landed=export in self.landed,
        )

    def land(self, finalists: list[ExportSettings]) -> str:
        """Turn k of the most promising finalists near the cap until they end just below it, and score them in full."""
        low, high = (share * self.max_bytes for share in _LANDING_WINDOW)
        able = [export for export in finalists if knobs(export)]
        if not able:
            return "no finalist is clipped at deviations, so there is no k to turn"
        near = [export for export in able if low <= self.sizes.smallest(export) <= high]
        near = near or [min(able, key=self._octaves_off)]
        if self._octaves_off(near[0]) > _FARTHEST:
            return "no finalist is near enough to the cap to turn its k"
        slope = self._slope([self.tried(export) for export in near])

        def at_cap(export: ExportSettings) -> float:
            excess = self.sizes.smallest(export) - self.max_bytes
            return self.scorer.bits_per_byte(self.nats[export]) - slope * excess

        return "; ".join(self.land_storable(export) for export in sorted(near, key=at_cap)[:_LANDINGS])

    def land_storable(self, export: ExportSettings) -> str:
        """What :meth:`land_one` says, or why a k on the way makes no artifact."""
        try:
            return self.land_one(export)
        except NotStorable as error:
            return f"k is not turned to the end: {error}"

    def land_one(self, export: ExportSettings) -> str:
        """Turn k of all classes, then of single ones where sizes jump over the window; returns where that ends."""
        packing = self.sizes.best_packing(export)
        landed, size = export, self.sizes.smallest(export)
        # The largest class is the coarsest knob, so it is the last that is turned alone.
        single = sorted(((kind,) for kind in knobs(export)), key=lambda kinds: self._saved_by_doubling(export, kinds))
        for kinds in [knobs(export), *single]:
            found = land_below(
                lambda factor, landed=landed, kinds=kinds: self.sizes.size(  # type: ignore[misc]
                    turned(landed, kinds, factor), packing
                ),
                self.max_bytes,
                size,
                self._saved_by_doubling(landed, kinds),
            )
            if found is not None:
                landed, size = turned(landed, kinds, found[0]), found[1]
            if self.max_bytes * (1 - CLOSE) <= size <= self.max_bytes:
                break
        if size > self.max_bytes:
            return "no k ends below the cap"
        self.landed.add(landed)
        self.score(landed, self.scorer.sequences)
        close = "" if size >= self.max_bytes * (1 - CLOSE) else ", as near as it comes"
        return f"k ends {self.max_bytes - size:,} bytes below the cap{close}"

    def validate(self, artifact: bytes) -> Score:
        """The chosen artifact, reloaded, on the validation tokens."""
        batch = self.settings.batch
        if self.gang.device.type == "cpu":
            # As many tokens at once as the scorer takes: more only cost time.
            at_once = max(1024 // batch.seq_len, 1) * batch.seq_len
            batch = dataclasses.replace(batch, val_tokens=min(batch.val_tokens, at_once * batch.slices))
        self.model.load_state_dict(load_artifact(artifact))
        tokens = load_validation_tokens(list_shards(Path(self.settings.data.folder), "val"), batch.seq_len)
        return score_model(self.model, tokens, self.table, batch, self.gang)

    def _octaves_off(self, export: ExportSettings) -> float:
        """How far a size is from the cap, in powers of two."""
        return abs(math.log2(self.sizes.smallest(export) / self.max_bytes))

    def _slope(self, near: list[Tried]) -> float:
        """Bits per byte that one byte more is worth between the ends of the front of some settings; at most 0."""
        front = front_of(near, self.scorer.sequences)
        if len(front) < 2:
            return 0.0
        return (front[-1].bits_per_byte - front[0].bits_per_byte) / (front[-1].bytes - front[0].bytes)

    def _saved_by_doubling(self, export: ExportSettings, kinds: tuple[str, ...]) -> float:
        """Steps twice as wide save a bit of each weight that they round."""
        other = turned(export, kinds, 2.0)
        changed = [name for name in self.state if self.tensors.key(name, export) != self.tensors.key(name, other)]
        return sum(self.state[name].numel() for name in changed) / 8


__all__ = ["ExportSpace", "SearchPlan", "SearchResult", "Site", "Tried", "search_exports"]
