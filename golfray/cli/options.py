"""Options and arguments that several verbs share, so that they mean the same everywhere."""

from __future__ import annotations

import re

import typer


def complete_study(typed: str) -> list[str]:
    """Names of the studies below ./studies that begin as typed, for the shell."""
    from golfray.report.lookup import study_names

    return [name for name in study_names() if name.startswith(typed)]


def complete_trial(typed: str) -> list[str]:
    """Trials for the shell: of the latest study as ``t003``, of another one as ``muon/t003``."""
    from golfray.report.lookup import trial_names

    return trial_names(typed)


def complete_scores(typed: str) -> list[str]:
    """One side of a claim for the shell: trials, published rows, files of scores."""
    from golfray.report.scores_lookup import scores_names

    return scores_names(typed)


PRESET = typer.Option("parameter-golf", help="Named full configuration to start from.")
SCALE = typer.Option("auto", help="full, laptop, or auto: laptop where there is no GPU.")
SETS = typer.Option([], "--set", metavar="PATH=VALUE", help="Override one setting, such as optimizer.matrix_lr=0.02.")
TRACKING_URI = typer.Option(
    None,
    "--tracking-uri",
    metavar="URI",
    help="MLflow server (http://HOST:PORT) or file (sqlite:///PATH); default: where the study was tracked before, else "
    "mlflow.db in its folder. "
    "A server's user and password belong into the environment, as MLFLOW_TRACKING_USERNAME and _PASSWORD.",
)
USD_PER_HOUR = typer.Option(
    None,
    "--usd-per-hour",
    metavar="USD",
    help="What one node costs an hour, where budget.instance names none of clusters/prices.yaml (docs/budget.md).",
)
_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@]+):(\d{1,5})")


def cluster_address(text: str | None) -> str | None:
    """The address of a Ray cluster as it was typed; raises ``typer.BadParameter`` where it is none.

    Ray itself takes more: with "local" it starts a cluster, and for a port beyond all ports it waits for minutes.
    """
    if text is None or text == "auto":
        return text
    match = _HOST_PORT.fullmatch(text)
    if match is None or not 0 < int(match[1]) < 65536:
        raise typer.BadParameter(f"must be HOST:PORT, such as 10.0.0.1:6379, or auto, got {text!r}")
    return text


ADDRESS = typer.Option(
    None,
    "--address",
    callback=cluster_address,
    metavar="HOST:PORT",
    help="Run on the Ray cluster there (auto: the one that this machine belongs to) and not on one of the study's own; "
    "its token is taken from RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH (docs/clusters.md).",
)
STUDY_ARGUMENT = typer.Argument(
    None,
    metavar="STUDY",
    help="Folder of the study, or its name below ./studies; default: the one written last there.",
    autocompletion=complete_study,
)
TRIAL_ARGUMENT = typer.Argument(
    ..., metavar="ID", help="3, t003, muon/3 or studies/muon/t003.", autocompletion=complete_trial
)
