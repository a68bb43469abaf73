"""What `golfray doctor` finds about MLflow's store: is it there, can it be written, has it this MLflow's tables."""

from __future__ import annotations

from golfray.findings import Finding, error, fine, warning
from golfray.tracking.client import explained, load_mlflow, open_store
from golfray.tracking.store import Store, TrackingError


def check(store: Store) -> list[Finding]:
    """Look at a store, writing nothing: one that is not there yet is not made. Takes seconds, to load MLflow."""
    try:
        told = store.foresee()
        if told is not None:
            return [warning("mlflow", store.name, told, "start it, or write what it lacks later with `golfray track`")]
        if not store.exists:
            return [fine("mlflow", store.name, "is made when the study starts")]
        mlflow = load_mlflow()
        client = open_store(mlflow, store)
        with explained(mlflow, store):
            # Opening it is what compares its tables with those that this MLflow needs.
            experiments = client.search_experiments(max_results=1000)
    except TrackingError as problem:
        return [error("mlflow", store.name, problem.what, problem.advice)]
    told = (
        f"answers, with the tables of this MLflow; {len(experiments)} experiment{'' if len(experiments) == 1 else 's'}"
    )
    return [fine("mlflow", store.name, told)]
