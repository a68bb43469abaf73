"""A trial whose export is searched: its score is that of the export chosen, and everything it leaves says so."""

import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from golfray.core.exporter import export_state
from golfray.core.frontier import FrontierParts
from golfray.core.gang import Gang
from golfray.core.gptq import collect_hessians
from golfray.core.model import build_model
from golfray.core.settings import RunSettings, settings_from_dict, settings_to_json
from golfray.core.shards import TokenStream, list_shards
from golfray.core.train_frontier import run_frontier_trial
from golfray.core.trial import CHECKPOINT_NAME
from golfray.ship.packer import PackError, pack
from golfray.ship.score_file import score_file
from golfray.sweep.limits import PHASES
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.record_shape import why_damaged
from golfray.sweep.searched_trial import FRONT_NAME, run_searched_trial
from tests.threads import one_thread

CPU = torch.device("cpu")
ALONE = Gang(0, 1, CPU)
# Room for about half of what the tiny trial takes at 8 bits.
CAP = 20_000
SEARCHED = {"format": "flat", "search": 6, "gptq": True, "gptq_batches": 3}


def test_core_alone_refuses_a_search(tiny_settings, tmp_path) -> None:
    settings = tiny_settings(export={"format": "flat", "search": 6})
    with pytest.raises(ValueError, match=r"export\.search is for golfray train and tune"):
        run_frontier_trial(settings, ALONE, tmp_path)
    with pytest.raises(PackError, match=r"export\.search is done after training, by golfray"):
        pack(settings)
    plain = dataclasses.replace(settings, export=dataclasses.replace(settings.export, search=None))
    assert FrontierParts(plain, ALONE).training_settings(plain) == plain
    with pytest.raises(ValueError, match=r"export\.search is null"):
        run_searched_trial(plain, ALONE, tmp_path)


@pytest.fixture(scope="module")
def trial(tiny_settings, tmp_path_factory) -> tuple[RunSettings, dict, list[str], pathlib.Path]:
    """A tiny trial that was searched, in this process."""
    folder = tmp_path_factory.mktemp("searched")
    settings = tiny_settings(export=SEARCHED, cap_bytes=CAP)
    heard: list[str] = []
    with one_thread():
        result = run_searched_trial(settings, ALONE, folder, None, heard.append)
    return settings, result, heard, folder


@pytest.mark.slow
class TestSearchedTrial:
    def test_the_search_is_a_phase_of_its_own(self, trial) -> None:
        _, result, heard, _ = trial
        assert heard == ["data", "compile", "train", "validate", "calibrate", "search", "export", "score"]
        assert list(result["phases"]) == heard
        assert set(heard) <= set(PHASES)

    def test_its_value_is_the_chosen_export(self, trial) -> None:
        _, result, _, folder = trial
        search = result["search"]
        assert (result["kind"], result["artifact"]) == ("scored", "final_model.flat")
        assert search["tried"] >= 6
        on_front = [each for each in search["front"] if not each["export"]]
        assert [each["bytes"] for each in on_front] == [result["metrics"]["bytes/model"]]
        fitting = [each["bits_per_byte"] for each in search["front"] if each["bytes"] <= CAP]
        assert search["bits_per_byte"] == min(fitting)
        front = json.loads((folder / FRONT_NAME).read_text())
        assert front["chosen"]["export"] == search["export"]
        assert [each["bytes"] for each in front["front"]] == [each["bytes"] for each in search["front"]]
        assert front["validation"] is None

    def test_what_it_leaves_is_a_trial_whose_export_was_known(self, trial) -> None:
        settings, result, _, folder = trial
        left = settings_from_dict(json.loads((folder / "settings.json").read_text()))
        assert dataclasses.asdict(left.export) == result["search"]["export"]
        assert left.export.search is None
        assert dataclasses.replace(left, export=settings.export) == settings
        scored = score_file(folder / "final_model.flat", None, None, None)
        assert scored.bits_per_byte == pytest.approx(result["metrics"]["bpb/roundtrip"], abs=2e-5)
        assert scored.fits
        # The script of these settings ships them, and makes the same bytes of the checkpoint.
        assert pack(dataclasses.replace(left, bytes_code=0)).settings.export == left.export
        state = torch.load(folder / CHECKPOINT_NAME, weights_only=True)
        model = build_model(settings.model, torch.float32, CPU)
        model.load_state_dict(state)
        stream, batch = TokenStream(list_shards(pathlib.Path(settings.data.folder), "train")), settings.batch
        tokens = batch.tokens // batch.slices
        batches = [stream.slice_batch(number, tokens, batch.seq_len)[0] for number in range(3)]
        made = export_state(state, left.export, collect_hessians(model, batches))
        assert made == (folder / "final_model.flat").read_bytes()

    def test_its_outcome_stands_in_a_log(self, trial) -> None:
        _, result, _, folder = trial
        outcome = Outcome.from_dict(json.loads((folder / "result.json").read_text()))
        assert outcome.kind is Kind.SCORED
        assert outcome.search == result["search"]
        event = {"event": "attempt_ended", "time": 1.0, "trial": 0, "attempt": 1, "job_id": "a", "outcome": {}}
        assert why_damaged({**event, "outcome": outcome.to_dict()}) is None
        broken = {**result["search"], "front": [{"bytes": "many"}]}
        assert "front" in str(why_damaged({**event, "outcome": {**outcome.to_dict(), "search": broken}}))

    def test_where_nothing_fits_it_is_over_the_cap_by_the_smallest(self, tiny_settings, tmp_path) -> None:
        settings = tiny_settings(export={**SEARCHED, "gptq": False, "search": 3}, cap_bytes=500)
        with one_thread():
            result = run_searched_trial(settings, ALONE, tmp_path)
        assert result["kind"] == "infeasible"
        smallest = min(each["bytes"] for each in result["search"]["front"])
        assert result["metrics"]["bytes/model"] == smallest
        assert result["metrics"]["bytes/margin"] == 500 - smallest
        assert math.isfinite(result["metrics"]["bpb/roundtrip"])

    def test_several_ranks_wait_for_the_one_that_searches(self, trial, tmp_path) -> None:
        """Under torchrun, as golfray train starts it: the same steps on any gang, so about the same front."""
        settings, alone, _, _ = trial
        (tmp_path / "settings.json").write_text(settings_to_json(settings))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m"]
        command += ["golfray.sweep.searched_trial", str(tmp_path / "settings.json"), str(tmp_path / "out")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        result = json.loads((tmp_path / "out" / "result.json").read_text())
        assert result["fidelity"]["workers"] == 2
        assert result["search"]["tried"] >= 6
        assert result["metrics"]["bpb/roundtrip"] == pytest.approx(alone["metrics"]["bpb/roundtrip"], abs=0.02)
