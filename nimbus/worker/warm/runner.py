"""A runner that waits for an attempt, with a warm driver. A worker's fork server forks it.

It waits on a socket of its worker. When the socket is closed, because the worker ends or does not need it, it
ends with all its processes. It sends `ready` when its driver is ready. It answers a request to run an
attempt, which contains the startup, after it has taken the attempt's lock. From then on it is an ordinary
runner, and outlives its worker. Before that it has no credentials. Thread: main.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from nimbus.domain.workers import Assignment
from nimbus.worker import forked
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.driver_process import DriverProcess
from nimbus.worker.proc_area import ROOM, show_as
from nimbus.worker.process_log import configure_log, leave
from nimbus.worker.runner import run_locked, take_lock
from nimbus.worker.settings import RunnerPlan
from nimbus.worker.tags import RUNNER_VARIABLE
from nimbus.worker.warm.plan import WarmPlan
from nimbus.worker.warm.process import DRIVER, WarmDriver

LONGEST_MESSAGE = 64 << 10
"""Largest message in bytes: paths and a tag. Larger data are passed in a descriptor."""
READY, TAKEN, REFUSED = b"ready", b"taken", b"refused"

_log = structlog.get_logger("nimbus.worker.runner")


def begin(place: Path, control: int, command: Sequence[str]) -> int:
    """Run a waiting runner, in the forked child of a fork server."""
    os.setsid()
    forked.keep_only(control)
    forked.reset_signals()
    passed_on = {name: value for name, value in os.environ.items() if name not in ROOM}
    show_as("nimbus-warm", ("nimbus.worker.warm.runner", place.name), passed_on)
    forked.write_to(place / "runner.log")
    configure_log()
    forked.adopt_orphans()
    with socket.socket(fileno=control) as worker:
        _, descriptors, _, _ = socket.recv_fds(worker, LONGEST_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            shutil.rmtree(place, ignore_errors=True)
            return 0
        with os.fdopen(descriptors[0], "rb") as file:
            plan = WarmPlan.decode(file.read())
        driver = WarmDriver(place, plan, tuple(command) or DRIVER)
        taken = _wait(worker, driver)
    status = _run(*taken, driver) if taken is not None else 0
    driver.end_all()
    driver.forget()
    return leave(status)


def _wait(worker: socket.socket, driver: WarmDriver) -> tuple[AttemptFolder, int] | None:
    """Wait for an attempt; return its locked folder and its startup; None: the socket was closed."""
    poll = select.poll()
    for fd in (worker.fileno(), driver.handle, driver.channel):
        poll.register(fd, select.POLLIN)
    while True:
        heard = {fd for fd, _ in poll.poll()}
        if driver.handle in heard or (driver.channel in heard and not driver.is_ready()):
            with suppress(OSError):
                worker.send(driver.last_words())
            return None
        if driver.channel in heard:
            poll.unregister(driver.channel)
            worker.send(READY)
        if worker.fileno() in heard:
            return _taken(worker)


def _taken(worker: socket.socket) -> tuple[AttemptFolder, int] | None:
    message, descriptors, _, _ = socket.recv_fds(worker, LONGEST_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
    if not message:
        return None
    request = json.loads(message)
    folder = AttemptFolder(Path(request["folder"]))
    # As for a forked runner: its tag must be visible before it has the lock.
    show_as(
        "nimbus-runner",
        ("nimbus.worker.runner", str(folder.attempt)),
        {**os.environ, RUNNER_VARIABLE: request["tag"]},
    )
    if take_lock(folder) is None:
        with suppress(OSError):
            worker.send(REFUSED)
        return None
    forked.write_to(folder.runner_log)
    with suppress(OSError):  # the worker has died; the attempt runs nevertheless
        worker.send(TAKEN)
    return folder, descriptors[0]


def _run(folder: AttemptFolder, startup: int, driver: WarmDriver) -> int:
    return run_locked(folder, startup, partial(_bound, driver))


def _bound(warm: WarmDriver, folder: AttemptFolder, plan: RunnerPlan, order: Assignment) -> DriverProcess:
    """The warm driver; if it has died or does not fit, a cold driver in a clean folder."""
    if warm.bind(folder, plan, order):
        _log.info("driver_was_warm", attempt=str(folder.attempt))
        return warm
    _log.warning("warm_driver_failed", attempt=str(folder.attempt))
    warm.end_all()
    folder.empty_scratch()
    folder.log.unlink(missing_ok=True)
    folder.create(order)
    return DriverProcess(folder, plan, order)
