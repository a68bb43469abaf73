"""A study on somebody else's cluster, for test_foreign_cluster.py: one lane of two ranks, one on each node.

Usage: foreign_driver.py FOLDER ADDRESS. Says "training" when the first job trains, then how every job ended; the second
one is submitted when the first has ended, and then the executor is closed. Its heart beats twice a second.
"""

import json
import pathlib
import sys

from golfray.cluster import heartbeat
from golfray.cluster.executor import RayExecutor
from golfray.cluster.node_checks import check_nodes
from golfray.cluster.node_data import needed_files
from golfray.cluster.preflight import EnvironmentProblem, plan_lanes
from golfray.core.settings import DataSettings
from golfray.sweep.executor import Finished, Job, Progress


def main(folder, address):
    heartbeat.BEAT_SECONDS = 0.5
    data = DataSettings(str(folder / "shards"), str(folder / "tokenizer.model"))
    with RayExecutor(folder, 2, device="cpu", address=address, data=data, run="lane_standin:run") as executor:
        try:
            check_nodes(
                plan_lanes({"CPU": 2.0}, 2, "cpu"),
                needed_files(data, summed=True),
                pathlib.Path("/proc/no/study"),
                local=False,
            )
        except EnvironmentProblem as problem:
            print(json.dumps({"problem": str(problem)}), flush=True)
        executor.submit(Job("first", {"data": {"folder": "until_stopped"}}, "attempts/first"))
        training, ended = False, []
        while len(ended) < 2:
            for event in executor.events(1.0):
                if isinstance(event, Progress) and not training:
                    training = True
                    print("training", flush=True)
                elif isinstance(event, Finished):
                    ended.append(event.job_id)
                    print(json.dumps([event.job_id, event.outcome.kind, event.outcome.reason]), flush=True)
                    if event.job_id == "first":
                        executor.submit(Job("second", {"data": {"folder": "steps"}}, "attempts/second"))
    print("closed", flush=True)


if __name__ == "__main__":
    try:
        main(pathlib.Path(sys.argv[1]), sys.argv[2])
    except EnvironmentProblem as problem:
        print(json.dumps({"problem": str(problem)}), flush=True)
        sys.exit(problem.exit_code)
