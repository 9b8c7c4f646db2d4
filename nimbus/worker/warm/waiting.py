"""A warm driver until it has an attempt: starts Spark, and waits. Main thread.

It sends `r` on its descriptor when it is ready, then receives a line with the folder and the environment of
its attempt. It sends `b` when it is bound to the attempt, and continues like any driver: it waits for go. On
EOF, or if the attempt does not fit, it exits with 75.
"""

from __future__ import annotations

import json
import os
import select
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from nimbus.worker import driver
from nimbus.worker.own_interpreter import already_imported, import_folders
from nimbus.worker.proc_area import ROOM, show_as
from nimbus.worker.warm.jvm import WaitingJvm
from nimbus.worker.warm.plan import WarmPlan


def wait_and_run(arguments: Sequence[str], of_a_cold_one: Set[str]) -> None:
    """Warm up, wait, run the attempt.

    Args:
        arguments: Folder and descriptor.
        of_a_cold_one: Modules that a cold driver imports before user code.
    """
    place, channel = Path(arguments[0]), int(arguments[1])
    for name in ROOM:  # the memory stays reserved; child processes do not need it
        os.environ.pop(name, None)
    plan = WarmPlan.decode((place / "warm.json").read_bytes())
    conf = {**driver.settings_of(place, plan), "spark.eventLog.enabled": "false"}  # it runs no task yet
    driver.set_submit_arguments(plan.master, conf)
    jvm = WaitingJvm(conf, place / "work" / "tmp")
    only_ours = frozenset(name.partition(".")[0] for name in sys.modules.keys() - of_a_cold_one)
    os.write(channel, b"r")
    message = _next_line(channel, jvm.pid)
    if message is None:
        os._exit(driver.EXIT_NOT_STARTED)
    folder = Path(message["folder"])
    _become(folder, message["environment"])
    attempt = driver.read_plan(folder)
    if beaten := already_imported(import_folders(attempt, os.environ), only_ours):
        sys.stderr.write(f"{beaten} has the name of a module that a warm driver has imported\n")
        os._exit(driver.EXIT_NOT_STARTED)
    conf = driver.settings_of(folder, attempt)
    driver.set_submit_arguments(attempt.master, conf)
    jvm.give(conf, folder / "work" / "tmp")
    os.write(channel, b"b")
    driver.end_with(driver.run(folder, attempt, channel))


def _next_line(channel: int, jvm: int) -> dict[str, Any] | None:
    """Wait for a line; None on EOF, or if the JVM has ended."""
    ended = os.pidfd_open(jvm)
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(ended, select.POLLIN)
    line = b""
    while not line.endswith(b"\n"):
        heard = {fd for fd, _ in poll.poll()}
        byte = os.read(channel, 1) if ended not in heard else b""  # one byte: the bytes after the line are go
        if not byte:
            return None
        line += byte
    os.close(ended)
    return dict(json.loads(line))


def _become(folder: Path, environment: Mapping[str, str]) -> None:
    show_as("nimbus-driver", ("nimbus.worker.driver", folder.name), environment)
    tempfile.tempdir = None
    time.tzset()
