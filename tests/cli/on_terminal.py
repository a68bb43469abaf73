"""A command on a terminal of its own, which can be closed under it as an ssh session is."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import threading


class OnTerminal:
    """The command, leading a session whose controlling terminal all three of its streams are.

    ``disowned``: it ignores the hangup, as what a shell has disowned never gets it.
    """

    def __init__(self, command, disowned=False, **options):
        self._ours, theirs = pty.openpty()
        self._closing = os.pipe()

        def take_terminal():
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN if disowned else signal.SIG_DFL)

        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self.process = subprocess.Popen(command, start_new_session=True, preexec_fn=take_terminal, **streams, **options)
        os.close(theirs)
        self.said = b""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while select.select([self._ours, self._closing[0]], [], [])[0] == [self._ours]:
            try:
                more = os.read(self._ours, 65_536)
            except OSError:
                break  # nobody has the terminal open any more
            with self._news:
                self.said += more
                self._news.notify_all()

    def read_until(self, part, timeout=120):
        """Wait until it has said ``part``."""
        with self._news:
            assert self._news.wait_for(lambda: part.encode() in self.said, timeout), self.said.decode()

    def hang_up(self):
        """Close the terminal."""
        if self._ours is not None:
            os.write(self._closing[1], b".")
            self._reader.join()
            for number in (self._ours, *self._closing):
                os.close(number)
            self._ours = None

    def end(self, timeout=300):
        """Its exit code; it is killed where it does not end."""
        try:
            return self.process.wait(timeout)
        finally:
            self.hang_up()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
