"""A machine of the test's own, as far as `ray up` and an ssh daemon can tell; for test_ray_up.py.

Usage, as root: own_machine.py REPOSITORY FOLDER COMMANDS. Becomes a process in new PID, mount and network namespaces,
in which FOLDER/home is root's home, /tmp is empty but for REPOSITORY, FOLDER and this Python, and the one network has
the loopback addresses and ADDRESS. Runs an sshd there, then the shell commands of the JSON list COMMANDS, one after the
other, in FOLDER/client/golfray, as somebody whose home is FOLDER/client; stops at the first that fails. What each
said and how it ended goes to FOLDER/said.json. Nothing that any of them started outlives this process.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time

ADDRESS = "192.0.2.10"
TIMEOUT_S = 900

_MS_BIND, _MS_REC = 0x1000, 0x4000


def mount(source, target):
    """Bind ``source`` to ``target``; the command of that name would follow the links of an open folder."""
    if ctypes.CDLL(None, use_errno=True).mount(
        str(source).encode(), str(target).encode(), None, _MS_BIND | _MS_REC, None
    ):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(target))


def empty_tmp(kept):
    """Mount an empty /tmp over the old one, of which only the folders ``kept`` can be seen."""
    below = [path for path in map(pathlib.Path.resolve, kept) if path.is_relative_to("/tmp")]
    opened = [(path, os.open(path, os.O_PATH)) for path in below]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp"], check=True)
    for path, descriptor in opened:
        path.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", path)
        os.close(descriptor)


def own_home(folder):
    """Make FOLDER/home the home of root, for whoever asks."""
    lines = pathlib.Path("/etc/passwd").read_text().splitlines()
    ours = [line for line in lines if not line.startswith("root:")]
    (folder / "passwd").write_text("\n".join([f"root:x:0:0:root:{folder / 'home'}:/bin/bash", *ours, ""]))
    mount(folder / "passwd", "/etc/passwd")


def start_sshd(folder):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key"], check=True)
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/client/key.pub\nPidFile none\n"
        "PasswordAuthentication no\nUsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\n"
    )
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    pathlib.Path("/run/sshd").mkdir()
    subprocess.run(["/usr/sbin/sshd", "-f", folder / "sshd_config", "-E", folder / "sshd.log"], check=True)


def main(repository, folder, commands):
    empty_tmp([repository, folder, pathlib.Path(sys.prefix), pathlib.Path(sys.base_prefix)])
    own_home(folder)
    for arguments in (["link", "set", "lo", "up"], ["addr", "add", f"{ADDRESS}/32", "dev", "lo"]):
        subprocess.run(["ip", *arguments], check=True)
    start_sshd(folder)
    environment = {
        "HOME": str(folder / "client"),
        "PATH": os.pathsep.join([str(folder / "client" / "bin"), os.environ["PATH"]]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "LANG": "C.UTF-8",
    }
    said = []
    for command in commands:
        begun = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder / "client" / "golfray",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
        said.append({"command": command, "code": done.returncode, "out": done.stdout, "s": time.monotonic() - begun})
        (folder / "said.json").write_text(json.dumps(said, indent=1))
        if done.returncode:
            break


def be_init(child):
    """Reap what ends, as the first process of a machine does, until ``child`` has; returns its exit code."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    if child := os.fork():
        sys.exit(be_init(child))
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]))
