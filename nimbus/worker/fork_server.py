"""Forks for a worker: `python -I -u -m nimbus.worker.fork_server`, with a socket as standard input.

It forks executors, runners, and keepers of Spark JVMs. It has imported all their modules, and has no
credentials: these are in a descriptor that it passes on without reading it. One thread. It ends with its
worker; the processes that it forked continue, because each has its own session.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import nimbus.telemetry.logging  # noqa: F401 - first, because it imports structlog without rich
from nimbus.worker.attempt import connections
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.connect import client
from nimbus.worker.driver.child import imported_names
from nimbus.worker.host import forked
from nimbus.worker.host.identity import host_id
from nimbus.worker.host.procfs import ProcessId, start_ticks
from nimbus.worker.host.remains import EXECUTOR_VARIABLE, RUNNER_VARIABLE
from nimbus.worker.jvm import keeper
from nimbus.worker.jvm.loan import Loan
from nimbus.worker.pool import executor
from nimbus.worker.pool.folder import ExecutorFolder
from nimbus.worker.runner import run_and_exit
from nimbus.worker.settings import CONNECT_OPTION

_LONGEST_REQUEST = 64 << 10


def import_for_connect() -> None:
    """Import the modules of a driver in `mode: connect`."""
    import nimbus.worker.driver.sql_task  # noqa: F401 - imported for its time

    client.import_client()


def main() -> int:
    """Serve until the worker ends."""
    if not forked.make_room():
        sys.stderr.write("fork server: /proc does not show the room for what its children are\n")
        return 1
    signal.signal(signal.SIGCHLD, _collect)
    connections.import_clients()
    if CONNECT_OPTION in sys.argv:
        import_for_connect()
    imported_names()
    host_id()
    gc.collect()
    gc.freeze()  # else the first collection in a child would copy most of our memory
    worker = socket.socket(fileno=forked.take_standard_input())
    while True:
        message, descriptors, _, _ = socket.recv_fds(worker, _LONGEST_REQUEST, 2, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return 0
        answer = _forked(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(BrokenPipeError):  # the worker has ended: the next read returns EOF
            worker.send(json.dumps(answer).encode())


def _collect(*_signal: object) -> None:
    """Collect ended children; their exit status is not used."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _forked(request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
    folder = Path(request["folder"])
    match request["kind"]:
        case "executor":
            work = partial(_be_executor, ExecutorFolder(folder), request["tag"], *descriptors)
        case "keeper":
            work = partial(keeper.begin, folder, *descriptors)
        case "runner":
            loan = request.get("keeper")
            work = partial(_be_runner, AttemptFolder(folder), request["tag"], loan, *descriptors)
        case kind:
            raise ValueError(f"a request to fork {kind!r}, which is not known")
    try:
        pid = forked.fork(work)
    except OSError as exc:
        return {"error": f"fork: {exc.strerror}"}
    return {"pid": pid, "start_ticks": start_ticks(pid)}


def _be_runner(
    folder: AttemptFolder, tag: str, loan: list[Any] | None, startup: int, connection: int = -1
) -> int:
    """Run a runner in the forked child. `loan`: pid, start ticks and folder of the keeper that it gets."""
    _detach(*(fd for fd in (startup, connection) if fd >= 0))
    forked.show_as(
        "nimbus-runner", ("nimbus.worker.runner", str(folder.attempt)), _environment(RUNNER_VARIABLE, tag)
    )
    forked.write_to(folder.runner_log)
    if loan is None:
        return run_and_exit(folder, startup)
    pid, ticks, place = loan
    return run_and_exit(
        folder, startup, Loan(ProcessId(pid, ticks), Path(place), socket.socket(fileno=connection))
    )


def _be_executor(folder: ExecutorFolder, tag: str, startup: int, worker: int) -> int:
    _detach(startup, worker)
    forked.show_as(
        "nimbus-executor", ("nimbus.worker.pool", folder.path.name), _environment(EXECUTOR_VARIABLE, tag)
    )
    forked.write_to(folder.log)
    connection = socket.socket(fileno=worker)
    connection.setblocking(False)
    return executor.run_and_exit(folder, startup, connection)


def _detach(*kept: int) -> None:
    os.setsid()
    forked.keep_only(*kept)
    forked.reset_signals()


def _environment(variable: str, tag: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name not in forked.ROOM}, variable: tag}


if __name__ == "__main__":
    sys.exit(forked.run_program(main))
