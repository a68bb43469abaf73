"""What tests of every floor share: no telemetry, a private GOLFRAY_HOME, and a small corpus made here."""

import os

# Read by these packages when they are imported, hence before anything else.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"
# Read by torch. Workers of pytest-xdist share the cores; threads that wait for one another's core only burn it.
if side_by_side := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // int(side_by_side))))

import dataclasses
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

if TYPE_CHECKING:
    from golfray.core.model import GPT
    from golfray.core.settings import RunSettings
    from golfray.data.corpus import Corpus
    from tests.forks import Forks

# A trial small enough to run in about a second on one core.
TINY: dict[str, dict[str, Any]] = {
    "model": {"num_layers": 3, "model_dim": 32, "num_heads": 4, "num_kv_heads": 2},
    "muon": {"momentum_warmup_steps": 10},
    "schedule": {"warmup_steps": 0, "warmdown_share": 0.5},
    "batch": {"tokens": 512, "seq_len": 32, "slices": 4, "val_tokens": 4096},
    "stop": {"steps": 12, "seconds": None},
    "export": {"keep_float_max_numel": 256, "scale_floor": 0.0},
    "runtime": {"device": "cpu", "dtype": "float32", "compile": "off", "log_points": 1000},
}


# How long an example takes says something of the machine and what else it does, and nothing of golfray.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")


def pytest_configure() -> None:
    """Whoever runs the tests in the background may have made them deaf to Ctrl-C, and with them all that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Colours and widths that the terminal or the CI machine asks for would change what is printed.
LEFT_OUT = ("FORCE_COLOR", "COLUMNS", "TERM", "XDG_CACHE_HOME", "RANK", "LOCAL_RANK", "WORLD_SIZE")


def plain_environment() -> dict[str, str]:
    """This process's environment without what changes how a command prints or in which gang it runs."""
    return {name: value for name, value in os.environ.items() if name not in LEFT_OUT}


@pytest.fixture(scope="session")
def running_forks() -> "Iterator[Forks]":
    """Starts processes of golfray in which torch is loaded already."""
    from tests.forks import forks

    with forks(plain_environment()) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def golfray_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """No test reads or writes the user's cache; what one test builds there, the others find."""
    home = tmp_path_factory.mktemp("golfray_home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOLFRAY_HOME", str(home))
        # The studies of tests are no sign of life to the timer of the machine they run on.
        patch.setenv("GOLFRAY_NODE_TIMER", str(home / "node_timer"))
        yield home


def generated_documents(count: int, seed: int) -> list[str]:
    """Sentences of invented words with word-to-word structure, so that a model can learn more than letter counts."""
    chooser = random.Random(seed)
    vocabulary = random.Random("words of the tiny corpus")
    syllables = ["ka", "lo", "mi", "ter", "an", "sho", "ur", "pe", "vin", "dra"]
    words = ["".join(vocabulary.choices(syllables, k=vocabulary.randint(1, 4))) for _ in range(120)]
    follows = {word: vocabulary.sample(words, 4) for word in words}
    documents = []
    for _ in range(count):
        sentences, word = [], chooser.choice(words)
        for _ in range(chooser.randint(20, 40)):
            sentence = [word := chooser.choice(follows[word]) for _ in range(chooser.randint(4, 12))]
            if chooser.random() < 0.02:
                sentence.append(chooser.choice(["naïve", "Ωμέγα", "語", "🙂"]))
            sentences.append(" ".join(sentence).capitalize() + ".")
        documents.append(" ".join(sentences))
    return documents


@pytest.fixture(scope="session")
def tiny_corpus(golfray_home: pathlib.Path) -> "Corpus":
    """About 115,000 training tokens in two shards and 10,000 validation tokens of a 320-piece tokenizer."""
    from golfray.data.build import Recipe, build_corpus
    from golfray.data.corpus import open_corpus

    recipe = Recipe(
        name="tiny",
        source="tests/conftest.py",
        shuffle_seed=1,
        val_documents=18,
        vocab_size=320,
        shard_tokens=60_000,
        demo=False,
        contaminated=False,
        warning="",
    )
    return open_corpus(build_corpus(recipe, lambda: generated_documents(208, seed=1), golfray_home))


@pytest.fixture(scope="session")
def tiny_settings(tiny_corpus: "Corpus") -> "Callable[..., RunSettings]":
    """Settings of a tiny trial on the tiny corpus; ``section={field: value}`` changes some."""

    from golfray.core.settings import settings_from_dict

    def build(**changes: Any) -> "RunSettings":
        values = {name: {**fields, **changes.pop(name, {})} for name, fields in TINY.items()}
        values["model"].setdefault("vocab_size", tiny_corpus.vocab_size)
        values["data"] = {"folder": str(tiny_corpus.folder), "tokenizer": str(tiny_corpus.tokenizer)}
        for name in [name for name in changes if isinstance(changes[name], dict)]:
            values[name] = {**values.get(name, {}), **changes.pop(name)}
        return dataclasses.replace(settings_from_dict(values), **changes)

    return build


@pytest.fixture(scope="session")
def trained_folder(
    tiny_settings: "Callable[..., RunSettings]", tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """Folder of one finished tiny trial."""
    import torch

    from golfray.core.gang import Gang
    from golfray.core.trial import run_trial
    from tests.threads import one_thread

    alone = Gang(rank=0, world_size=1, device=torch.device("cpu"))

    folder = tmp_path_factory.mktemp("trained")
    with one_thread():
        result = run_trial(tiny_settings(stop={"steps": 40}), alone, folder)
    assert result["kind"] == "scored"
    return folder


@pytest.fixture(scope="session")
def artifact(trained_folder: pathlib.Path) -> bytes:
    """What that trial exported, in the reference format."""
    return (trained_folder / "final_model.int8.ptz").read_bytes()


@pytest.fixture
def container(artifact: bytes) -> dict:
    """What is inside, for a test to change."""
    from golfray.core.artifact import unpack_artifact

    return unpack_artifact(artifact)


@pytest.fixture
def tiny_model(tiny_settings: "Callable[..., RunSettings]") -> "GPT":
    """The model of that trial, untrained."""
    import torch

    from golfray.core.model import build_model

    return build_model(tiny_settings().model, torch.float32, torch.device("cpu"))


def pytest_collection_finish() -> None:
    """Ray reads its variables when it is imported, so that a test must find it unimported to start a session."""
    if "ray" in sys.modules:
        raise pytest.UsageError("collecting the tests imported ray; import it inside tests, in processes of their own")


def cannot_run(reason: str) -> NoReturn:
    """Skip the test for what this machine lacks; a failure where the tests decide whether something lands."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI nothing is skipped: {reason}")
    pytest.skip(reason)


@pytest.fixture
def mount() -> Iterator[Callable[..., pathlib.Path]]:
    """Mounts with the arguments of mount(8), the last of which is the folder, and takes it away after the test.

    The one way to a small or a read-only disk: ``mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", folder)``. Skips the
    test, and pytest says why, where mounting is not allowed.
    """
    places: list[pathlib.Path] = []

    def do(*arguments: object) -> pathlib.Path:
        if os.geteuid() != 0:
            cannot_run("mounting takes root")
        command, folder = ["mount", *map(str, arguments)], pathlib.Path(str(arguments[-1]))
        folder.mkdir(exist_ok=True)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            cannot_run(f"this machine does not let root mount: {done.stderr.partition(chr(10))[0]}")
        if not any("remount" in word for word in command):
            places.append(folder)
        return folder

    yield do
    for place in reversed(places):
        subprocess.run(["umount", place], check=True)
