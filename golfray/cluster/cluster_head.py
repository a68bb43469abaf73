"""The head of a cluster that `ray up` made, as ssh reaches it: ``python -m ... CLUSTER.yaml`` prints it.

Ray alone knows where the head of a cluster is, which key it made for it and as whom it logs in. It is asked in a
process of its own, since it prints a lot on the way.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

import golfray
from golfray.cluster.far_folder import CannotPull, FarFolder
from golfray.config.errors import ConfigError
from golfray.config.small_file import read_small_file

_LIMIT_S = 180.0

# As Ray itself calls ssh: the host is one that was made a while ago, so nobody can know its key.
_OPTIONS = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": os.devnull, "LogLevel": "ERROR"}


def head_of(cluster_file: Path, path: str) -> FarFolder:
    """The folder ``path`` on the head of a cluster.

    Raises ``ConfigError`` where the file is none of Ray's cluster launcher, :class:`CannotPull` where Ray knows of no
    running head.
    """
    try:
        content = YAML(typ="safe", pure=True).load(read_small_file(cluster_file))
    except (YAMLError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict) or not {"cluster_name", "provider", "auth"} <= content.keys():
        raise ConfigError(
            "is no cluster file (cluster_name, provider and auth are its entries); name one, or [USER@]HOST:PATH",
            file=str(cluster_file),
        )
    docker = content.get("docker")
    if isinstance(docker, dict) and docker.get("container_name"):
        raise ConfigError(
            "runs golfray in a container, into which ssh does not lead; name the folder on its host, [USER@]HOST:PATH",
            file=str(cluster_file),
            path="docker.container_name",
        )
    found = _ask(cluster_file)
    options = dict(_OPTIONS)
    if found["key"]:
        options["IdentitiesOnly"] = "yes"
    if found["proxy"]:
        options["ProxyCommand"] = found["proxy"]
    words = ["ssh", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    if found["key"]:
        words += ["-i", os.path.expanduser(found["key"])]
    host = f"[{found['address']}]" if ":" in found["address"] else found["address"]
    return FarFolder(f"{found['user']}@{host}", path, shlex.join(words))


def _ask(cluster_file: Path) -> dict[str, Any]:
    paths = [str(Path(golfray.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "golfray.cluster.cluster_head", str(cluster_file)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise CannotPull(f"{cluster_file}: its provider has not said for {_LIMIT_S:g} s where the head is") from None
    if done.returncode:
        words = " ".join((done.stderr.strip().splitlines() or ["Ray said nothing"])[-1].split())
        raise CannotPull(
            f"{cluster_file}: Ray finds no head of this cluster: {words}; is it up, and was `ray up` called on this "
            "machine? Otherwise name the folder itself, [USER@]HOST:PATH"
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(cluster_file: str) -> None:
    """Print it as the last line: "address", "user", "key" and "proxy" (a command), null where there is none."""
    import yaml  # type: ignore[import-untyped]
    from ray.autoscaler.sdk import bootstrap_config, get_head_node_ip

    # As Ray reads it, so that Ray finds what it noted of the cluster when it made it.
    auth = bootstrap_config(yaml.safe_load(Path(cluster_file).read_text(encoding="utf-8")))["auth"]
    address = get_head_node_ip(cluster_file)
    found = {"address": address, "user": auth["ssh_user"]}
    found |= {"key": auth.get("ssh_private_key"), "proxy": auth.get("ssh_proxy_command")}
    print()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
