"""golfray as a person runs it: in a process of its own, in a folder and a HOME of its own."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest

from tests.conftest import plain_environment
from tests.forks import TIMEOUT_S, Forks
from tests.marked import MARK, marked_processes

GOLFRAY = pathlib.Path(sys.executable).with_name("golfray")
# What the installed command does.
PROGRAM = "from golfray.cli.main import main; main()"

# Two layers of 64 channels for twelve steps: half a second of training, and 6 KB between one bit-width and the next.
TINY = {
    "model.vocab_size": 320,
    "model.num_layers": 2,
    "model.model_dim": 64,
    "model.num_heads": 2,
    "model.num_kv_heads": 1,
    "model.mlp_mult": 2.0,
    "export.keep_float_max_numel": 1024,
    "schedule.warmdown_share": 0.4,
    "batch.tokens": 1024,
    "batch.seq_len": 64,
    "batch.val_tokens": 4096,
    "stop.seconds": None,
    "stop.steps": 12,
    "runtime.compile": "off",
}


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended: exit code and both outputs."""

    code: int
    out: str
    err: str

    def one_line(self) -> str:
        """The only line on stderr, which is no traceback."""
        (line,) = self.err.splitlines()
        return line


def environment_in(home: pathlib.Path) -> dict[str, str]:
    """The environment of a command whose HOME is ``home``."""
    # A cluster that somebody else left in the environment is not joined by accident.
    return {**plain_environment(), "HOME": str(home), "RAY_ADDRESS": "127.0.0.1:1"}


class Started:
    """A command that runs; whatever it starts is known by a mark in its environment."""

    def __init__(self, command: list[str], folder: pathlib.Path, home: pathlib.Path) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment_in(home), MARK: self.mark},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A group of its own, as a shell gives it: what Ctrl-C reaches is all of it.
            start_new_session=True,
        )
        self.said = ""

    def wait_for_line(self, part: str) -> str:
        """Read standard output up to the first line with ``part`` in it."""
        assert self.process.stdout is not None
        too_late = threading.Timer(TIMEOUT_S, os.killpg, (self.process.pid, signal.SIGTERM))
        too_late.start()
        try:
            for line in self.process.stdout:
                self.said += line
                if part in line:
                    return line
        finally:
            too_late.cancel()
        raise AssertionError(f"{part!r} was never said: {self.end()}")

    def end(self) -> Ended:
        """Wait for the end."""
        try:
            out, err = self.process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        return Ended(self.process.returncode, self.said + out, err)

    def left_processes(self) -> list[str]:
        """Command lines of the processes that came of it and are still there."""
        return marked_processes(self.mark)


class Golfray:
    """Runs commands in ``folder``, with the folder ``home`` beside it as HOME."""

    def __init__(self, root: pathlib.Path, forks: Forks) -> None:
        self._forks = forks
        self.folder, self.home = root / "work", root / "home"
        self.folder.mkdir()
        self.home.mkdir()

    def start(self, *arguments: str | pathlib.Path) -> Started:
        """Start the installed command with these arguments."""
        return Started([str(GOLFRAY), *map(str, arguments)], self.folder, self.home)

    def run(self, *arguments: str | pathlib.Path) -> Ended:
        """Run ``golfray`` with these arguments to its end, in a process that need not load torch."""
        forked = self._forks.start(PROGRAM, *arguments, folder=self.folder, environment=environment_in(self.home))
        return Ended(*forked.end())

    def run_all(self, commands: dict[str, list[str | pathlib.Path]]) -> dict[str, Ended]:
        """Run several commands, two at a time, and return how each ended."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ends = pool.map(lambda arguments: self.run(*arguments), commands.values())
            return dict(zip(commands, ends, strict=True))


@pytest.fixture(scope="module")
def golfray(tmp_path_factory: pytest.TempPathFactory, running_forks: Forks) -> Golfray:
    """A fresh folder and HOME for a module's commands."""
    return Golfray(tmp_path_factory.mktemp("cli"), running_forks)


def as_sets(values: dict[str, object]) -> list[str]:
    """``--set`` options of some settings."""
    return [f"--set={path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in values.items()]


@pytest.fixture(scope="session")
def tiny_sets(tiny_corpus) -> list[str]:
    """Options of ``train`` and ``pack`` for a very small trial of one worker on the tiny corpus."""
    data = {"data.folder": str(tiny_corpus.folder), "data.tokenizer": str(tiny_corpus.tokenizer)}
    return ["--scale=laptop", *as_sets({**TINY, **data, "workers": 1})]


@pytest.fixture(scope="session")
def cap_bytes() -> int:
    """A cap that the tiny model keeps with the scale's own bits (about 70,200 bytes) and not with 8 (82,400)."""
    from golfray.core.settings import RunSettings
    from golfray.ship.packer import bytes_code

    return bytes_code(RunSettings()) + 76_000


@pytest.fixture(scope="session")
def write_space(tiny_corpus, cap_bytes):
    """Writes a space file over the tiny trial; keyword arguments replace its top-level entries."""

    def write(path: pathlib.Path, fixed: dict[str, object] | None = None, **entries: object) -> pathlib.Path:
        space = {
            "name": path.stem,
            "preset": "parameter-golf",
            "scale": "laptop",
            "budget": {"trials": 5},
            "seed": 3,
            "replicates": 2,
            "fixed": {**TINY, "data.folder": str(tiny_corpus.folder), "cap_bytes": cap_bytes, **(fixed or {})},
            "knobs": {
                "optimizer.matrix_lr": {"low": 0.01, "high": 0.1, "log": True},
                "export.bits_attention": {"low": 5, "high": 8},
                "export.bits_mlp": {"low": 5, "high": 8},
                "export.bits_embedding": {"low": 6, "high": 8},
            },
            **entries,
        }
        # JSON is YAML too; a key a line, so that positions in messages mean something.
        path.write_text(json.dumps(space, indent=1), encoding="utf-8")
        return path

    return write


def wait_until(condition, seconds: float = 120.0) -> None:
    """Poll until ``condition()`` is true; the test fails if it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def wait():
    """:func:`wait_until`."""
    return wait_until
