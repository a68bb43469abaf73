"""One trial whose export is searched: trained like any other, then the best of many exports is what it is scored by.

``-m golfray.sweep.searched_trial SETTINGS.json [FOLDER]``, alone or under torchrun, as golfray.core.train_frontier is.

Rank 0 searches, in a phase of its own between validation and export, on training tokens alone; the other ranks wait
for it. What it chose is then exported, reloaded and scored by all ranks, like an export that the settings had named,
and stands in settings.json: whoever reads that afterwards finds a trial whose export was known.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from golfray.core.artifact import write_atomically
from golfray.core.codec import codec_module
from golfray.core.frontier import FrontierParts
from golfray.core.gang import Gang
from golfray.core.loop import Report
from golfray.core.settings import ExportSettings, RunSettings, settings_to_json
from golfray.core.shards import TokenStream
from golfray.core.train import leave_process, main
from golfray.core.trial import finite_or_text, run_trial
from golfray.sweep.export_result import SearchResult
from golfray.sweep.export_search import SearchPlan, Site, search_exports
from golfray.sweep.export_space import STRONGEST, ExportSpace

FRONT_NAME = "front.json"

# Ranks that wait in a collective give up after minutes, so rank 0 lets them hear of it this often.
_PULSE_SECONDS = 20.0


class SearchedParts(FrontierParts):
    """Exports the best of ``tries`` exports; ``result`` is what rank 0 found, None before and on other ranks.

    ``settings``: those of the trial without ``export.search``. ``export.gptq`` says whether GPTQ may be chosen, for
    which training leaves time. Raises ``ImportError`` where one of the codecs is not installed: before training.
    """

    def __init__(self, settings: RunSettings, gang: Gang, folder: Path, tries: int) -> None:
        super().__init__(settings, gang)
        for codec in STRONGEST:
            codec_module(codec)
        self.result: SearchResult | None = None
        self._folder, self._tries, self._steps = folder, tries, 0
        self._last_pulse = 0.0

    def after_step(self, steps: int, seconds: float) -> None:
        """Take in the weights, and how far the run has read."""
        super().after_step(steps, seconds)
        self._steps = steps

    def calibrate(self, stream: TokenStream, enter: Callable[[str], None]) -> None:
        """Calibrate, then search."""
        super().calibrate(stream, enter)
        enter("search")
        if self.gang.rank:
            # Until rank 0 is through.
            while self.gang.broadcast_floats([0.0])[0]:
                pass
            return
        self.result = self._search()
        export = self.result.exported.export
        settings = dataclasses.replace(self.settings, export=export)
        write_atomically(self._folder / "settings.json", settings_to_json(settings).encode())
        self.gang.broadcast_floats([0.0])

    def export_state(self, state: dict[str, torch.Tensor], export: ExportSettings) -> bytes:
        """The artifact that was chosen; where nothing fits the smallest, by which the trial is over the cap."""
        assert self.result is not None, "rank 0 has searched before it exports"
        return self.result.artifact

    def _search(self) -> SearchResult:
        # On the CPU, where the checkpoint is exported too: the same settings make the same bytes of it.
        state = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        settings, gang = self.settings, self.gang
        space = ExportSpace(gptq=(False, True) if settings.export.gptq else (False,))
        site = Site(
            device=gang.device,
            # The other ranks wait meanwhile, so their cores are free.
            threads=gang.world_size * torch.get_num_threads(),
            hessians=self.hessians or None,
            validates=False,
            pulse=self._pulse,
        )
        return search_exports(
            state,
            settings,
            steps=self._steps,
            max_bytes=max(settings.cap_bytes - settings.bytes_code, 1),
            plan=SearchPlan(space, settings=self._tries),
            tell=lambda line: print(f"golfray: search: {line}", flush=True),
            site=site,
        )

    def _pulse(self) -> None:
        now = time.monotonic()
        if now - self._last_pulse >= _PULSE_SECONDS:
            self._last_pulse = now
            self.gang.broadcast_floats([1.0])


def run_searched_trial(
    settings: RunSettings,
    gang: Gang,
    folder: Path,
    report: Report | None = None,
    enter: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """:func:`golfray.core.trial.run_trial`, its export the best of ``export.search``.

    Rank 0 writes front.json, the front with every setting complete. On rank 0 the result has "search", the summary of
    that, wherever the trial came to its export. Raises ``ValueError`` where the settings ask for no search.
    """
    tries = settings.export.search
    if tries is None:
        raise ValueError("export.search is null; golfray.core.train_frontier runs such a trial")
    plain = dataclasses.replace(settings, export=dataclasses.replace(settings.export, search=None))
    parts = SearchedParts(plain, gang, Path(folder), tries)
    result: dict[str, Any] = run_trial(plain, gang, folder, report, enter, parts)
    if parts.result is not None:
        front = {name: value for name, value in parts.result.to_dict().items() if name != "tried"}
        write_atomically(Path(folder) / FRONT_NAME, json.dumps(front, indent=1).encode())
        result["search"] = parts.result.summary()
        write_atomically(Path(folder) / "result.json", json.dumps(finite_or_text(result), indent=1).encode())
    return result


if __name__ == "__main__":
    leave_process(main(sys.argv[1:], run_searched_trial))
