"""The user's way to a cluster, for real: `ray up`, `ray submit`, `ray job submit`, `ray down` over ssh."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest

from golfray.cluster.on_head import CODE
from golfray.sweep.records import StudyRecord
from tests.cluster.own_machine import ADDRESS
from tests.conftest import TINY, cannot_run, plain_environment

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
NAMESPACES = ["unshare", "--pid", "--mount", "--net", "--fork", "--mount-proc", "--kill-child"]
PROGRAMS = ("unshare", "ip", "git", "ssh", "ssh-keygen", "rsync", "make", "g++", "/usr/sbin/sshd")

ON_HEAD = "golfray/cluster/on_head.py"
RAY_JOB = "RAY_ADDRESS=http://127.0.0.1:8265 ray job"
LOOK = """
import ipaddress, psutil, urllib.error, urllib.request
for connection in psutil.net_connections("tcp"):
    address = ipaddress.ip_address(connection.laddr.ip)
    if connection.status == "LISTEN" and not (getattr(address, "ipv4_mapped", None) or address).is_loopback:
        print("open:", connection.laddr.ip, connection.laddr.port)
try:
    print(urllib.request.urlopen("http://127.0.0.1:8265/api/jobs/").read())
except urllib.error.HTTPError as error:
    print("without token:", error.code)
"""


@dataclasses.dataclass(frozen=True)
class Said:
    """What a command said, on either output, and how it ended."""

    code: int
    out: str


def plain(text):
    """Without the colours and cursors of the terminal that ssh asks for."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


class Machine:
    """The folders of own_machine.py: a head with golfray's packages installed, and a client with a clone and a key."""

    def __init__(self, folder):
        self.folder, self.home, self.clone = folder, folder / "home", folder / "client" / "golfray"
        self._set_up_head()
        self._set_up_client()

    def _set_up_head(self):
        """Stands in for 2 GB of downloads: the packages of this environment, and whatever code is unpacked."""
        code = self.home / CODE
        environment = code / ".venv"
        venv.create(environment, symlinks=True)
        below = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
        (below / "there.pth").write_text(f"{code}\n{sysconfig.get_path('purelib')}\n")
        for name in ("ray", "golfray"):
            lines = pathlib.Path(sys.prefix, "bin", name).read_text().splitlines()
            program = environment / "bin" / name
            program.write_text("\n".join([f"#!{environment}/bin/python", *lines[1:], ""]))
            program.chmod(0o755)
        (environment / "installed-demo").touch()
        (self.home / ".bashrc").write_text(f'export PATH="{sys.base_prefix}/bin:$PATH" LANG=C.UTF-8\n')

    def _set_up_client(self):
        git = ["git", "clone", "--quiet", "--no-local", "--depth=1", f"file://{ROOT}", str(self.clone)]
        subprocess.run(git, check=True, capture_output=True)
        (self.folder / "client" / "bin").mkdir()
        for name in ("ray", "golfray"):
            (self.folder / "client" / "bin" / name).symlink_to(pathlib.Path(sys.prefix, "bin", name))
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "client" / "key")]
        subprocess.run(key, check=True)
        cluster = self.clone / "clusters" / "local.yaml"
        ours = {"ssh_user: ubuntu ": "ssh_user: root ", "~/.ssh/id_ed25519": str(self.folder / "client" / "key")}
        text = cluster.read_text()
        assert f"head_ip: {ADDRESS} " in text
        for theirs, mine in ours.items():
            assert text.count(theirs) == 1
            text = text.replace(theirs, mine)
        cluster.write_text(text)

    def run(self, commands):
        """Run shell commands there, by name; returns what those that were reached said."""
        arguments = [ROOT, self.folder, json.dumps(list(commands.values()))]
        done = subprocess.run(
            [*NAMESPACES, sys.executable, HERE / "own_machine.py", *arguments],
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        said = json.loads((self.folder / "said.json").read_text()) if (self.folder / "said.json").exists() else []
        print(f"{done.stderr}\n", *(f"{each['s']:.0f} s: {each['command']}\n{each['out']}" for each in said))
        assert done.returncode == 0, done.stderr
        return {name: Said(each["code"], plain(each["out"])) for name, each in zip(commands, said, strict=False)}


def sets(corpus):
    """Options that make a trial of the space last a second, besides what the space searches."""
    sections = {name: fields for name, fields in TINY.items() if name not in ("muon", "schedule")}
    values = {f"{section}.{name}": value for section, fields in sections.items() for name, value in fields.items()}
    values |= {"schedule.warmup_steps": 0, "data.folder": str(corpus.folder), "model.vocab_size": corpus.vocab_size}
    return " ".join(f"--set={path}={json.dumps(value).strip(chr(34))}" for path, value in values.items())


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        cannot_run("namespaces take root")
    if lacking:
        cannot_run(f"not installed here: {', '.join(lacking)}")
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        cannot_run(f"this machine makes no namespaces: {tried.stderr.strip()}")
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def said(machine, tiny_corpus):
    own = machine.folder / "corpus"
    shutil.copytree(tiny_corpus.folder, own)
    corpus = dataclasses.replace(tiny_corpus, folder=own)
    return machine.run(
        {
            "files": "make cluster-files",
            "up": "ray up --yes clusters/local.yaml",
            "submit": f"ray submit clusters/local.yaml {ON_HEAD} -- tune search_spaces/muon.yaml {sets(corpus)}",
            "pull": "PYTHONPATH=. golfray pull clusters/local.yaml muon",
            "job": f"RAY_AUTH_MODE=token {RAY_JOB} submit -- python {CODE}/{ON_HEAD} status muon",
            "timer": "python3 -I golfray/cluster/node_timer.py show",
            "look": f"{sys.executable} -c {shlex.quote(LOOK)}",
            "down": "ray down --yes clusters/local.yaml",
            "left": "ps -eo args | grep -E 'raylet|gcs_server' | grep -v grep || true",
        }
    )


def test_every_step_succeeds(said):
    assert {name: each.code for name, each in said.items()} == dict.fromkeys(said, 0)
    assert list(said)[-1] == "left"


def test_the_study_ends_with_its_table_and_records(said, machine):
    record = StudyRecord.load(machine.home / CODE / "studies" / "muon")
    assert record.complete
    assert sum(trial.role != "replicate" for trial in record.trials) == 12
    out = said["submit"].out
    assert re.search(r"^ *trial +role +outcome +BPB", out, re.MULTILINE)
    assert re.search(r"^best feasible: t\d\d\d ", out, re.MULTILINE)
    assert "Ray cluster at 127.0.0.1:6379" in out
    assert (machine.home / CODE / "studies" / "muon" / "mlflow.db").is_file()


def test_the_study_comes_home_with_its_artifacts(said, machine):
    there, home = machine.home / CODE / "studies" / "muon", machine.clone / "studies" / "muon"
    assert (home / "events.jsonl").read_bytes() == (there / "events.jsonl").read_bytes()
    artifacts = {path.relative_to(there) for path in there.glob("trials/*/*/final_model.*")}
    assert len(artifacts) >= 12
    assert f"artifacts: {len(artifacts)} of {len(artifacts)} are here as the log has them" in said["pull"].out
    for name in artifacts:
        assert (home / name).read_bytes() == (there / name).read_bytes()
        assert (home / name).with_name("checkpoint.pt").is_file()
    # What Ray and MLflow have of it is that machine's own.
    assert {path.name for path in home.iterdir()} == {"events.jsonl", "trials"}


def test_the_code_is_that_of_the_commit(machine):
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "golfray"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    there = machine.home / CODE
    code = {str(path.relative_to(there)) for path in (there / "golfray").rglob("*") if path.is_file()}
    assert {path for path in code if "__pycache__" not in path} == set(listed.stdout.splitlines())


def test_the_study_renewed_the_timer_that_ends_its_ray(said):
    unwrapped = " ".join(said["submit"].out.split())
    assert "this node goes off 15 minutes after the study's last sign, and 15 after its end: ~/golfray/" in unwrapped
    assert re.search(r"unless that is put off \(the study is done\): \S+/ray stop", said["timer"].out)


def test_no_port_but_that_of_ssh_is_open_and_the_dashboard_wants_the_token(said):
    assert set(said["look"].out.splitlines()) == {"open: 0.0.0.0 22", "open: :: 22", "without token: 401"}


def test_a_job_runs_on_the_head_and_sees_its_studies(said):
    assert "trials: 14 of 14 ended; " in said["job"].out
    assert "succeeded" in said["job"].out


def test_nothing_is_left(said):
    assert said["left"].out == ""
