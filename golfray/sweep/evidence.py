"""What the scores of two configurations prove: the difference, what chance would explain, and which rules it meets.

The rules are those of the parameter-golf record board; docs/evidence.md has every number's meaning and source.
"""

from __future__ import annotations

import collections
import dataclasses

from golfray.sweep.comparable import different_tokenizers, fits, refuse_incomparable
from golfray.sweep.resolved_diff import resolved_diff
from golfray.sweep.scores import Scores, nats_per_bpb
from golfray.sweep.scores_file import reference_fidelity, reference_noise
from golfray.sweep.significance import (
    Noise,
    OneSided,
    Sample,
    known_noise,
    paired,
    pool,
    runs_against,
    runs_per_side,
    welch,
)
from golfray.sweep.statistics import expected_best_of


@dataclasses.dataclass(frozen=True)
class Rule:
    """A bar: lower by more than ``margin`` nats per token at p < ``alpha``."""

    name: str
    margin: float
    alpha: float
    words: str


RECORD = Rule("record", 0.005, 0.01, "0.005 nats per token below it at p < 0.01")
FRONTIER = Rule("frontier", 0.0, 0.25, "below the standing row at p < 0.25")
RULES = (RECORD, FRONTIER)


@dataclasses.dataclass(frozen=True)
class Needed:
    """Runs in all that a rule needs on each side for the power asked for; None: no number of runs is enough.

    ``second`` is as many as there are where that side cannot be run again.
    """

    first: int | None
    second: int | None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One rule: Welch's test decides it, the test with the fidelity's noise stands beside it.

    ``unknown`` is why it could not be decided. ``needed`` is None where the noise is unknown.
    """

    rule: Rule
    welch: OneSided | None
    known: OneSided | None
    met: bool
    unknown: str | None
    needed: Needed | None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What ``first`` has to show against ``second``.

    ``difference`` is first minus second in bits per byte, ``difference_nats`` in nats per token of the first's
    tokenizer (negative: better). ``tests`` has Welch's, ``known_tests`` that with the fidelity's ``noise``, by "bpb"
    and "nats", each None where it cannot be made. ``pairs`` is on how many seeds both ran, ``paired`` the test of their
    differences on these, None below two. ``luck`` is by how many bits per byte the best of
    ``first.chosen_of`` equal trials lies below their mean, None where the first was not chosen so or noise is unknown.
    """

    first: Scores
    second: Scores
    difference: float
    difference_nats: float | None
    tests: dict[str, OneSided | None]
    known_tests: dict[str, OneSided | None]
    pairs: int
    paired: OneSided | None
    noise: Noise | None
    noise_of: str
    luck: float | None
    identical: bool | None
    objections: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    power: float
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Pair:
    """Both samples, the noise and the luck in one unit."""

    first: Sample
    second: Sample
    noise: Noise | None
    luck: float

    def scaled(self, factor: float) -> _Pair:
        noise = None if self.noise is None else self.noise.scaled(factor)
        return _Pair(self.first.scaled(factor), self.second.scaled(factor), noise, self.luck * factor)

    def known(self, margin: float = 0.0) -> OneSided | None:
        return None if self.noise is None else known_noise(self.first, self.second, self.noise, margin)

    def needed(self, rule: Rule, power: float, *, both: bool) -> Needed | None:
        """As if the true difference were the one seen, less what luck explains of it."""
        if self.noise is None:
            return None
        effect = self.second.mean - self.first.mean - self.luck - rule.margin
        if both:
            runs = _for_welch(runs_per_side(effect, self.noise.sd, rule.alpha, power))
            return Needed(runs, runs)
        others = self.second.n
        return Needed(_for_welch(runs_against(effect, self.noise.sd, rule.alpha, power, others)), others)


def _for_welch(runs: int | None) -> int | None:
    """One run has no spread of its own, however few would do."""
    return None if runs is None else max(runs, 2)


def weigh(first: Scores, second: Scores, power: float = 0.8) -> Evidence:
    """Compare ``first`` with ``second``, which it claims to beat. Raises ``ClaimRefused`` where that may not be."""
    notes = refuse_incomparable(first, second)
    noise, noise_of = fidelity_noise(first, second)
    luck = None
    if first.chosen_of is not None and noise is not None:
        luck = noise.sd * expected_best_of(max(first.chosen_of, 1))
    bits = _Pair(first.sample, second.sample, noise, luck or 0.0)
    nats = None if first.bytes_per_token is None else bits.scaled(nats_per_bpb(first.bytes_per_token))
    if different_tokenizers(first, second):
        notes.append(f"their tokenizers differ: nats are per token of {first.name}'s")
    objections, identical = list(first.objections), None
    if first.settings is not None and second.settings is not None:
        identical = not resolved_diff(first.settings, second.settings)
    if identical:
        objections.append(f"{first.name} and {second.name} are identical in every resolved setting: only seeds differ")
    differences = _differences_by_seed(first, second)
    return Evidence(
        first=first,
        second=second,
        difference=bits.first.mean - bits.second.mean,
        difference_nats=None if nats is None else nats.first.mean - nats.second.mean,
        tests={
            "bpb": welch(bits.first, bits.second),
            "nats": None if nats is None else welch(nats.first, nats.second),
        },
        known_tests={"bpb": bits.known(), "nats": None if nats is None else nats.known()},
        pairs=len(differences),
        paired=paired(differences),
        noise=noise,
        noise_of=noise_of,
        luck=luck,
        identical=identical,
        objections=tuple(objections),
        # Without a margin the unit does not matter.
        verdicts=tuple(
            _judge(rule, nats if rule.margin else nats or bits, first, second, power, bool(objections))
            for rule in RULES
        ),
        power=power,
        notes=tuple(notes),
    )


def fidelity_noise(first: Scores, second: Scores) -> tuple[Noise | None, str]:
    """Seed noise in bits per byte at the fidelity of the two, and where it is from.

    At the fidelity of the published rows it is theirs, pooled over all of them; elsewhere it is pooled over every
    configuration that is known to have run on several seeds: the two, and the others of their studies.
    """
    if any(fits(scores.fidelity, reference_fidelity()) for scores in (first, second)):
        return reference_noise(), "the published rows of this fidelity"
    repeats = {**second.repeats, **first.repeats}
    noise = pool(repeats.values())
    measured = sum(sample.sd is not None for sample in repeats.values())
    return (
        noise,
        f"{measured} configurations on several seeds" if measured != 1 else "one configuration on several seeds",
    )


def _differences_by_seed(first: Scores, second: Scores) -> list[float]:
    """First minus second in bits per byte, for every seed on which each of them has one run that counts."""
    one, other = (_by_seed(scores) for scores in (first, second))
    return [bpb - other[seed] for seed, bpb in one.items() if seed in other]


def _by_seed(scores: Scores) -> dict[int, float]:
    """Scores of the runs that count, by the seeds that only one of them has."""
    counted = [run for run in scores.runs if run.left_out is None]
    often = collections.Counter(run.seed for run in counted)
    return {
        run.seed: run.bpb for run in counted if run.seed is not None and run.bpb is not None and often[run.seed] == 1
    }


def _judge(rule: Rule, pair: _Pair | None, first: Scores, second: Scores, power: float, objected: bool) -> Verdict:
    if pair is None:
        unknown: str | None = f"how many bytes a token of {first.name} stands for is not known, so neither are its nats"
        return Verdict(rule, None, None, False, unknown, None)
    own, unknown = welch(pair.first, pair.second, rule.margin), None
    if own is None:
        few = [scores.name for scores in (first, second) if scores.sample.sd is None]
        unknown = f"Welch's test needs two runs of {' and of '.join(few)}" if few else "no spread over seeds on a side"
    needed = pair.needed(rule, power, both=second.kind == "trial")
    met = own is not None and own.p < rule.alpha and not objected
    return Verdict(rule, own, pair.known(rule.margin), met, unknown, needed)
