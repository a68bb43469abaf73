"""``golfray ui``: a real MLflow server on a free port of the loopback address, ended like a person would."""

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

from golfray.sweep.events import EventLogError
from golfray.tracking.server import ServerError, serve

SERVE = """
import sys
from pathlib import Path
from golfray.tracking.server import serve
serve(Path(sys.argv[1]), int(sys.argv[2]), lambda line: print(line, flush=True))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_no_study_there(tmp_path):
    with pytest.raises(EventLogError, match="no study here"):
        serve(tmp_path / "nothing", free_port())


def test_port_taken(tmp_path, StudyLog):
    log = StudyLog(tmp_path)
    log.start()
    log.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} on 127.0.0.1 cannot be used"):
            serve(tmp_path, port)


def test_a_log_without_records_is_no_study_yet(tmp_path):
    (tmp_path / "events.jsonl").touch()
    with pytest.raises(ServerError, match="has not started yet"):
        serve(tmp_path, free_port())


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_page_of_a_study_rebuilt_from_its_log_and_ended_cleanly(tmp_path, mixed_study, ending):
    mixed_study(tmp_path)
    port = free_port()
    command = [sys.executable, "-c", SERVE, str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        assert "rebuilding it from events.jsonl" in lines[0]
        assert any(
            re.match(rf"http://127\.0\.0\.1:{port}/#/experiments/\d+/runs\?.*viewStateShareKey=trials", line)
            for line in lines
        ), lines
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
        assert process.wait(30) == 0
    _gone, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
