"""What must be true before Ray is imported."""

import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run_python(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_floor_imports_ray_only_when_a_session_starts():
    code = (
        "import sys, golfray.cluster.executor, golfray.cluster.broker, golfray.cluster.environment\n"
        "print(sorted({'ray', 'torch', 'mlflow', 'optuna'} & set(sys.modules)))"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_ray_imported_too_early_is_said_and_leaves_the_variables_alone(tmp_path):
    code = (
        "import os, pathlib, sys, ray\n"
        "before = dict(os.environ)\n"
        "from golfray.cluster.environment import start_session\n"
        "try:\n"
        "    start_session(pathlib.Path(sys.argv[1]))\n"
        "except RuntimeError as problem:\n"
        "    print(problem, problem.exit_code, dict(os.environ) == before)"
    )
    assert (
        "imported before golfray could set its variables; import it later 4 True"
        in run_python(code, str(tmp_path)).stdout
    )


def test_a_foreign_cluster_needs_its_token(tmp_path):
    code = (
        "import os, pathlib, sys\n"
        "[os.environ.pop(name, None) for name in ('RAY_AUTH_TOKEN', 'RAY_AUTH_TOKEN_PATH')]\n"
        "from golfray.cluster.environment import start_session\n"
        "try:\n"
        "    start_session(pathlib.Path(sys.argv[1]), '127.0.0.1:1')\n"
        "except RuntimeError as problem:\n"
        "    print(problem)"
    )
    assert "cluster at 127.0.0.1:1 needs its token: set RAY_AUTH_TOKEN_PATH" in run_python(code, str(tmp_path)).stdout


def test_an_address_where_nobody_listens_is_said_at_once(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    code = (
        "import pathlib, sys\n"
        "from golfray.cluster.environment import start_session\n"
        "from golfray.cluster.far_resources import far_resources\n"
        "folder, address = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "for ask in (lambda: start_session(folder, address), lambda: far_resources(address)):\n"
        "    try:\n"
        "        ask()\n"
        "    except RuntimeError as problem:\n"
        "        print(problem, problem.exit_code)\n"
        "assert 'ray' not in sys.modules"
    )
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    said = run_python(code, str(tmp_path), address).stdout.splitlines()
    assert said == [f"no Ray cluster answers at {address}: Connection refused 4"] * 2


def test_whatever_ray_raises_where_it_cannot_start_is_the_machines_fault(tmp_path):
    # Ray raises a plain Exception where its own limit of 30 s for a node is over.
    code = (
        "import os, pathlib, sys\n"
        "os.environ['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] = '0'\n"
        "import ray\n"
        "def late(**settings): raise Exception('The current node timed out during startup.')\n"
        "ray.init = late\n"
        "from golfray.cluster.environment import start_session\n"
        "try:\n"
        "    start_session(pathlib.Path(sys.argv[1]))\n"
        "except RuntimeError as problem:\n"
        "    print(problem, problem.exit_code)"
    )
    said = run_python(code, str(tmp_path)).stdout
    assert "no local Ray cluster could be started: Exception: The current node timed out" in said
    assert said.strip().endswith("4")
