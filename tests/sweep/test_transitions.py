"""The outcome table of design.md under every legal order of events, and what a study does with an illegal one."""

import collections
import math
import queue
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from optuna.trial import TrialState

from golfray.sweep import study as study_module
from golfray.sweep.choosing import best_feasible, choose
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.executor import Entered, Finished, Holding, Job, Progress, Started
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.retry import CRASHES_A_TRIAL, DRIVER_LOST, PREEMPTIONS_A_TRIAL
from golfray.sweep.sim.law import LAPTOP
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.space import load_space
from golfray.sweep.stopping import Finding, is_audited
from golfray.sweep.study import Study
from golfray.sweep.transitions import IllegalTransition, Stage, next_stage
from golfray.sweep.trial_record import TrialRecord
from golfray.sweep.verdict import BYTES_OVER_CAP, DIVERGED
from tests.sweep.conftest import BYTES_CODE, DATA, FIDELITY, UNIFORM_BPB
from tests.sweep.small_studies import RESUMED

CAP = 1_000_000
SPACE = "stopping: late_check\n" + RESUMED.replace(
    "knobs:", f"fixed: {{cap_bytes: {CAP}, stop.steps: 5, stop.seconds: null}}\nknobs:"
)
SLOTS = 2
ANSWER_S = 60.0

ANSWERS = (Kind.SCORED, Kind.INFEASIBLE, Kind.DIVERGED, Kind.STOPPED)
SIGNS = ("phase", "progress", "late_check")
FAILURES = (Kind.CRASHED, Kind.PREEMPTED, Kind.CANCELLED)


class DriverLost(BaseException):
    """What ends a driver here as a signal would."""


class Puppet:
    """An executor whose jobs do what the machine says, when it says it."""

    slots = SLOTS
    holding = Holding(nodes=1, gpus=0)

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.asked_to_end: set[str] = set()
        self.told: queue.Queue = queue.Queue()
        self.said: queue.Queue = queue.Queue()

    def news(self) -> list[str]:
        return []

    def hold_until(self, moment: float) -> None:
        pass

    def describe(self) -> list[str]:
        return ["a puppet"]

    def submit(self, job: Job) -> None:
        self.submitted.append(job.job_id)

    def events(self, timeout: float) -> list:
        self.said.put(None)
        order = self.told.get(timeout=ANSWER_S)
        if isinstance(order, BaseException):
            raise order
        return order

    def cancel(self, job_id: str, reason: str) -> None:
        self.asked_to_end.add(job_id)

    def close(self) -> None:
        """Nothing runs."""


def outcome_of(kind: Kind, number: int) -> Outcome:
    """An end of that kind; those that are no answer name an error that no other has."""
    bpb, size = 1.5 + number / 1000, CAP - 1000 * (1 if kind is Kind.SCORED else -1)
    metrics = {"bpb/roundtrip": bpb, "bytes/total": float(size), "bytes/model": float(size - BYTES_CODE)}
    return {
        Kind.SCORED: Outcome(kind, "fits", metrics, fidelity=FIDELITY),
        # Reported as scored: what is over the cap is no score whoever says so.
        Kind.INFEASIBLE: Outcome(Kind.SCORED, "fits", metrics, fidelity=FIDELITY),
        Kind.DIVERGED: Outcome(kind, "loss is not finite", {"train/loss": math.nan}),
        Kind.STOPPED: Outcome(kind, "hopeless"),
    }.get(kind, Outcome(kind, f"{kind} {number}", error=f"error {number}"))


class Transitions(RuleBasedStateMachine):
    """A study in a thread of its own; between two rules it waits for its executor, or has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="golfray-transitions-"))
        file = self.root / "space.yaml"
        file.write_text(SPACE)
        self.space = load_space(file, has_gpu=False)
        self.studies = self.ends = 0
        # What a look finds is not the machine's business: it says of which job it finds it.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(study_module, "look", self.look)
        self.begin()

    def look(self, record: StudyRecord, trial: TrialRecord) -> Finding | None:
        """A finding on each job that is doomed, once."""
        hopeless = trial.attempt.job_id in self.doomed and trial.attempt.late_check is None
        return Finding(share=0.6, expected=2.0, chance=0.0, bar=1.0, known=9) if hopeless else None

    def begin(self) -> None:
        """A new study."""
        self.studies += 1
        self.folder = self.root / f"study-{self.studies}"
        self.folder.mkdir()
        self.kinds: dict[str, Kind] = {}
        self.doomed: set[str] = set()
        self.stopped: set[str] = set()
        self.drive(resume=False)

    def teardown(self) -> None:
        if self.alive:
            self.tell(DriverLost())
        self.patch.undo()
        shutil.rmtree(self.root)

    def drive(self, *, resume: bool) -> None:
        """A driver takes the study on, to where it waits for events or has ended."""
        self.puppet = Puppet()
        self.stages: dict[str, Stage] = {}
        self.error: BaseException | None = None
        self.stopping = False
        self.study = Study(
            self.space,
            self.puppet,
            self.folder,
            bytes_code=BYTES_CODE,
            uniform_bpb=UNIFORM_BPB,
            data=DATA,
            # So that the log does not wait for the disk; nothing here loses power.
            simulation=Simulation(scale="laptop").to_record(),
            sizes=SimulatedSizes(LAPTOP),
        )
        self.thread = threading.Thread(target=self._run, args=(resume,))
        self.thread.start()
        self._wait()

    def _run(self, resume: bool) -> None:
        try:
            self.study.resume() if resume else self.study.run()
        except (DriverLost, IllegalTransition) as error:
            self.error = error
        finally:
            self.puppet.said.put("ended")

    def _wait(self) -> None:
        self.alive = self.puppet.said.get(timeout=ANSWER_S) != "ended"
        if not self.alive:
            self.thread.join(ANSWER_S)
        for job_id in self.puppet.submitted:
            self.stages.setdefault(job_id, Stage.SUBMITTED)

    def tell(self, order: object) -> None:
        """Let the executor say something, and the study take it in."""
        self.puppet.told.put(order)
        self._wait()

    def jobs(self, *stages: Stage) -> list[str]:
        return [job_id for job_id, stage in self.stages.items() if stage in stages]

    def happen(self, event: object) -> None:
        self.stages[event.job_id] = next_stage(self.stages[event.job_id], event)
        self.tell([event])

    @precondition(lambda self: self.alive and self.jobs(Stage.SUBMITTED))
    @rule(pick=st.randoms(use_true_random=False))
    def start(self, pick):
        self.happen(Started(pick.choice(self.jobs(Stage.SUBMITTED)), "lane"))

    @precondition(lambda self: self.alive and self.jobs(Stage.STARTED))
    @rule(pick=st.randoms(use_true_random=False), step=st.integers(1, 9))
    def go_on(self, pick, step):
        job_id = pick.choice(self.jobs(Stage.STARTED))
        self.happen(pick.choice([Entered(job_id, "train"), Progress(job_id, step, {"train/loss": 5.0 / step})]))

    @precondition(lambda self: self.alive and set(self.jobs(Stage.STARTED)) - self.doomed)
    @rule(pick=st.randoms(use_true_random=False))
    def look_hopeless(self, pick):
        job_id = pick.choice(sorted(set(self.jobs(Stage.STARTED)) - self.doomed))
        self.doomed.add(job_id)
        self.happen(Progress(job_id, 9, {"train/loss": 9.0}))
        (trial,) = [t for t in self.study.record.trials if t.attempt is not None and t.attempt.job_id == job_id]
        if is_audited(self.space.seed, trial.number):
            assert trial.attempt.late_check.audited
        else:
            self.stopped.add(job_id)
            assert job_id in self.puppet.asked_to_end

    @precondition(lambda self: self.alive and self.jobs(Stage.STARTED))
    @rule(pick=st.randoms(use_true_random=False), kind=st.sampled_from(Kind))
    def end(self, pick, kind):
        self.finish(pick.choice(self.jobs(Stage.STARTED)), kind)

    @precondition(lambda self: self.alive and self.jobs(Stage.SUBMITTED))
    @rule(pick=st.randoms(use_true_random=False), kind=st.sampled_from(FAILURES))
    def end_before_it_started(self, pick, kind):
        self.finish(pick.choice(self.jobs(Stage.SUBMITTED)), kind)

    def finish(self, job_id: str, kind: Kind) -> None:
        self.ends += 1
        name, _ = job_id.rsplit("-", 1)
        before = collections.Counter(kind for job, kind in self.kinds.items() if job.startswith(f"{name}-"))
        again = {
            Kind.CRASHED: before[Kind.CRASHED] < CRASHES_A_TRIAL,
            Kind.PREEMPTED: before[Kind.PREEMPTED] < PREEMPTIONS_A_TRIAL,
            # Whoever gives up ends what runs, as a person does who stops it.
            Kind.CANCELLED: self.stopping or self.study.hopeless,
        }.get(kind, False)
        told = outcome_of(kind, self.ends)
        if job_id in self.stopped and kind in (Kind.CANCELLED, Kind.PREEMPTED):
            # Whatever took it away: it was to end.
            kind, again = Kind.STOPPED, False
        self.kinds[job_id] = kind
        self.happen(Finished(job_id, told))
        (attempt,) = [a for t in self.study.record.trials for a in t.attempts if a.job_id == job_id]
        assert attempt.outcome.kind is kind
        assert attempt.final is not again

    @precondition(lambda self: self.alive)
    @rule(firmly=st.booleans())
    def interrupt(self, firmly):
        (self.study.stop if firmly else self.study.drain)("interrupted")
        self.stopping = self.stopping or firmly
        self.tell([])
        if firmly and self.alive:
            assert self.puppet.asked_to_end >= set(self.jobs(Stage.SUBMITTED, Stage.STARTED))

    @precondition(lambda self: self.alive)
    @rule()
    def lose_the_driver(self):
        self.tell(DriverLost())
        assert isinstance(self.error, DriverLost)

    @precondition(lambda self: not self.alive and not self.study.record.complete)
    @rule()
    def resume(self):
        self.drive(resume=True)

    @precondition(lambda self: not self.alive and self.study.record.complete)
    @rule()
    def begin_anew(self):
        assert self.study.record.end_reason.startswith("budget spent")
        assert not any(trial.unfinished for trial in self.study.record.trials)
        self.begin()

    @precondition(lambda self: self.alive and self.stages)
    @rule(pick=st.randoms(use_true_random=False))
    def tell_what_cannot_be(self, pick):
        job_id = pick.choice(list(self.stages))
        possible = {
            Stage.SUBMITTED: [Entered(job_id, "train"), Progress(job_id, 1, {})],
            Stage.STARTED: [Started(job_id, "lane"), Started("nobody", "lane")],
            Stage.ENDED: [
                Started(job_id, "lane"),
                Progress(job_id, 1, {}),
                Finished(job_id, outcome_of(Kind.SCORED, 0)),
            ],
        }
        before = (self.folder / LOG_NAME).read_bytes()
        self.tell([pick.choice(possible[self.stages[job_id]])])
        assert isinstance(self.error, IllegalTransition)
        written = (self.folder / LOG_NAME).read_bytes()
        assert written.startswith(before)
        # What runs is given up, and nothing is made of what was told.
        assert b'"event":"progress"' not in written[len(before) :]
        assert b'"kind":"scored"' not in written[len(before) :]

    @invariant()
    def the_log_has_only_what_may_follow(self):
        stages: dict[str, str] = {}
        legal = {
            None: {"attempt_submitted"},
            "attempt_submitted": {"attempt_started", "attempt_ended"},
            "attempt_started": {"phase", "progress", "late_check", "attempt_ended"},
            "attempt_ended": set(),
        }
        for event in read_events(self.folder / LOG_NAME):
            if "job_id" in event:
                before = stages.get(event["job_id"])
                assert event["event"] in legal[before], event
                stages[event["job_id"]] = before if event["event"] in SIGNS else event["event"]
        assert sum(stage != "attempt_ended" for stage in stages.values()) <= SLOTS

    @invariant()
    def a_trial_has_one_end_and_as_many_attempts_as_it_may(self):
        record = StudyRecord.load(self.folder)
        assert repr([vars(trial) for trial in record.trials]) == repr([vars(t) for t in self.study.record.trials])
        gave_up = any(event.get("hopeless") for event in read_events(self.folder / LOG_NAME))
        for trial in record.trials:
            assert [attempt.number for attempt in trial.attempts] == list(range(1, len(trial.attempts) + 1))
            assert not any(attempt.final and attempt.outcome for attempt in trial.attempts[:-1])
            ends = [attempt.outcome for attempt in trial.attempts if attempt.outcome is not None]
            assert not any(end.kind in ANSWERS for end in ends[:-1])
            kinds = collections.Counter(end.kind for end in ends if end.error != DRIVER_LOST)
            assert gave_up or kinds[Kind.CRASHED] <= 1 + CRASHES_A_TRIAL
            assert kinds[Kind.PREEMPTED] <= 1 + PREEMPTIONS_A_TRIAL
            for attempt in trial.attempts:
                if attempt.job_id in self.stopped and attempt.job_id not in self.kinds and attempt.outcome is not None:
                    assert attempt.outcome.kind is Kind.STOPPED, "its driver was lost, and the decision stands"
                if attempt.job_id in self.kinds and attempt.outcome is not None:
                    assert attempt.outcome.kind is self.kinds[attempt.job_id]

    @invariant()
    def the_sampler_heard_what_the_table_says(self):
        if not self.alive:
            return
        told = [trial for trial in self.study.record.trials if trial.told]
        for trial, heard in zip(told, self.study._agenda._sampler.trials, strict=True):
            assert trial.params == heard.params
            outcome = trial.outcome
            if outcome is None:
                assert heard.state is TrialState.RUNNING
                continue
            if outcome.kind in FAILURES:
                assert heard.state is TrialState.FAIL
            elif outcome.kind is Kind.STOPPED:
                assert heard.state is TrialState.PRUNED
                assert heard.intermediate_values == {step: values["train/loss"] for step, values in trial.curve}
            else:
                diverged = outcome.kind is Kind.DIVERGED
                assert heard.state is TrialState.COMPLETE
                assert heard.value == (UNIFORM_BPB if diverged else trial.bpb)
                assert (heard.constraints[DIVERGED] > 0) is diverged
                if outcome.kind is Kind.INFEASIBLE:
                    assert heard.constraints[BYTES_OVER_CAP] > 0

    @invariant()
    def only_a_score_within_the_cap_is_best(self):
        best = best_feasible(self.study.record)
        scored = [t for t in self.study.record.trials if t.outcome is not None and t.outcome.kind is Kind.SCORED]
        scored = [trial for trial in scored if trial.replicate_of is None]
        assert (best is None) is (not scored)
        if best is not None:
            assert choose(self.study.record).lowest.bpb == min(trial.bpb for trial in scored)
            assert best in scored
            assert best.bytes_total <= CAP


TestTransitions = Transitions.TestCase
TestTransitions.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)


class TestManyTransitions(Transitions.TestCase):
    """The same, for longer."""

    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


TestManyTransitions = pytest.mark.slow(TestManyTransitions)


@pytest.mark.parametrize("kind", Kind)
def test_a_trial_that_ends_so_again_and_again(kind):
    machine = Transitions()
    try:
        for _ in range(3):
            waiting = [job_id for job_id in machine.jobs(Stage.SUBMITTED) if job_id.startswith("one-0000-")]
            if not waiting:
                break
            machine.happen(Started(waiting[0], "lane"))
            machine.happen(Progress(waiting[0], 1, {"train/loss": 5.0}))
            machine.finish(waiting[0], kind)
            machine.the_log_has_only_what_may_follow()
            machine.a_trial_has_one_end_and_as_many_attempts_as_it_may()
            machine.the_sampler_heard_what_the_table_says()
            machine.only_a_score_within_the_cap_is_best()
        expected = {Kind.CRASHED: 1 + CRASHES_A_TRIAL, Kind.PREEMPTED: 4}.get(kind, 1)
        assert len(machine.study.record.trials[0].attempts) == expected
    finally:
        machine.teardown()


@pytest.mark.parametrize("stage", [*Stage, None])
@pytest.mark.parametrize(
    "event", [Started("j", "l"), Entered("j", "train"), Progress("j", 1, {}), Finished("j", outcome_of(Kind.SCORED, 1))]
)
def test_the_table_itself(stage, event):
    legal = {
        (Stage.SUBMITTED, Started): Stage.STARTED,
        (Stage.SUBMITTED, Finished): Stage.ENDED,
        (Stage.STARTED, Entered): Stage.STARTED,
        (Stage.STARTED, Progress): Stage.STARTED,
        (Stage.STARTED, Finished): Stage.ENDED,
    }
    expected = legal.get((stage, type(event)))
    if expected is not None:
        assert next_stage(stage, event) is expected
        return
    with pytest.raises(IllegalTransition, match="the executor reports"):
        next_stage(stage, event)
