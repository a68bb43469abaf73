"""What to try next: Optuna 5 behind the few questions a study asks.

The Optuna study lives in memory and holds only the trials that the sampler is told of, in the order in which they were
asked. The event log is the truth; :meth:`StudySampler.restore` builds the same study again from its records.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState

from golfray.sweep.gp_sampler import GaussianProcessSampler
from golfray.sweep.knobs import Choice, FloatRange, IntRange, Knob, Parameter, dependency_order, parameters_of, walk
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.verdict import Verdict, verdict_on
from golfray.sweep.warm_start import FOREIGN_TRIALS, ForeignPoint

# Where optuna.samplers.TPESampler keeps its note about a running trial.
_RELATIVE_PARAMS = "tpe:relative_params:"

# Points before TPE has a model, planned ones included. Optuna's 10 would leave nothing of a study of 12 to it; on a
# synthetic law of 12 knobs 3, 6 and 10 ended within each other's noise (docs/log.md).
STARTUP_TRIALS = 5

# Ended trials before a Gaussian process takes over from TPE: with fewer, over a dozen knobs, it knows less than TPE
# does and tries the corners of the space (docs/log.md).
GP_STARTUP_TRIALS = 30

# TPE sorts and weighs all that it knows at every suggestion, which grows with a study; a Gaussian process inverts a
# matrix of it. They know the last this many told trials and up to a block more: trials are forgotten by blocks, since
# Optuna has to be told the others anew each time.
HISTORY = 1000
HISTORY_BLOCK = 250
GP_HISTORY = 200
GP_HISTORY_BLOCK = 50


class StudySampler:
    """Asks Optuna for points and tells it what they gave. Numbers are the study's trial numbers, not Optuna's.

    ``kind`` is ``tpe``, ``random``, or ``gp``: TPE until ``GP_STARTUP_TRIALS`` have ended, a Gaussian process from then
    on. Ask number n draws from (``seed``, n) alone, so that a suggestion depends only on n and on what was told before,
    never on how often or in which process the sampler was built. A point has the parameters of the knobs that are
    active there, and of no others. ``foreign`` are points at which others ran: they count as told once trial 0 has a
    score (:meth:`anchor`), until there are ``FOREIGN_TRIALS`` own trials; one that is no point of these knobs is left
    out.
    """

    def __init__(
        self,
        knobs: Iterable[Knob],
        *,
        kind: str,
        seed: int,
        cap_bytes: int,
        uniform_bpb: float,
        foreign: Sequence[ForeignPoint] = (),
    ) -> None:
        self._knobs = dependency_order(knobs)
        self._parameters = parameters_of(self._knobs)
        self._distributions = {name: distribution_of(parameter) for name, parameter in self._parameters.items()}
        self._conditional = any(knob.when for knob in self._knobs)
        self._kind = kind
        self._seed = seed
        self._cap_bytes = cap_bytes
        self._uniform_bpb = uniform_bpb
        self._foreign = [(point, params) for point in foreign if (params := point.params(self._knobs)) is not None]
        # What trial 0 scored: until it has, a difference from it is no score.
        self._trial_0_bpb: float | None = None
        self._foreign_told = 0
        self._running: dict[int, optuna.Trial] = {}
        # Trials that Optuna was told of so far, and how many of them, the oldest, it does not have any more.
        self._count = self._forgotten = 0
        # Trials that were forgotten while they ran, so that their end is of no interest.
        self._lost: set[int] = set()
        self._study = self._new_study()

    def suggest(self, number: int) -> dict[str, Any]:
        """A new point for trial ``number``, which counts as running until it is told."""
        self._forget()
        return self._draw_point(number)

    def place(self, number: int, params: Mapping[str, Any]) -> None:
        """Announce that trial ``number`` runs at a point which the sampler did not choose.

        Raises ``ValueError`` where a value is missing, outside its range, or of no knob that is active there.
        """
        self._check(params)
        self._forget()
        self._draw_placed(number, params)

    def tell(
        self,
        number: int,
        outcome: Outcome,
        curve: Sequence[tuple[int, Mapping[str, float]]],
        size_reserve: float = 0.0,
        share: float = 1.0,
    ) -> None:
        """Report how trial ``number`` ended. Raises ``KeyError`` where it is not running."""
        if number in self._lost:
            self._lost.remove(number)
            return
        verdict = self._verdict(outcome, curve, size_reserve, share)
        trial = self._running.pop(number)
        for name, violation in verdict.constraints.items():
            trial.set_constraint(name, violation)
        for step, value in verdict.curve.items():
            trial.report(value, step)
        for name, value in verdict.notes.items():
            trial.set_user_attr(name, value)
        self._study.tell(trial, verdict.value, state=verdict.state)

    def anchor(self, trial_0_bpb: float) -> None:
        """Trial 0 has this score, in bits per byte: only now is it known what the foreign points are worth here.

        They are put before all own trials, so that a sampler that is rebuilt later has all in the same order.
        """
        if not self._foreign:
            return
        self._trial_0_bpb = trial_0_bpb
        self._rebuild(self._forgotten)

    def restore(self, record: StudyRecord) -> None:
        """Take in the told trials of a log, finished or running, in the order in which they were asked.

        Those that a sampler which heard of them one by one would have forgotten by now are left out.
        """
        told = [trial for trial in record.trials if trial.told]
        self._forgotten = self._first_known(len(told))
        self._count = self._forgotten
        self._lost = {trial.number for trial in told[: self._forgotten] if trial.outcome is None}
        for trial in told[self._forgotten :]:
            if trial.outcome is None:
                self._check(trial.params)
                self._draw_placed(trial.number, trial.params)
            else:
                # A log that was written by hand may have a score without a number.
                outcome = trial.outcome.held_to(self._cap_bytes)
                verdict = self._verdict(outcome, trial.curve, trial.size_reserve, trial.share)
                self._study.add_trial(self._finished(trial.params, verdict))
                self._count += 1

    @property
    def trials(self) -> list[FrozenTrial]:
        """Copies of Optuna's trials, in the order in which they were asked, foreign points before them."""
        return self._study.get_trials(deepcopy=True)

    def _verdict(
        self, outcome: Outcome, curve: Sequence[tuple[int, Mapping[str, float]]], size_reserve: float, share: float
    ) -> Verdict:
        return verdict_on(
            outcome,
            curve,
            cap_bytes=self._cap_bytes,
            uniform_bpb=self._uniform_bpb,
            size_reserve=size_reserve,
            share=share,
        )

    def _forget(self) -> None:
        """Leave to a new Optuna study only what is recent, as of the next trial."""
        first = self._first_known(self._count)
        fades = self._foreign_told > 0 and self._count >= FOREIGN_TRIALS
        if fades:
            self._foreign = []
        if fades or first != self._forgotten:
            self._rebuild(first)

    def _rebuild(self, first: int) -> None:
        """A new Optuna study of the foreign points and of the own trials from the one with this place on."""
        known = self._study.get_trials(deepcopy=False)[self._foreign_told + first - self._forgotten :]
        numbers = {trial._trial_id: number for number, trial in self._running.items()}
        self._running, self._count, self._forgotten = {}, first, first
        self._study = self._new_study()
        for trial in known:
            if trial.state.is_finished():
                self._study.add_trial(trial)
                self._count += 1
            else:
                self._draw_placed(numbers.pop(trial._trial_id), trial.params)
        self._lost |= set(numbers.values())

    def _first_known(self, count: int) -> int:
        """The first trial of which a model still knows when it has been told of ``count``; random points have none."""
        if self._kind == "random":
            return 0
        known, block = (GP_HISTORY, GP_HISTORY_BLOCK) if self._kind == "gp" else (HISTORY, HISTORY_BLOCK)
        return max(count - known, 0) // block * block

    def _new_study(self) -> optuna.Study:
        # create_study announces itself on the console at INFO; the study's own log says the same.
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            study = optuna.create_study(direction="minimize", sampler=optuna.samplers.RandomSampler(seed=0))
        finally:
            optuna.logging.set_verbosity(before)
        if self._trial_0_bpb is not None:
            self._foreign_told = len(self._foreign)
            for point, params in self._foreign:
                verdict = Verdict(TrialState.COMPLETE, point.told(self._trial_0_bpb))
                study.add_trial(self._finished(params, verdict))
        return study

    def _draw_placed(self, number: int, params: Mapping[str, Any]) -> None:
        self._study.enqueue_trial(dict(params))
        self._draw_point(number)

    def _draw_point(self, number: int) -> dict[str, Any]:
        self._count += 1
        self._study.sampler = self._sampler(number)
        trial = self._study.ask()

        def draw(knob: Knob) -> Any:
            return knob.value({name: _draw(trial, name, parameter) for name, parameter in knob.parameters.items()})

        walk(self._knobs, draw)
        if self._conditional:
            _forget_undrawn(trial)
        self._running[number] = trial
        return dict(trial.params)

    def _check(self, params: Mapping[str, Any]) -> None:
        wanted = self._names_at(params)
        if params.keys() != wanted:
            raise ValueError(f"params must name {sorted(wanted)}, got {sorted(params)}")
        for name, value in params.items():
            if not self._parameters[name].contains(value):
                raise ValueError(f"{name}={value!r} is outside {self._parameters[name]}")

    def _names_at(self, params: Mapping[str, Any]) -> set[str]:
        """Names of the parameters of a point; of one that lacks some of them, those of every knob."""
        try:
            _, active = walk(self._knobs, lambda knob: knob.value(params))
        except KeyError:
            return set(self._parameters)
        return set(parameters_of(active))

    def _finished(self, params: Mapping[str, Any], verdict: Verdict) -> FrozenTrial:
        # Like tell() of a live study: a pruned trial takes its last point as value.
        value = verdict.value
        if verdict.state is TrialState.PRUNED and verdict.curve:
            value = verdict.curve[max(verdict.curve)]
        return optuna.trial.create_trial(
            state=verdict.state,
            value=value,
            params=dict(params),
            distributions={name: self._distributions[name] for name in params},
            intermediate_values=verdict.curve,
            constraints=verdict.constraints,
            user_attrs=verdict.notes,
        )

    def _ended(self) -> int:
        """How many own trials, of those still known, have ended."""
        return sum(trial.state.is_finished() for trial in self._study.get_trials(deepcopy=False)) - self._foreign_told

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        # 32 bits: what Optuna's generators take as a seed.
        seed = int(numpy.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        if self._kind == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        if self._kind == "gp" and self._ended() >= GP_STARTUP_TRIALS:
            return GaussianProcessSampler(self._distributions, least=STARTUP_TRIALS, seed=seed)
        with warnings.catch_warnings():
            # `group` has been an experiment of Optuna's since 2.8; a study cannot do anything about it.
            warnings.simplefilter("ignore", ExperimentalWarning)
            return optuna.samplers.TPESampler(
                n_startup_trials=STARTUP_TRIALS,
                multivariate=True,
                # Without it, one trial that lacks a parameter makes the model lose that parameter.
                group=self._conditional,
                constant_liar=True,
                seed=seed,
            )


def _forget_undrawn(trial: optuna.Trial) -> None:
    """Let a running trial have the parameters that it was given and no others.

    TPE notes with a trial what it would draw for every parameter that it has a model of, and counts a running trial at
    all of them; a trial that a rebuilt sampler places has no such note.
    """
    for key in trial.storage.get_trial_system_attrs(trial._trial_id):
        if key.startswith(_RELATIVE_PARAMS):
            trial.storage.set_trial_system_attr(trial._trial_id, key, "")


def _draw(trial: optuna.Trial, name: str, parameter: Parameter) -> Any:
    match parameter:
        case FloatRange(low, high, log, step):
            return trial.suggest_float(name, low, high, log=log, step=step)
        case IntRange(low, high, log, step):
            return trial.suggest_int(name, low, high, log=log, step=step)
        case Choice(choices):
            return trial.suggest_categorical(name, choices)


def distribution_of(parameter: Parameter) -> BaseDistribution:
    """A parameter in Optuna's terms."""
    match parameter:
        case FloatRange(low, high, log, step):
            return FloatDistribution(low, high, log=log, step=step)
        case IntRange(low, high, log, step):
            return IntDistribution(low, high, log=log, step=step)
        case Choice(choices):
            return CategoricalDistribution(choices)
