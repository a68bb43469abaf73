"""A whole study's process for test_process.py: what it prints is one line of JSON, and it leaves nothing behind.

Usage: study_driver.py FOLDER
"""

import json
import pathlib
import sys
import time

from golfray.cluster.executor import RayExecutor
from golfray.cluster.preflight import EnvironmentProblem
from golfray.sweep.executor import Finished, Job, Started


def main(folder):
    found = {}
    try:
        RayExecutor(folder / "too-wide", 3, device="cpu", cpus=2)
    except EnvironmentProblem as problem:
        found["problem"] = str(problem)
    with RayExecutor(folder / "study", 1, device="cpu", cpus=2, run="lane_standin:run") as executor:
        found["slots"], found["describe"] = executor.slots, executor.describe()
        for number in range(3):
            executor.submit(Job(f"job-{number}", {"data": {"folder": "until_stopped"}}, f"attempts/{number}"))
        events, give_up = [], time.monotonic() + 150
        # Jobs 0 and 1 go on until stopped, so both lanes are seen at work at once; job 2 waits for one of them.
        while sum(isinstance(event, Started) for event in events) < 2 and time.monotonic() < give_up:
            events += executor.events(1.0)
        found["together"] = [event.lane for event in events if isinstance(event, Started)]
        executor.cancel("job-0", "enough")
        while sum(isinstance(event, Started) for event in events) < 3 and time.monotonic() < give_up:
            events += executor.events(1.0)
    events += executor.events(0.0)
    found["started"] = [event.job_id for event in events if isinstance(event, Started)]
    found["ended"] = sorted((event.job_id, event.outcome.reason) for event in events if isinstance(event, Finished))
    print(json.dumps(found))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
