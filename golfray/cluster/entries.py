"""What runs a trial in a rank: the entry that its settings need, by name, since a lane is sent no functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from golfray.core.settings import RunSettings, beyond_baseline

# What a rank runs for a job: (settings, gang, folder, report, enter) -> Outcome as a dictionary.
Run = Callable[..., dict[str, Any]]

# What runs a trial, without and with the modules that only some settings need.
_RUN_BASELINE = "golfray.core.trial:run_trial"
_RUN_FRONTIER = "golfray.core.train_frontier:run_frontier_trial"
# What searches the export as well. It does not ship: what ships has the export that was found.
_RUN_SEARCHED = "golfray.sweep.searched_trial:run_searched_trial"


def run_of(settings: RunSettings) -> str:
    """What runs a trial of these settings, as "module:function"; without a search it is what packs for them too."""
    if settings.export.search is not None:
        return _RUN_SEARCHED
    return _RUN_FRONTIER if beyond_baseline(settings) else _RUN_BASELINE


def load_run(name: str) -> Run:
    """The function behind "package.module:function". Raises ``ImportError`` or ``AttributeError`` naming the part."""
    module, _, function = name.partition(":")
    loaded: Run = getattr(importlib.import_module(module), function)
    return loaded
