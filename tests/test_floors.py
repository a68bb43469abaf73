"""The floors of the house hold, and what a person types first loads nothing heavy."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
HEAVY = ("torch", "ray", "mlflow", "optuna")


def test_import_contracts_hold() -> None:
    linter = pathlib.Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("statement", ["import golfray", "import golfray.cli.main"])
def test_importing_loads_nothing_heavy(statement: str) -> None:
    program = f"import sys; {statement}; print(*sorted(set({HEAVY}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from golfray.cli.main import main\n"
        "sys.argv = ['golfray', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        f"print('loaded:', *sorted(set({HEAVY}) & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "loaded:"
