import dataclasses
import json
import socket
from pathlib import Path

import pytest

from golfray.core.settings import AveragingSettings, EvaluationSettings, RunSettings, StopSettings
from golfray.sweep.costs import CLOSE_S, COMPILE_FIRST_S, LANES_S, OPEN_S, Work
from golfray.sweep.events import LOG_NAME, encode_record
from golfray.sweep.past_studies import recorded_costs

SETTINGS = dataclasses.replace(RunSettings(), stop=StopSettings(None, 15.0))
WORK = Work(
    settings=SETTINGS,
    workers=2,
    device="cpu",
    compiled=True,
    shapes_vary=False,
    parameters=350_000,
    val_tokens=80_000,
)
PHASES = {"data": 0.1, "compile": 2.0, "train": 15.5, "validate": 3.0, "export": 0.2, "score": 4.0}


class Story:
    """Writes the log of a study that never was, with the times that a test wants."""

    def __init__(self, studies: Path, name: str, time: float = 1000.0, **header) -> None:
        self.time = time
        self.folder = studies / name
        self.folder.mkdir(parents=True)
        self._records: list[dict] = []
        self._trials = 0
        known = {"workers": 2, "slots": 1, "host": socket.gethostname(), "preset": "p", "scale": "laptop"}
        space = {"fixed": {}, "implied": {}, "knobs": {}}
        known |= {"budget": {"trials": 8, "minutes": None}, "space": space, "data": {}, "describe": []}
        self.add("study_started", study=name, generation=1, cap_bytes=10**6, **{**known, **header})

    def add(self, event: str, **fields) -> None:
        self._records.append({"seq": len(self._records), "time": self.time, "event": event, **fields})
        (self.folder / LOG_NAME).write_text("".join(encode_record(record) + "\n" for record in self._records))

    def trial(self, *, wait=0.5, phases=PHASES, kind="scored", settings=SETTINGS, lane="lane-0", steps=100, **fidelity):
        number, self._trials = self._trials, self._trials + 1
        asked = {"role": "sampler", "params": {}, "told": True, "told_reason": None, "seed": 1, "replicate_of": None}
        values = settings if isinstance(settings, dict) else dataclasses.asdict(settings)
        self.add("trial_asked", trial=number, settings=values, refused=None, **asked)
        where = {"trial": number, "attempt": 1, "job_id": f"job-{number}"}
        self.add("attempt_submitted", **where, folder=f"trials/{number}")
        self.time += wait
        self.add("attempt_started", **where, lane=lane)
        self.time += sum(phases.values())
        outcome = {
            "kind": kind,
            "reason": "",
            "metrics": {"bpb/roundtrip": 2.0, "bytes/total": 1.0} | ({} if steps is None else {"train/steps": steps}),
            "phases": phases,
            "fidelity": {"device": "cpu", "compiled": True, **fidelity},
        }
        self.add("attempt_ended", **where, outcome=outcome, final=True)


@pytest.fixture
def studies(tmp_path) -> Path:
    return tmp_path / "studies"


def test_medians_of_what_was_recorded(studies) -> None:
    story = Story(studies, "muon")
    story.trial(wait=12.0, phases={**PHASES, "compile": 9.0}, steps=90)
    for validate, wait, steps in ((2.0, 0.4, 100), (3.0, 0.6, 110), (9.0, 0.5, 300)):
        story.trial(wait=wait, phases={**PHASES, "validate": validate}, steps=steps)
    found = recorded_costs(studies, WORK, 1)
    assert found.lanes_s == 12.0
    # The first trial of a lane is left out of what compiling takes, and of nothing else.
    assert found.phases == {**PHASES, "validate": 3.0}
    assert list(found.phases) == list(PHASES)
    assert found.compile_first_s == 9.0
    assert found.handover_s == pytest.approx(0.5)
    assert found.steps == 105
    assert (found.open_s, found.close_s) == (OPEN_S, CLOSE_S)
    assert found.sources[0].startswith(f"as in {studies / 'muon'}, a study of the same kind: medians of 4 trials")


def test_what_was_compiled_for_the_first_time_then_is_known_now(studies) -> None:
    story = Story(studies, "muon")
    story.trial(phases={**PHASES, "compile": 45.0})
    story.trial()
    assert recorded_costs(studies, WORK, 1).compile_first_s == COMPILE_FIRST_S


def test_slow_lanes_mean_a_slow_start_and_end(studies) -> None:
    Story(studies, "muon").trial(wait=3 * LANES_S)
    found = recorded_costs(studies, WORK, 1)
    assert (found.open_s, found.lanes_s, found.close_s) == pytest.approx((3 * OPEN_S, 3 * LANES_S, 3 * CLOSE_S))


def test_hand_overs_are_counted_lane_by_lane(studies) -> None:
    story = Story(studies, "muon", slots=2)
    story.trial(lane="lane-0")
    story.trial(lane="lane-1", wait=5.0)
    story.trial(lane="lane-0", wait=7.0)
    # What lane-1 did meanwhile is no hand-over of lane-0's, but the time that it took is.
    assert recorded_costs(studies, WORK, 2).handover_s == pytest.approx(5.0 + sum(PHASES.values()) + 7.0)


def test_the_latest_study_counts(studies) -> None:
    Story(studies, "aaa", time=5000.0).trial(steps=500)
    Story(studies, "zzz", time=1000.0).trial(steps=100)
    assert recorded_costs(studies, WORK, 1).steps == 500


OTHER_MODEL = dataclasses.replace(SETTINGS, model=dataclasses.replace(SETTINGS.model, num_layers=2))
OTHER_STOP = dataclasses.replace(SETTINGS, stop=StopSettings(None, 5.0))
OTHER_DATA = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, folder="elsewhere"))
OTHER_WARM_UP = dataclasses.replace(SETTINGS, schedule=dataclasses.replace(SETTINGS.schedule, warmup_steps=1))


@pytest.mark.parametrize(
    ("header", "trial"),
    [
        ({"workers": 1}, {}),
        ({"slots": 2}, {}),
        ({"host": "another"}, {}),
        ({}, {"settings": OTHER_MODEL}),
        ({}, {"settings": OTHER_STOP}),
        ({}, {"settings": OTHER_DATA}),
        ({}, {"settings": OTHER_WARM_UP}),
        ({}, {"compiled": False}),
        ({}, {"device": "H100"}),
        ({}, {"kind": "crashed"}),
    ],
)
def test_a_study_of_another_kind_does_not(studies, header, trial) -> None:
    Story(studies, "other", **header).trial(**trial)
    assert recorded_costs(studies, WORK, 1) is None


def without(*path: str) -> dict:
    """The settings of a version that does not know what stands at ``path`` yet."""
    values = dataclasses.asdict(SETTINGS)
    section = values
    for name in path[:-1]:
        section = section[name]
    del section[path[-1]]
    return values


@pytest.mark.parametrize(
    "trial",
    [
        *[{"settings": without(name)} for name in ("model", "batch", "stop", "data", "schedule", "muon", "runtime")],
        {"settings": without("model", "qk_gain_init")},
        {"settings": without("batch", "slices")},
        {"settings": without("schedule", "warmup_steps")},
        {"settings": without("muon", "ns_dtype")},
        {"settings": without("runtime", "log_points")},
        # A phase had another name then, and nobody knows what that is of ours.
        {"phases": {("compile_warmup" if phase == "compile" else phase): spent for phase, spent in PHASES.items()}},
        {"phases": {}},
        {"steps": None},
    ],
    ids=str,
)
def test_a_study_of_another_version_is_of_another_kind_and_no_error(studies, trial) -> None:
    Story(studies, "old", time=5000.0).trial(**trial)
    assert recorded_costs(studies, WORK, 1) is None
    Story(studies, "muon").trial()
    assert recorded_costs(studies, WORK, 1).sources[0].startswith(f"as in {studies / 'muon'}, ")


def test_what_cannot_change_its_length_may_differ(studies) -> None:
    optimizer = dataclasses.replace(SETTINGS.optimizer, matrix_lr=0.5)
    export = dataclasses.replace(SETTINGS.export, bits_mlp=4)
    runtime = dataclasses.replace(SETTINGS.runtime, seed=9)
    Story(studies, "muon").trial(
        settings=dataclasses.replace(SETTINGS, optimizer=optimizer, export=export, runtime=runtime)
    )
    assert recorded_costs(studies, WORK, 1) is not None


def test_no_studies_and_damaged_ones_are_no_help(studies) -> None:
    assert recorded_costs(studies, WORK, 1) is None
    Story(studies, "good").trial()
    bad = Story(studies, "bad")
    bad.trial()
    log = bad.folder / LOG_NAME
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], "not json\n", *lines[1:]]))
    (studies / "empty").mkdir()
    (studies / "empty" / LOG_NAME).touch()
    (studies / "unreadable").mkdir()
    # A regular file of which no byte can be read.
    (studies / "unreadable" / LOG_NAME).symlink_to("/proc/self/mem")
    assert "good" in recorded_costs(studies, WORK, 1).sources[0]


def test_averages_and_windows_make_another_kind_and_an_older_log_has_neither(studies) -> None:
    old = {name: part for name, part in dataclasses.asdict(SETTINGS).items() if name not in ("averaging", "evaluation")}
    Story(studies, "old").trial(settings=SETTINGS)
    log = studies / "old" / LOG_NAME
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["event"] == "trial_asked":
            line["settings"] = old
    log.write_text("".join(encode_record(line) + "\n" for line in lines))
    assert recorded_costs(studies, WORK, 1) is not None
    windows = dataclasses.replace(SETTINGS, evaluation=EvaluationSettings(sliding_stride=8))
    assert recorded_costs(studies, dataclasses.replace(WORK, settings=windows), 1) is None
    averaged = dataclasses.replace(SETTINGS, averaging=AveragingSettings(method="ema"))
    assert recorded_costs(studies, dataclasses.replace(WORK, settings=averaged), 1) is None
