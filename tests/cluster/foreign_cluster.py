"""Somebody else's Ray cluster of two nodes with one CPU each, for test_foreign_cluster.py.

Usage: foreign_cluster.py TEMP_FOLDER. The nodes find their timers in its "timer-head" and "timer-second". Says the
cluster's address, then answers every line on standard input with one line: "held" (placement groups and actors that are
not gone), "lose" and "gain" (a node dies, a new one comes). Ends with its standard input.
"""

import json
import os
import pathlib
import secrets
import socket
import sys

import ray
from ray._common.utils import reset_ray_address
from ray.cluster_utils import Cluster
from ray.util import placement_group_table
from ray.util.state import list_actors

from golfray.cluster.node_timer import FOLDER_VARIABLE

# Ray keeps one for all who use a cluster, and never ends it.
SHARED = "_AutoscalingCoordinatorActor"


def main(folder):
    # What Ray says on standard output goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer):
        print(answer, file=answers, flush=True)

    (folder / "token").write_text(secrets.token_hex(32))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    timers = {name: {"env_vars": {FOLDER_VARIABLE: str(folder / f"timer-{name}")}} for name in ("head", "second")}
    head = {
        **timers["head"],
        "num_cpus": 1,
        "include_dashboard": True,
        "dashboard_port": port,
        "temp_dir": str(folder / "r"),
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    reset_ray_address()  # what Ray left in /tmp for whoever connects to the "auto" cluster
    second = cluster.add_node(num_cpus=1, **timers["second"])
    ray.init(address=cluster.address, log_to_driver=False)
    say(cluster.address)
    for line in sys.stdin:
        match line.strip():
            case "held":
                groups = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
                actors = [actor.class_name for actor in list_actors(cluster.address) if actor.state != "DEAD"]
                actors = [name for name in actors if name != SHARED]
                say(json.dumps({"groups": len(groups), "actors": actors}))
            case "lose":
                cluster.remove_node(second, allow_graceful=False)
                say("lost")
            case "gain":
                second = cluster.add_node(num_cpus=1, **timers["second"])
                say("gained")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
