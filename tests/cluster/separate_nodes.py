"""Ray nodes that nothing but a network connects, each a machine of its own; for test_separate_nodes.py.

Usage, as root: separate_nodes.py REPOSITORY FOLDER. Becomes a process in new PID, mount and network namespaces, with
the head of a Ray cluster, which has no CPU for ranks, and a switch to which further nodes are wired. They all see
REPOSITORY, FOLDER and this Python, as on shared storage; network, processes, /tmp and /dev/shm each has for itself.
Says true when the head is up, then answers every line on standard input, a list of words, with one line of JSON:

- ["add", NAME, HOST]: a node of one CPU comes, at 192.0.2.HOST; answers when Ray has it there
- ["cut", NAME], ["mend", NAME]: its cable is pulled out of the switch, and put back
- ["off", NAME]: it loses its power, and with it processes and connections at the same moment
- ["tune", ARGUMENT, ...]: `golfray tune` begins on the head, on this cluster and in FOLDER; it speaks to FOLDER/said
- ["interrupt"], ["wait"]: Ctrl-C for it; its exit code

Nothing outlives this process, which ends with its standard input.
"""

import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time

from own_machine import be_init, empty_tmp

HEAD = "192.0.2.1"
ADDRESS = f"{HEAD}:6379"
PROGRAM = "from golfray.cli.main import main; main()"

_ISOLATED = ["unshare", "--pid", "--mount", "--uts", "--ipc", "--fork", "--mount-proc", "--kill-child"]


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def own_folders(repository, folder):
    empty_tmp([repository, folder, pathlib.Path(sys.prefix), pathlib.Path(sys.base_prefix)])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"], check=True)


def start_ray(inside, name, host, *options):
    """Returns when Ray runs on this node, in the background; ``inside``: what a command needs to run there."""
    ray = [*inside, sys.executable, "-m", "ray.scripts.scripts"]
    own = [f"--node-ip-address=192.0.2.{host}", f"--temp-dir=/tmp/ray-{name}", "--disable-usage-stats"]
    # Ray gives itself 30 s, which a machine that is short of CPU may pass.
    for _ in range(3):
        if subprocess.run([*ray, "start", *own, *options]).returncode == 0:
            return
        subprocess.run([*ray, "stop", "--force"], check=True)
    raise RuntimeError(f"{name} did not come up")


def be_node(repository, folder, name, host):
    """In the namespaces of a node: its first process, until it is killed."""
    own_folders(repository, folder)
    subprocess.run(["hostname", name], check=True)
    start_ray([], name, host, f"--address={ADDRESS}", "--num-cpus=1")
    (folder / f"{name}.up").touch()
    while True:
        os.wait()


def wire(name, host):
    """A cable is two devices, one in the node's namespace and one in the switch."""
    ip("netns", "add", name)
    ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "cable", "netns", name)
    ip("link", "set", f"to-{name}", "master", "switch", "up")
    for device in ("lo", "cable"):
        ip("-n", name, "link", "set", device, "up")
    ip("-n", name, "addr", "add", f"192.0.2.{host}/24", "dev", "cable")
    # It leads nowhere; Ray takes for a machine's own address the one from which others would be reached.
    ip("-n", name, "route", "add", "default", "dev", "cable")


class Machines:
    """The cluster, and the command that runs on its head."""

    def __init__(self, repository, folder):
        self.repository, self.folder = repository, folder
        self.nodes, self.command = {}, None
        ip("link", "add", "switch", "type", "bridge")
        ip("link", "set", "switch", "up")
        wire("head", "1")
        start_ray(["ip", "netns", "exec", "head"], "head", "1", "--head", "--num-cpus=0")

    def add(self, name, host):
        wire(name, host)
        itself = [sys.executable, __file__, self.repository, self.folder, name, host]
        node = self.nodes[name] = subprocess.Popen(["ip", "netns", "exec", name, *_ISOLATED, *itself])
        while not (self.folder / f"{name}.up").exists():
            if node.poll() is not None:
                raise RuntimeError(f"{name} did not come up")
            time.sleep(0.1)
        return True

    def cut(self, name):
        """What is sent from now on is lost, and neither end is told."""
        ip("link", "set", f"to-{name}", "nomaster")
        return True

    def mend(self, name):
        ip("link", "set", f"to-{name}", "master", "switch")
        return True

    def off(self, name):
        self.cut(name)
        self.nodes[name].kill()
        return self.nodes[name].wait()

    def tune(self, *arguments):
        with (self.folder / "said").open("w") as said:
            self.command = subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    "head",
                    sys.executable,
                    "-c",
                    PROGRAM,
                    "tune",
                    *arguments,
                    "--address",
                    ADDRESS,
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        return True

    def interrupt(self):
        self.command.send_signal(signal.SIGINT)
        return True

    def wait(self):
        return self.command.wait()


def main(repository, folder):
    # What Ray says on standard output goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    own_folders(repository, folder)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    (folder / "home").mkdir()
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    os.environ.update(
        HOME=str(folder / "home"),
        GOLFRAY_HOME=str(folder / "home" / "golfray"),
        GOLFRAY_NODE_TIMER=str(folder / "home" / "timer"),
        PYTHONPATH=str(repository),
        RAY_AUTH_MODE="token",
        # Statistics that nobody reads.
        RAY_enable_metrics_collection="0",
        RAY_event_stats="0",
        RAY_AUTH_TOKEN_PATH=str(token),
    )
    machines = Machines(repository, folder)
    print("true", file=answers, flush=True)
    for line in sys.stdin:
        verb, *words = json.loads(line)
        print(json.dumps(getattr(machines, verb)(*words)), file=answers, flush=True)


if __name__ == "__main__":
    here = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if len(sys.argv) > 3:
        be_node(*here, *sys.argv[3:])
    if child := os.fork():
        sys.exit(be_init(child))
    main(*here)
