"""The files of clusters/: by Ray's own schema, by the shell, and by what they promise."""

import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
from ruamel.yaml import YAML

from golfray.cluster import node_timer
from golfray.cluster.on_head import CODE
from tests.conftest import cannot_run

CLUSTERS = pathlib.Path(__file__).parents[2] / "clusters"
RAY_UP = ("local", "aws-p5", "gcp-a3")
SHELL = ("setup.sh", "environment.sh", "slurm.sbatch")


def load(name):
    return YAML(typ="safe").load(CLUSTERS / f"{name}.yaml")


@pytest.fixture
def validate(monkeypatch):
    from ray.autoscaler._private import util

    # Raises on keys that Ray does not know. What it fills in by default first is part of what is checked.
    return lambda config: util.validate_config(util.prepare_config(config))


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_takes_it(validate, name):
    validate(load(name))


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_would_not_take_a_typing_mistake(validate, name):
    with pytest.raises(Exception, match="setup_comands"):
        validate({**load(name), "setup_comands": []})


@pytest.mark.parametrize("name", RAY_UP)
def test_code_and_token_travel_and_the_timer_is_armed_before_anything_is_installed(name):
    config = load(name)
    assert config["file_mounts"] == {
        f"~/{CODE}.tar.gz": "clusters/golfray.tar.gz",
        "~/.ray/auth_token": "~/.ray/auth_token",
    }
    unpack, arm, *_ = config["initialization_commands"]
    assert f"tar -xzf ~/{CODE}.tar.gz" in unpack
    words = shlex.split(arm)
    assert words[:3] == ["python3", "-I", f"~/{CODE}/golfray/cluster/node_timer.py"]
    options = vars(node_timer._parser().parse_args(words[3:]))
    assert (options["verb"], options["boot"], options["silent"], options["done"]) == ("arm", 60.0, 15.0, 15.0)
    assert config["setup_commands"] == [f"bash ~/{CODE}/clusters/setup.sh"]


@pytest.mark.parametrize("name", RAY_UP)
def test_nothing_of_ray_s_own_is_opened_to_others(name):
    config = load(name)
    commands = " ".join(config["head_start_ray_commands"])
    # The dashboard's default is loopback; a client port would be one more.
    assert "dashboard-host" not in commands
    assert "ray-client-server-port" not in commands
    assert "security_group" not in config["provider"]


@pytest.mark.parametrize(("name", "machine"), [("aws-p5", "p5.48xlarge"), ("gcp-a3", "a3-highgpu-8g")])
def test_the_head_has_the_gpus(name, machine):
    """One node is a whole cluster, and none only waits."""
    config = load(name)
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"]["GPU"] == 8
    assert machine in head["node_config"].values()


@pytest.mark.parametrize("name", SHELL)
def test_the_shell_understands_it(name):
    done = subprocess.run(["bash", "-n", CLUSTERS / name], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SHELL)
def test_shellcheck_has_nothing_to_say(name):
    if shutil.which("shellcheck") is None:
        cannot_run("shellcheck is not installed")
    done = subprocess.run(["shellcheck", CLUSTERS / name], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_slurm_reads_its_options():
    """They end at the first command."""
    head = (CLUSTERS / "slurm.sbatch").read_text().partition("\nset ")[0]
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", head, re.MULTILINE))
    assert options["gpus-per-node"] == "8"
    assert options["signal"] == "B:TERM@300"
    assert len(options) == head.count("#SBATCH")


# Of KubeRay's v1 API, as far as the file uses it: the field's kind, by its name. No checker of Kubernetes is at hand.
POD = {
    "restartPolicy": str,
    "containers": [{"name": str, "image": str, "command": [str], "resources": dict, "volumeMounts": [dict]}],
    "volumes": [dict],
}
RAY_JOB = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str},
    "spec": {
        "entrypoint": str,
        "submissionMode": str,
        "backoffLimit": int,
        "shutdownAfterJobFinishes": bool,
        "ttlSecondsAfterFinished": int,
        "activeDeadlineSeconds": int,
        "rayClusterSpec": {
            "rayVersion": str,
            "authOptions": {"mode": str},
            "headGroupSpec": {"rayStartParams": {"object-store-memory": str}, "template": {"spec": POD}},
        },
    },
}


def check_kind(value, kind, path="$"):
    if isinstance(kind, dict):
        assert value.keys() == kind.keys(), path
        for name, inner in kind.items():
            check_kind(value[name], inner, f"{path}.{name}")
    elif isinstance(kind, list):
        assert value, path
        for number, item in enumerate(value):
            check_kind(item, kind[0], f"{path}[{number}]")
    else:
        assert type(value) is kind, f"{path} is {value!r}"


def test_the_ray_job_has_the_fields_that_kuberay_knows():
    job = load("kuberay")
    check_kind(job, RAY_JOB)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert spec["shutdownAfterJobFinishes"]
    assert spec["rayClusterSpec"]["authOptions"]["mode"] == "token"
    pod = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    (command,) = container["command"]
    words = shlex.split(command.partition("node_timer.py ")[2].partition(" &&")[0])
    assert node_timer._parser().parse_args(words).command == "ray stop"


def test_all_files_are_of_the_ray_that_is_installed():
    import ray

    assert load("kuberay")["spec"]["rayClusterSpec"]["rayVersion"] == ray.__version__
