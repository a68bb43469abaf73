"""The doctor as a person calls it: findings, exit codes, documents."""

import json

import pytest

from tests.cli.documented import read_tables


@pytest.fixture(scope="module")
def space(golfray, write_space):
    return write_space(golfray.folder / "muon.yaml")


@pytest.fixture(scope="module")
def ended(golfray, space):
    """How each call ended."""
    return golfray.run_all(
        {
            "well": ["doctor", space, "--json"],
            "missing": ["doctor", space, "--set=runtime.device=cuda", "--json", "-q"],
            "cluster": ["doctor", space, "--address=127.0.0.1:1", "-q"],
            "nothing": ["doctor", "absent.yaml"],
        }
    )


def test_a_machine_that_can_run_the_study(ended, golfray, tiny_corpus):
    (document,) = map(json.loads, ended["well"].out.splitlines())
    assert read_tables().mistakes(document) == []
    assert (ended["well"].code, document["errors"], document["address"]) == (0, 0, None)
    assert document["study_folder"] == str(golfray.folder / "studies" / "muon")
    ok = {finding["code"]: finding for finding in document["findings"] if finding["severity"] == "ok"}
    assert {"disk", "data", "versions", "gpus", "nccl", "temporary-room", "lanes", "mlflow"} <= set(ok)
    assert tiny_corpus.digest[:12] in ok["data"]["what"]
    assert document["warnings"] == sum(finding["severity"] == "warning" for finding in document["findings"])


def test_the_words(ended):
    lines = ended["well"].err.splitlines()
    assert any(line.startswith("ok   this machine: no GPU; ") for line in lines)
    assert "reading 4 files for their sums" in lines
    assert lines[-1] == "the arithmetic of this machine is checked by: golfray selftest"


def test_nothing_is_written(ended, golfray):
    assert [path.name for path in golfray.folder.iterdir()] == ["muon.yaml"]


def test_what_is_missing_ends_with_four(ended):
    (document,) = map(json.loads, ended["missing"].out.splitlines())
    assert read_tables().mistakes(document) == []
    assert (ended["missing"].code, document["errors"]) == (4, 1)
    (missing,) = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert (missing["code"], missing["what"]) == (
        "lanes",
        "a trial of 2 workers needs 2 GPUs, but Ray offers none here",
    )
    # Results only: what is in order is left out.
    assert not any(line.startswith("ok") for line in ended["missing"].err.splitlines())


def test_a_cluster_that_cannot_be_asked(ended):
    assert ended["cluster"].code == 4
    (missing,) = [line for line in ended["cluster"].out.splitlines() if line.startswith("MISS")]
    assert missing.startswith("MISS 127.0.0.1:1: the Ray cluster at 127.0.0.1:1 needs its token: ")


def test_a_space_that_is_not_there(ended):
    assert ended["nothing"].code == 2
