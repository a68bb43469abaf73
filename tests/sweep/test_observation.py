"""The shipped numbers of the public records, and files of observations: what is read is what was written."""

import json
import re
from pathlib import Path

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.observation import (
    Observations,
    observations_text,
    published_observations,
    read_observations,
    write_observations,
)

HEAD = '{"schema": "golfray-observations/1", "source": "here", "stock": {"bpb": 1.2, "runs": 1}, "observations": [%s]}'
GOOD = '{"id": "a", "name": "a", "bpb": 1.1, "runs": 2, "settings": {"optimizer.matrix_lr": 0.02}}'


@pytest.fixture(scope="module")
def published() -> Observations:
    return published_observations()


def test_every_public_record_is_there_once(published: Observations) -> None:
    """R01 to R45, and the one that has a log only and is over the cap."""
    assert len(published.records) == 46
    assert [record.id for record in published.records if record.id != "R13x"] == [f"R{n:02d}" for n in range(1, 46)]
    over = [record.id for record in published.records if record.bytes_total > 16_000_000]
    assert over == ["R13x", "R30"]


# Score, runs and the largest size as the memo on the records has them, and knobs of different kinds.
ROWS = {
    "R01": (1.2244, 1, 15_863_489, 0.04, 0.95, 500 / 13_780, 0.0, 1200 / 13_780, 8, 8, "none"),
    "R05": (1.2230, 1, 15_854_246, 0.02, 0.95, 500 / 14_421, 0.0, 1200 / 14_421, 8, 8, "none"),
    "R16": (1.14277, 3, 15_965_978, 0.02, 0.99, 1500 / 6_711, 0.04, 3000 / 6_711, 5, 16, "swa"),
    "R33": (1.08100, 3, 15_993_232, 0.022, 0.99, 1500 / 4_553.5, 0.095, 0.72, 6, 8, "ema"),
    "R44": (1.06108, 3, 15_907_550, 0.026, 0.97, 1500 / 4_931, 0.095, 0.85, 6, 7, "ema"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_those_of_the_memo(published: Observations, name: str) -> None:
    (record,) = [record for record in published.records if record.id == name]
    paths = ("optimizer.matrix_lr", "muon.momentum_end", "muon.momentum_warmup_share", "muon.weight_decay")
    paths += ("schedule.warmdown_share", "export.bits_mlp", "export.bits_embedding", "averaging.method")
    expected = ROWS[name]
    assert (record.bpb, record.runs, record.bytes_total) == expected[:3]
    for path, value in zip(paths, expected[3:], strict=True):
        assert record.settings[path] == (value if isinstance(value, str) else pytest.approx(value, abs=6e-5)), path


def test_settings_that_are_not_known_are_missing(published: Observations) -> None:
    records = {record.id: record.settings for record in published.records}
    assert "muon.momentum_end" not in records["R10"]
    assert "export.bits_mlp" not in records["R22"]
    assert records["R44"]["optimizer.beta2"] == 0.99
    assert records["R42"]["schedule.lr_floor"] == 0.1
    assert records["R09"]["optimizer.adam_weight_decay"] == 0.01


def test_a_file_reads_back_as_it_was_written(published: Observations, tmp_path: Path) -> None:
    path = tmp_path / "observations.json"
    write_observations(path, published)
    assert read_observations(path) == published
    write_observations(path, published)
    assert len(json.loads(path.read_text())["observations"]) == 46
    assert [name.name for name in tmp_path.iterdir()] == ["observations.json"]


def test_another_file_is_not_written_over(published: Observations, tmp_path: Path) -> None:
    path = tmp_path / "muon.yaml"
    path.write_text("name: muon\n")
    with pytest.raises(ConfigError, match=r"muon.yaml: is there and holds no observations; name another file"):
        write_observations(path, published)
    assert path.read_text() == "name: muon\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "1:2: is not JSON"),
        ("[]", "valid dictionary"),
        (HEAD % GOOD.replace("1.1", "NaN"), "observations.0.bpb: Input should be"),
        (HEAD % GOOD.replace('"runs": 2', '"runs": 0'), "observations.0.runs: Input should be greater"),
        (HEAD % GOOD.replace("matrix_lr", "matrix_rate"), "optimizer.matrix_rate: settings of a: unknown setting"),
        (HEAD % GOOD.replace("0.02", '"fast"'), 'settings of a: must be a number >= 0, got "fast"'),
        (HEAD % f"{GOOD}, {GOOD}", "has two observations called a"),
        ('{"schema": "golfray-observations/2"}', "schema: Input should be"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "o.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_observations(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_observations(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="is no regular file"):
        read_observations(tmp_path)


def test_the_text_has_one_observation_a_line(published: Observations) -> None:
    lines = observations_text(published).splitlines()
    assert sum(line.startswith('    {"id": "R') for line in lines) == 46
