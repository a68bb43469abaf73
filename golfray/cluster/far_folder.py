"""A folder on another machine, seen through rsync over ssh: what it lists, one file of it, all that is new in it.

rsync and ssh are the programs of this machine, so ssh's own configuration holds (names of hosts, ports, keys, agents),
and so does rsync's variable ``RSYNC_RSH``: a port and a key without a line of configuration.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from golfray.config.errors import ConfigError

# An open connection on which nothing comes for so long is one whose other end is gone.
_SILENT_S = 120

# rsync(1), EXIT VALUES.
_SOME_NOT_SENT = 23
_SOME_VANISHED = 24
_OF_SSH = (2, 12, 14, 30, 35, 127, 255)
_DISK_HERE = 11

# Where a transfer that was cut leaves what it had of a file, beside its place, and the next one goes on from there.
PARTIAL = ".partly"
# Files on their way, in the folder that is filled: what is found there as a transfer begins is a dead one's.
TEMPORARY = ".pulling"

# Times are compared as they are printed, and errors known by their words.
_ENVIRONMENT = {"TZ": "UTC", "LC_ALL": "C"}

_HOST = re.compile(r"((?:[^@:/\s]+@)?(?:\[[^\]]+\]|[^@:/\[\]\s]+)):(.*)", re.DOTALL)
_LISTED = re.compile(r"-\S+ +\S+ (\d+/\d+/\d+ \d+:\d+:\d+) (.*)")

Tell = Callable[[int], None]
"""Told of the size of each file as it comes, in bytes."""


class CannotPull(Exception):
    """The other machine cannot be reached, or a file cannot be written here."""

    exit_code = 4


class NotThere(ConfigError):
    """The other machine answers, and has no such file or folder."""


@dataclasses.dataclass(frozen=True)
class FarFolder:
    """``host`` is what ssh takes, with its user or without; ``path`` is relative to the home folder of that user.

    ``shell``: the command by which the machine is reached, for rsync; None: RSYNC_RSH or ``ssh``.
    """

    host: str
    path: str
    shell: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.path}"

    @property
    def name(self) -> str:
        """The last part of the path; "" where it has none."""
        name = posixpath.basename(posixpath.normpath(self.path)) if self.path else ""
        return "" if name in (".", "..", "~") else name

    def below(self, path: str) -> FarFolder:
        """A folder below this one, or elsewhere where ``path`` begins at the root or at the home folder."""
        joined = path if path.startswith("~") else posixpath.join(self.path, path)
        return dataclasses.replace(self, path=joined)

    def folders_with(self, name: str) -> list[str]:
        """Folders just below this one that have a file of that name, the most recently written one first.

        Raises as :meth:`read`.
        """
        only = [f"--include={pattern}" for pattern in ("/*/", f"/*/{name}")]
        lines: list[str] = []
        self._rsync("-rL", "--list-only", *only, "--exclude=*", self._address(""), line=lines.append)
        found = [(match[1], posixpath.dirname(match[2])) for match in map(_LISTED.match, lines) if match]
        return [folder for _, folder in sorted(found, reverse=True)]

    def read(self, name: str, basis: Path) -> bytes:
        """One file of it, as it is now. Of the file of that name in ``basis``, where there is one, only the rest comes.

        Raises :class:`NotThere` where there is none, and :class:`CannotPull`.
        """
        with tempfile.TemporaryDirectory(prefix="golfray-pull-") as folder:
            known = [f"--copy-dest={basis.absolute()}"] if (basis / name).is_file() else []
            self._rsync("-tLz", *known, self._address(name), f"{folder}/")
            try:
                return Path(folder, name).read_bytes()
            except FileNotFoundError:
                raise NotThere(f"{name} is no regular file", file=str(self)) from None

    def fetch(self, target: Path, excluded: Sequence[str], tell: Tell, *, largest: int | None = None) -> None:
        """Bring into ``target`` what it lacks of this folder; ``tell`` hears of each file that has come.

        ``excluded``: rsync's patterns of what stays there. ``largest``: bytes of what comes at most; None: no limit.
        Each file is there as it was or as it shall be. One that was changed here later than there is left as it is,
        and nothing is deleted. Raises :class:`CannotPull`; what has come by then stays, and is not sent again.
        """
        temporary = target.absolute() / TEMPORARY
        # Its files have names that no other transfer takes, and a folder that is gone already is as good.
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        options = ["-rtLu", f"--temp-dir={temporary}", f"--partial-dir={PARTIAL}", "--out-format=%l %n"]
        options += [f"--exclude={pattern}" for pattern in (f"/{TEMPORARY}/", *excluded)]
        if largest is not None:
            options.append(f"--max-size={largest}")

        def came(line: str) -> None:
            size, _, name = line.partition(" ")
            if not name.endswith("/"):
                tell(int(size))

        try:
            self._rsync(*options, self._address(""), f"{target}/", line=came)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _address(self, name: str) -> str:
        # With -s no shell there reads the path, and none therefore finds the home folder: it is where ssh begins.
        path = self.path.removeprefix("~/") if self.path != "~" else "."
        return f"{self.host}:{posixpath.join(path, name)}"

    def _rsync(self, *arguments: str, line: Callable[[str], None] = lambda line: None) -> None:
        """Run rsync; ``line`` hears of each that it prints. It has ended when this does, however that comes about."""
        options = ["-s", "--no-human-readable", f"--timeout={_SILENT_S}"]
        if self.shell is not None:
            options.append(f"--rsh={self.shell}")
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                ["rsync", *options, *arguments],
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                errors="replace",
            )
            assert process.stdout is not None
            try:
                for printed in process.stdout:
                    line(printed.rstrip("\n"))
                code = process.wait()
            finally:
                process.terminate()
                process.wait()
                process.stdout.close()
            complaints.seek(0)
            self._refuse(code, complaints.read().decode(errors="replace"))

    def _refuse(self, code: int, complaints: str) -> None:
        """Raise what an exit code of rsync and its words on standard error mean."""
        if code in (0, _SOME_VANISHED):
            return
        said = _reason(code, complaints)
        if code == _SOME_NOT_SENT and re.search(
            r"(link_stat|change_dir) .* failed: .*\(2\)$", complaints, re.MULTILINE
        ):
            raise NotThere("no such file or folder there", file=str(self))
        if "not found" in said and code in (12, 127):
            advice = "rsync must be installed there too"
        elif code == _DISK_HERE:
            advice = "what has come stays, and pulling again goes on from it"
        elif code in _OF_SSH:
            advice = f"does `{shlex.join([*_shell_words(self.shell), self.host])}` get there?"
        else:
            advice = "pulling again goes on from what has come"
        raise CannotPull(f"{self}: {said}; {advice}")


def far_folder(text: str) -> FarFolder | None:
    """What ``[USER@]HOST:PATH`` names; None where the text has no such form, which is a path of this machine then.

    Raises ``ConfigError`` where it is an address of rsync's own daemon, or what ssh would take for an option.
    """
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    host, path = match[1], match[2]
    if path.startswith((":", "//")):
        raise ConfigError("golfray pulls over ssh: write [USER@]HOST:PATH", file=text)
    if host.startswith("-"):
        raise ConfigError("a host whose name begins with a dash is none", file=text)
    return FarFolder(host, path)


def check_programs(shell: str | None = None) -> None:
    """Raise :class:`CannotPull` where rsync, or what ``shell`` (as in :class:`FarFolder`) calls, is not installed.

    Raises ``ConfigError`` where RSYNC_RSH is no command.
    """
    for program in ("rsync", _shell_words(shell)[0]):
        if shutil.which(program) is None:
            raise CannotPull(f"{program} is not installed here; `golfray pull` needs rsync and ssh on both machines")


def _shell_words(shell: str | None) -> list[str]:
    text = shell or os.environ.get("RSYNC_RSH") or "ssh"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"is no command ({error}): {text}", file="RSYNC_RSH") from error
    if not words:
        raise ConfigError("is a blank, and no command; unset it, or name one such as 'ssh -p 2222'", file="RSYNC_RSH")
    return words


def _reason(code: int, complaints: str) -> str:
    """The one line that says most of why rsync ended."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    ours = [re.sub(r"^rsync: (\[\w+\] )?", "", line) for line in lines if line.startswith("rsync: ")]
    ours = [
        line for line in ours if not line.startswith(("connection unexpectedly closed", "write error: Broken pipe"))
    ]
    theirs = [line for line in lines if not line.startswith("rsync")]
    first = theirs[-1:] + ours[:1] if code in _OF_SSH else ours[:1] + theirs[-1:]
    return (first or lines[-1:] or [f"rsync ended with exit code {code}"])[0]
