"""A driver's process for test_driver_ends.py: says when it is where the test wants it, and how it ended.

Usage: fault_driver.py FOLDER running|up|starting [START_LIMIT_S]

"running": a job trains; "up": the executor is up, its ranks are not; "starting": Ray is about to start, and must be up
within START_LIMIT_S. The first line on standard output names Ray's temporary folder and the broker's process.
"""

import json
import pathlib
import sys
import time

from golfray.cluster import environment
from golfray.cluster.executor import RayExecutor
from golfray.cluster.preflight import EnvironmentProblem
from golfray.sweep.executor import Job, Progress


def drive(folder, wanted):
    with RayExecutor(folder, 2, device="cpu", cpus=2, run="lane_standin:run") as executor:
        executor.submit(Job("job-0", {"data": {"folder": "until_stopped"}}, "attempts/0"))
        events = []
        while wanted == "running" and not any(isinstance(event, Progress) for event in events):
            events += executor.events(1.0)
        (line,) = [line for line in executor.describe() if "temporary files" in line]
        print(line.split()[4].rstrip(","), flush=True)
        while True:
            executor.events(1.0)


def main(folder, wanted, start_limit_s="0"):
    try:
        if wanted == "starting":
            print("starting", flush=True)
            environment.start_session(folder, cpus=2, start_limit_s=float(start_limit_s))
        else:
            drive(folder, wanted)
    except EnvironmentProblem as problem:
        print(json.dumps({"problem": str(problem)}), flush=True)
        return problem.exit_code
    except KeyboardInterrupt:
        print(json.dumps({"interrupted": True}), flush=True)
        return 130
    time.sleep(600)
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
