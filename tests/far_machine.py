"""Another machine, as far as ssh can tell: an sshd on a loopback port, with keys and a home folder of its own."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

from tests.conftest import cannot_run
from tests.ports import free_port

PROGRAMS = ("ssh", "ssh-keygen", "rsync", "/usr/sbin/sshd")
_WAIT_S = 60.0

# Whoever logs in gets this in place of a shell: the home folder is the test's, and what is asked for may be slow.
_COMMAND = """#!/bin/sh
cd {home} && export HOME={home} || exit 1
echo $$ > {folder}/last
if [ -f {folder}/slow ]; then
    set -- "$(echo "$SSH_ORIGINAL_COMMAND" | sed "s/^rsync --server/& --bwlimit=$(cat {folder}/slow)/")"
else
    set -- "$SSH_ORIGINAL_COMMAND"
fi
eval "exec $1"
"""


class FarMachine:
    """``home`` is the home folder there, ``shell`` the command by which rsync gets there, ``name`` that of the host."""

    name = "pod"

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self.home = folder, folder / "home"
        self.home.mkdir()
        for key in ("host_key", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        command = folder / "command"
        command.write_text(_COMMAND.format(home=self.home, folder=folder))
        command.chmod(0o755)
        self.port = free_port()
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/key.pub\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n"
            f"PermitRootLogin prohibit-password\nForceCommand {command}\n"
        )
        (folder / "client").write_text(
            f"Host {self.name}\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {folder}/key\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking accept-new\n"
            # What several commands of a test would each take a tenth of a second for is done once.
            f"  ControlMaster auto\n  ControlPath {folder}/%r\n  ControlPersist yes\n"
        )
        self.shell = f"ssh -F {folder}/client"

    def slow_down(self, kilobytes_a_second: int | None) -> None:
        """What is sent from now on is sent no faster."""
        slow = self._folder / "slow"
        if kilobytes_a_second is None:
            slow.unlink()
        else:
            slow.write_text(str(kilobytes_a_second))

    def cut(self) -> None:
        """End what was asked for last in the middle of it."""
        os.kill(int((self._folder / "last").read_text()), signal.SIGKILL)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Answer for as long as this lasts."""
        sshd = f"exec /usr/sbin/sshd -D -e -f {self._folder}/sshd_config"
        command = ["sh", "-c", sshd]
        if os.geteuid() == 0:
            # Of root it wants a folder below /run, which becomes one of its own.
            own = f"mount -t tmpfs tmpfs /run && mkdir /run/sshd && {sshd}"
            command = ["unshare", "--mount", "sh", "-c", own]
        with (self._folder / "sshd.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._wait(process)
            yield
        finally:
            # The one connection outlives the commands that it was made for, and the daemon; there may be none.
            subprocess.run([*self.shell.split(), "-O", "exit", self.name], capture_output=True)
            process.terminate()
            process.wait()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return
            if process.poll() is not None:
                cannot_run(f"no sshd runs here: {(self._folder / 'sshd.log').read_text().strip()}")
            assert time.monotonic() < deadline, "sshd does not answer"
            time.sleep(0.05)


@contextlib.contextmanager
def far_machine(folder: pathlib.Path) -> Iterator[FarMachine]:
    """One that runs, below ``folder``; skips the test where there is no ssh or rsync."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        cannot_run(f"not installed here: {', '.join(lacking)}")
    machine = FarMachine(folder)
    with machine.running():
        yield machine
