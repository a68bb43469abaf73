"""Every record that a study writes is as docs/json.md has it, whoever writes it and however the study ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.sim.executor import SimulatedExecutor
from golfray.sweep.sim.simulation import Simulation
from tests.cli.documented import read_tables
from tests.sweep.sim.conftest import SPACE, START

# A cap under which some points are refused before they run.
TIGHT = SPACE.replace("cap_bytes: 320000", "cap_bytes: 270000") + "sampler: random\n"


def mistakes(folder: Path) -> Iterator[str]:
    tables = read_tables()
    for event in read_events(folder / LOG_NAME):
        plain: dict[str, Any] = json.loads(json.dumps(event))
        yield from tables.mistakes({"schema": "golfray/1", "kind": "event", **plain})


def test_refused_lost_torn_and_failed(simulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, folder = Simulation(scale="laptop", lanes=2), tmp_path / "study"
    record = simulated(machine, TIGHT, folder).run()
    assert any(trial.too_large for trial in record.trials)
    lines = (folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    started = max(index for index, line in enumerate(lines) if b'"attempt_started"' in line)
    (folder / LOG_NAME).write_bytes(b"".join(lines[: started + 1]) + b'{"seq":')
    events, calls = SimulatedExecutor.events, iter(range(100))

    def failing(executor: SimulatedExecutor, timeout: float) -> Any:
        if next(calls) == 3:
            raise RuntimeError("the executor is gone")
        return events(executor, timeout)

    monkeypatch.setattr(SimulatedExecutor, "events", failing)
    with pytest.raises(RuntimeError):
        simulated(machine, TIGHT, folder, start=START + 1e6).resume()
    ends = [event for event in read_events(folder / LOG_NAME) if event["event"] == "attempt_ended"]
    assert {event["outcome"]["error"] for event in ends} >= {"driver lost"}
    assert list(mistakes(folder)) == []
