"""Run by forks.py: runs programs in processes forked from this one, which has loaded torch and golfray once.

A program finds what a shell gives it: a process group, a folder, an environment and outputs of its own; its process
ends as any Python does. Argument: the number of a listening socket. A connection carries one request as a line of JSON
(program, argv, folder, environment, out, err: files) and is answered with two lines: the process id, and when it has
ended its exit code, or minus the number of the signal that killed it. A program whose connection is closed before is
killed. The server ends when its standard input does.
"""

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from typing import Any

import golfray


def load() -> None:
    """Load what programs load; nothing of it starts a thread, which a fork would lose."""
    for name in ("optuna", "rich.markup", "sentencepiece", "torch", "typer.rich_utils"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(golfray.__path__, "golfray."):
        if not module.name.startswith(("golfray.cluster.", "golfray.tracking.")):
            importlib.import_module(module.name)
    # A collection in a forked process would copy every page that has an object in it.
    gc.freeze()


def become(request: dict[str, Any]) -> None:
    """What a shell does before it starts a command."""
    os.setsid()
    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    outputs = [(os.devnull, os.O_RDONLY), (request["out"], writing), (request["err"], writing)]
    for number, (name, mode) in enumerate(outputs):
        opened = os.open(name, mode, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["argv"]
    # Whoever runs the tests in the background or under nohup has made them deaf to Ctrl-C or to the end of a terminal;
    # a person's command is not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def serve(listener: socket.socket) -> str:
    """Answer requests; returns only in the process of a program, with its text."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            sys.exit(0)
        connection, _ = listener.accept()
        if os.fork() != 0:
            connection.close()
            collect_ended()
            continue
        # In between, whoever waits for the program while the server goes on.
        listener.close()
        with connection.makefile("r", encoding="utf-8") as lines:
            request = json.loads(lines.readline())
        process = os.fork()
        if process == 0:
            connection.close()
            become(request)
            return str(request["program"])
        connection.sendall(f"{process}\n".encode())
        ended = os.pidfd_open(process)
        # Whoever asked for it says nothing more: a connection that can be read was closed, by a test that failed.
        ready, _, _ = select.select([ended, connection], [], [])
        if ended not in ready:
            os.killpg(process, signal.SIGKILL)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)


def collect_ended() -> None:
    """Wait for those that have ended already."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return  # there is none


if __name__ == "__main__":
    load()
    exec(compile(serve(socket.socket(fileno=int(sys.argv[1]))), "<program>", "exec"), {"__name__": "__main__"})
