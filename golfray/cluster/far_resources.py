"""What somebody else's Ray cluster offers, asked before a study has a folder: ``python -m ... ADDRESS``.

Asked from a process of its own: Ray keeps what it was told first, and the study's session tells it more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import golfray
from golfray.cluster.environment import START_LIMIT_SECONDS, VARIABLES
from golfray.cluster.preflight import EnvironmentProblem
from golfray.cluster.servers import why_closed


def far_resources(address: str) -> dict[str, float]:
    """All that the nodes of the cluster at ``address`` have, by Ray's names ("CPU", "GPU"), in use or not.

    The token is taken from the environment. Raises :class:`EnvironmentProblem` where the cluster does not answer.
    """
    if address != "auto" and (closed := why_closed(address)) is not None:
        raise EnvironmentProblem(f"no Ray cluster answers at {address}: {closed}")
    paths = [str(Path(golfray.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **VARIABLES, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "golfray.cluster.far_resources", address],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(
            f"no Ray cluster has answered at {address} for {START_LIMIT_SECONDS:g} s; is it up, and is the token in "
            "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH its own?"
        ) from None
    if done.returncode:
        words = " ".join((done.stderr.strip().splitlines() or ["it said nothing"])[-1].split())
        raise EnvironmentProblem(f"no Ray cluster answers at {address}: {words}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(address: str) -> None:
    """Print them, as the last line."""
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="error")
    print(json.dumps(ray.cluster_resources()))


if __name__ == "__main__":
    main(sys.argv[1])
