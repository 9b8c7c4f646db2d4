"""Forks runners for a worker: `python -I -u -m nimbus.worker.fork_server`, with a socket as standard input.

It has everything imported that a runner needs, and no credentials: the startup of a runner is a descriptor
that passes through it unread. A runner may wait for its attempt: see `warm.runner`. One thread. It ends when
its worker does; its runners go on, since each has a session of its own.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nimbus.worker import connections, forked
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.identity import host_id
from nimbus.worker.own_interpreter import imported_names
from nimbus.worker.proc_area import ROOM, has_room, show_as
from nimbus.worker.procfs import start_ticks
from nimbus.worker.runner import run_and_exit, take_standard_input
from nimbus.worker.settings import RUNNER_VARIABLE
from nimbus.worker.warm import runner as warm_runner

_LONGEST_REQUEST = 64 << 10
"""Bytes: a path and a tag."""


def main() -> int:
    """Serve until the worker's end."""
    if not has_room():
        sys.stderr.write("fork server: /proc does not show the room for what its children are\n")
        return 1
    signal.signal(signal.SIGCHLD, _reap)
    connections.import_clients()
    imported_names()
    host_id()
    gc.collect()
    gc.freeze()  # or the first collection in a child would copy most of our memory
    worker = socket.socket(fileno=take_standard_input())
    while True:
        message, descriptors, _, _ = socket.recv_fds(worker, _LONGEST_REQUEST, 1, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return 0
        answer = _forked(json.loads(message), descriptors[0])
        os.close(descriptors[0])
        with suppress(BrokenPipeError):  # the worker has ended: the next read says so
            worker.send(json.dumps(answer).encode())


def _reap(*_signal: object) -> None:
    """Take the exit status of runners that have ended; nobody asks for it."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _forked(request: dict[str, Any], descriptor: int) -> dict[str, Any]:
    if "warm" in request:
        work = partial(warm_runner.begin, Path(request["warm"]), descriptor, request["command"])
    else:
        work = partial(_begin, AttemptFolder(Path(request["folder"])), request["tag"], descriptor)
    try:
        pid = forked.fork(work)
    except OSError as exc:
        return {"error": f"fork: {exc.strerror}"}
    return {"pid": pid, "start_ticks": start_ticks(pid)}


def _begin(folder: AttemptFolder, tag: str, startup: int) -> int:
    """Become a runner, in the forked child."""
    os.setsid()
    forked.keep_only(startup)
    forked.reset_signals()
    passed_on = {name: value for name, value in os.environ.items() if name not in ROOM}
    show_as(
        "nimbus-runner", ("nimbus.worker.runner", str(folder.attempt)), {**passed_on, RUNNER_VARIABLE: tag}
    )
    forked.write_to(folder.runner_log)
    return run_and_exit(folder, startup)


if __name__ == "__main__":
    sys.exit(forked.run_program(main))
