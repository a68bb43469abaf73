"""MLflow's page of a study: a real MLflow server on a free port of the loopback address, ended like a person would."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import psutil
import pytest

from golfray.tracking.replay import replay
from golfray.tracking.server import ServerError, check_port, serve
from tests.ports import free_port
from tests.tracking.stores import answering

SERVE = """
import sys
from pathlib import Path
from golfray.tracking.server import serve
serve(Path(sys.argv[1]), "muon", int(sys.argv[2]), lambda url: print(url, flush=True))
"""


def test_a_port_that_is_taken_or_none_at_all():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=rf"port {port} on 127.0.0.1 cannot be used .* another `golfray ui`"):
            check_port(port)
    with pytest.raises(ServerError, match="port 70000 on"):
        check_port(70_000)
    check_port(free_port())


def test_a_store_that_does_not_know_the_study(study_folder):
    with pytest.raises(ServerError, match=r"does not know the study muon; write it there: golfray track "):
        serve(study_folder, "muon", free_port(), print)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_page_of_a_study_ends_with_all_its_processes(study_folder, mixed_study, ending, code):
    mixed_study(study_folder)
    replay(study_folder)
    port = free_port()
    command = [sys.executable, "-c", SERVE, str(study_folder), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        url = process.stdout.readline()
        assert re.match(rf"http://127\.0\.0\.1:{port}/#/experiments/\d+/runs\?.*viewStateShareKey=trials", url)
        family = psutil.Process(process.pid).children(recursive=True)
        listening = {
            connection.laddr.ip
            for child in family
            for connection in child.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as page:
            assert page.status == 200
        foreign = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": "example.org"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(foreign, timeout=20)
        process.send_signal(ending)
        assert process.wait(30) == (-ending if ending == signal.SIGKILL else 0)
    _gone, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


@pytest.mark.slow
def test_a_port_that_somebody_takes_while_the_server_starts(study_folder, mixed_study):
    """The page of another server is not taken for one's own: somebody binds the port after it was looked at."""
    mixed_study(study_folder)
    replay(study_folder)
    port = free_port()
    command = [sys.executable, "-c", SERVE, str(study_folder), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        page = psutil.Process(process.pid)
        while not page.children():
            assert process.poll() is None
        # From this process, so that it is there before MLflow has even been imported.
        with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK", port):
            try:
                out, err = process.communicate(timeout=300)
            finally:
                process.kill()
    assert out == ""
    assert f"ServerError: port {port} on 127.0.0.1 cannot be used (Address already in use)" in err
