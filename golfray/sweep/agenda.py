"""What a study runs next.

What was asked is finished first: a trial to be run again goes before any new point. Then come the planned points, then
the sampler's, then extra seeds for what is nearly tied (:mod:`golfray.sweep.extra_seeds`). The budget's trials and
minutes limit what is asked, never what is finished; its GPU-hours and USD limit every attempt
(:mod:`golfray.sweep.budget`).
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from golfray.config.errors import ConfigError
from golfray.config.resolve import Resolved
from golfray.config.sizes import count_text
from golfray.sweep.budget import Allowance
from golfray.sweep.confirmation import repeat
from golfray.sweep.extra_seeds import extra_seeds_left, fresh_seeds, next_round
from golfray.sweep.fit import Fit, is_too_large
from golfray.sweep.journal import Journal
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.rungs import SHARES, Promotion, promotion, shortened
from golfray.sweep.sampler import StudySampler
from golfray.sweep.size_foresight import SizeForesight
from golfray.sweep.space import Space
from golfray.sweep.stopping import RUNGS
from golfray.sweep.trial_record import (
    CONFIRM,
    EXTRA_SEED,
    RUNG,
    SAMPLER,
    TrialRecord,
    configuration_of,
)
from golfray.sweep.work_left import asked_trials, confirming_left, work_left

# Refused configurations cost no time, so a space that gives nothing else would fill the log until the minutes are over.
_REFUSED_IN_A_ROW = 20

# Points that cannot fit teach the sampler where it is small enough, which takes longer than to hear of one mistake.
_TOO_LARGE_IN_A_ROW = 100

_SEED = "runtime.seed"

_NOT_TOLD = (
    "an extra seed measures a trial again: the sampler hears of a point once more only where it suggests it again"
)


def job_name(study: str, trial: int, attempt: int) -> str:
    """The name under which an executor knows an attempt."""
    return f"{study}-{trial:04d}-{attempt}"


def end_refused(journal: Journal, study: str, trial: TrialRecord) -> None:
    """Log the end of a trial that was refused: it cannot fit, or its configuration crashed before it began."""
    if trial.too_large:
        outcome = Outcome(Kind.INFEASIBLE, f"refused before training: {trial.refused}", dict(trial.foreseen or {}))
    else:
        outcome = Outcome(Kind.CRASHED, f"configuration refused: {trial.refused or 'the log does not say why'}")
    journal.end_attempt(trial.number, 1, job_name(study, trial.number, 1), outcome, final=True)


class Agenda:
    """Decides what runs next. Begins with what the journal's record leaves to do; asks, and logs what it asked.

    ``bytes_code`` and ``uniform_bpb``: see :class:`golfray.sweep.study.Study`; ``clock`` gives seconds, ``now`` unix
    seconds. ``foresight`` knows the sizes to expect; every attempt must fit into what is ``allowed``. With
    ``confirming`` the search rests: unfinished confirmations are run, and nothing is asked.
    """

    def __init__(
        self,
        space: Space,
        journal: Journal,
        foresight: SizeForesight,
        allowed: Allowance,
        *,
        bytes_code: int,
        uniform_bpb: float,
        clock: Callable[[], float],
        now: Callable[[], float],
        confirming: bool = False,
    ) -> None:
        # Why nothing that could be asked would run; None while something may.
        self.hopeless: str | None = None
        # Why nothing more is asked although there is budget left: all that the sampler suggests is too large.
        self.nothing_fits: str | None = None
        # Why not even one more attempt is paid for; once that is so it stays so, since nodes are held whatever runs.
        self.unpaid: str | None = None
        self._space = space
        self._journal = journal
        self._foresight = foresight
        self._allowed = allowed
        self._now = now
        self._bytes_code = bytes_code
        self._clock = clock
        self._sampler = StudySampler(
            space.knobs,
            kind=space.sampler,
            seed=space.seed,
            cap_bytes=space.base.config.cap_bytes,
            uniform_bpb=uniform_bpb,
            foreign=space.warm_start,
        )
        if journal.record.trials:
            self._anchor(journal.record.trials[0])
        self._sampler.restore(journal.record)
        left = confirming_left(journal.record) if confirming else work_left(space, journal.record)
        self._again = deque(left.unfinished)
        self._planned = deque(left.planned)
        self._suggestions = math.inf if left.suggestions is None else left.suggestions
        self._deadline = clock() + left.seconds
        self._refused_in_a_row = 0
        self._confirming = confirming
        # Of the length: what a new point of the sampler's runs for.
        self._first_share = SHARES[0] if space.stopping == RUNGS else 1.0
        # The trials that were asked of each configuration and repeat no other, among so many trials.
        self._ran: dict[str, list[int]] = {}
        self._seen = 0
        if not confirming and any(trial.role == EXTRA_SEED and trial.unfinished for trial in journal.record.trials):
            self._ask_round(next_round(journal.record, space.budget.extra_seeds or 0))
        self._too_large_in_a_row = 0

    def next(self) -> TrialRecord | None:
        """The trial to run next, logged as asked; None where nothing is to be run now."""
        if self._again:
            waiting = self._journal.record.trials[self._again[0]]
            if not self._is_paid(waiting.settings or {}, confirms=waiting.role == CONFIRM):
                return None
            self._again.popleft()
            return waiting
        while self._may_ask and self._clock() < self._deadline:
            if not self._planned and self._suggestions <= 0:
                return self._ask_extra_seeds()
            trial = self._ask_planned() if self._planned else self._suggest()
            if trial is not None:
                return trial
        return None

    def run_again(self, trial: TrialRecord) -> None:
        """Put a trial whose last attempt was not final before everything that was not asked yet."""
        self._again.append(trial.number)

    def tell(self, trial: TrialRecord) -> None:
        """Let the sampler hear how a trial ended for good."""
        if trial.told and trial.outcome is not None:
            self._sampler.tell(trial.number, trial.outcome, trial.curve, trial.size_reserve, trial.share)
        if trial.number == 0:
            self._anchor(trial)

    def _anchor(self, trial_0: TrialRecord) -> None:
        """What others ran is told relative to trial 0."""
        if trial_0.bpb is not None:
            self._sampler.anchor(trial_0.bpb)

    def spent(self) -> str:
        """What of the budget is spent, now that nothing is left to ask."""
        if self.unpaid is not None:
            return f"budget spent: {self.unpaid}"
        if self._confirming:
            return "confirmations done"
        if self._clock() >= self._deadline:
            return f"budget spent: {self._space.budget.minutes:g} minutes"
        return f"budget spent: {count_text(asked_trials(self._journal.record), 'trial')}"

    def allow(self, allowed: Allowance) -> None:
        """From now on every attempt must fit into this: the nodes that are held have changed."""
        self._allowed = allowed

    @property
    def _may_ask(self) -> bool:
        return self.hopeless is None and self.nothing_fits is None and self.unpaid is None

    def _pays_for(self, resolved: Resolved) -> bool:
        return not self._allowed.is_capped or self._is_paid(self._settings(resolved))

    def _is_paid(self, settings: Mapping[str, Any], *, confirms: bool = False) -> bool:
        """Whether an attempt surely ends before the budget's money or GPU-hours do, were it to start now."""
        now = self._now()
        if self._allowed.fits(settings, now, confirms=confirms):
            return True
        self.unpaid = self._allowed.why_not(settings, now, confirms=confirms)
        return False

    def _ask_planned(self) -> TrialRecord | None:
        """The point that runs next whatever the sampler thinks; None where it is certain not to fit, or not paid."""
        point = self._planned[0]
        fit = self._fit(point.resolved)
        too_large = is_too_large(point.role, fit, self._space.fit_probability)
        if not too_large and not self._pays_for(point.resolved):
            return None
        self._planned.popleft()
        if point.told:
            self._sampler.place(len(self._journal.record.trials), point.params)
        trial = self._ask(
            role=point.role,
            params=point.params,
            resolved=point.resolved,
            fit=fit,
            too_large=too_large,
            told_reason=point.told_reason,
            replicate_of=point.replicate_of,
        )
        return None if too_large else trial

    def _ask_extra_seeds(self) -> TrialRecord | None:
        """The first trial of the round of extra seeds that is due; None where none is."""
        record, most = self._journal.record, self._space.budget.extra_seeds or 0
        if self._confirming or not extra_seeds_left(record, most):
            return None
        due = next_round(record, most)
        if not due or not self._is_paid(record.trials[due[0]].settings or {}):
            return None
        self._ask_round(due)
        return record.trials[self._again.popleft()]

    def _ask_round(self, due: Sequence[int]) -> None:
        """All of it is in the log before any of it runs, so that an interrupted round can be told from a whole one."""
        record = self._journal.record
        for number in due:
            trial = repeat(self._journal, record.trials[number], next(fresh_seeds(record)), EXTRA_SEED, _NOT_TOLD)
            self._again.append(trial.number)

    def _suggest(self) -> TrialRecord | None:
        """A point of the sampler's; None where the configuration does not allow it, it cannot fit, or is not paid."""
        self._suggestions -= 1
        if self._space.stopping == RUNGS and (earned := promotion(self._journal.record)) is not None:
            return self._promote(earned)
        params = self._sampler.suggest(len(self._journal.record.trials))
        try:
            whole = self._space.at(params)
            resolved, repeated = self._once_more(shortened(whole, self._first_share))
        except ConfigError as error:
            self._ask(role=SAMPLER, params=params, resolved=None, refused=str(error))
            self._refused_in_a_row += 1
            if self._refused_in_a_row >= _REFUSED_IN_A_ROW:
                self.hopeless = f"{_REFUSED_IN_A_ROW} configurations in a row were refused, the last one: {error}"
            return None
        self._refused_in_a_row = 0
        fit = self._fit(whole)
        too_large = is_too_large(SAMPLER, fit, self._space.fit_probability)
        if not too_large and not self._pays_for(resolved):
            return None
        # What cannot fit is refused for the size of its whole run: no short one comes into it.
        trial = self._ask(
            role=SAMPLER if self._first_share == 1.0 else RUNG,
            params=params,
            resolved=resolved,
            fit=fit,
            too_large=too_large,
            replicate_of=repeated,
            share=self._first_share,
        )
        if not too_large:
            self._too_large_in_a_row = 0
            return trial
        self._suggestions += 1
        self._too_large_in_a_row += 1
        if self._too_large_in_a_row >= _TOO_LARGE_IN_A_ROW:
            self.nothing_fits = (
                f"{_TOO_LARGE_IN_A_ROW} points in a row cannot fit under the cap (fewer bits in the space or a larger "
                f"cap_bytes would let some), the last one: {trial.refused}"
            )
        return None

    def _promote(self, earned: Promotion) -> TrialRecord | None:
        """The longer run that a short one has earned, which fitted and was possible then; None where it is not paid."""
        params = earned.trial.params
        whole = self._space.at(params)
        resolved, repeated = self._once_more(shortened(whole, earned.share))
        if not self._pays_for(resolved):
            return None
        self._sampler.place(len(self._journal.record.trials), params)
        return self._ask(
            role=SAMPLER if earned.share == 1.0 else RUNG,
            params=params,
            resolved=resolved,
            fit=self._fit(whole),
            replicate_of=repeated,
            share=earned.share,
            promotes=earned.trial.number,
        )

    def _once_more(self, resolved: Resolved) -> tuple[Resolved, int | None]:
        """What was asked before runs on another seed, as a repetition of that trial; the same one would say nothing.

        It repeats none where that one ended without an answer: what nothing is known of cannot stand for both.
        """
        record = self._journal.record
        for trial in record.trials[self._seen :]:
            if trial.configuration is not None and not trial.is_refused and not trial.repeats:
                self._ran.setdefault(trial.configuration, []).append(trial.number)
        self._seen = len(record.trials)
        before = self._ran.get(configuration_of(self._settings(resolved)), [])
        if not before:
            return resolved, None
        root = next((number for number in before if not record.trials[number].ended_unanswered), None)
        return resolved.with_values({_SEED: next(fresh_seeds(record))}, "another seed"), root

    def _fit(self, resolved: Resolved) -> Fit | None:
        return self._foresight.fit(resolved.config.to_run_settings(self._bytes_code), self._journal.record)

    def _settings(self, resolved: Resolved) -> dict[str, Any]:
        return dataclasses.asdict(resolved.config.to_run_settings(self._bytes_code))

    def _ask(
        self,
        *,
        role: str,
        params: dict[str, Any],
        resolved: Resolved | None,
        fit: Fit | None = None,
        too_large: bool = False,
        refused: str | None = None,
        told_reason: str | None = None,
        replicate_of: int | None = None,
        share: float = 1.0,
        promotes: int | None = None,
    ) -> TrialRecord:
        """Log a new trial, and its end where it is refused, of which the sampler hears then.

        ``resolved`` is None where the configuration does not allow the point, and ``refused`` says why.
        """
        config = (resolved or self._space.base).config
        number = len(self._journal.record.trials)
        if too_large:
            assert fit is not None
            refused = f"{'certain not to fit, ' if fit.is_certain_not_to else ''}{fit.words()}"
        self._journal.write(
            "trial_asked",
            trial=number,
            role=role,
            params=params,
            told=told_reason is None,
            told_reason=told_reason,
            settings=None if resolved is None else self._settings(resolved),
            refused=refused,
            foreseen=None if fit is None else fit.to_metrics(),
            too_large=too_large,
            seed=config.runtime.seed,
            replicate_of=replicate_of,
            share=share,
            promotes=promotes,
        )
        trial = self._journal.record.trials[number]
        if refused is not None:
            end_refused(self._journal, self._space.name, trial)
            self.tell(trial)
        return trial
