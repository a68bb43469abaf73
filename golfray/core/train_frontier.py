"""One trial with all that core has: ``-m golfray.core.train_frontier SETTINGS.json [FOLDER]``, alone or in torchrun."""

import pathlib
import sys
from collections.abc import Callable

from golfray.core.frontier import FrontierParts
from golfray.core.gang import Gang
from golfray.core.loop import Report
from golfray.core.settings import RunSettings
from golfray.core.train import leave_process, main
from golfray.core.trial import run_trial


def run_frontier_trial(
    settings: RunSettings,
    gang: Gang,
    folder: pathlib.Path,
    report: Report | None = None,
    enter: Callable[[str], None] | None = None,
) -> dict:
    """:func:`golfray.core.trial.run_trial` with all the parts there are."""
    return run_trial(settings, gang, folder, report, enter, FrontierParts(settings, gang))


if __name__ == "__main__":
    leave_process(main(sys.argv[1:], run_frontier_trial))
