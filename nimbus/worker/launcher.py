"""Starts a runner so that it outlives its starter. Any thread may call it.

A worker does so when its fork server cannot be reached: see `fork_launcher`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from nimbus.domain.errors import NimbusError
from nimbus.worker import detach
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.environment import passed_on
from nimbus.worker.proc_area import ROOM
from nimbus.worker.procfs import ProcessId, start_ticks
from nimbus.worker.settings import RunnerStartup
from nimbus.worker.tags import RUNNER_VARIABLE, attempt_tag

_DETACH_DEADLINE_S = 30.0


class LaunchFailedError(NimbusError):
    """No runner could be started for an attempt."""

    code = "launch_failed"

    def __init__(self, folder: AttemptFolder, why: str) -> None:
        super().__init__(f"attempt {folder.attempt} cannot be started: {why}. See {folder.runner_log}.")


class Launcher(Protocol):
    """Starts runners."""

    def __call__(self, folder: AttemptFolder, startup: RunnerStartup) -> ProcessId | None:
        """Start one; return its process, or None if it has already ended.

        Raises:
            LaunchFailedError: it could not be started.
        """
        ...


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """A descriptor to read `content` from. Unlike a pipe it does not block us if the runner is slow."""
    with os.fdopen(os.memfd_create("startup"), "r+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def launch(
    folder: AttemptFolder, startup: RunnerStartup, *, environment: Mapping[str, str] | None = None
) -> ProcessId | None:
    """See `Launcher`. The runner is a detached grandchild in its own session, without a terminal.

    Args:
        folder: It must contain the order.
        startup: Passed by a file in memory, so that secrets are not on disk, in argv or in the environment.
        environment: Default: that of this process.
    """
    own = passed_on(os.environ if environment is None else environment)
    try:
        with memory_file(startup.encode()) as stdin:
            done = subprocess.run(
                [
                    sys.executable, "-I", "-S", detach.__file__, str(folder.runner_log),
                    sys.executable, "-I", "-u", "-m", "nimbus.worker.runner", str(folder.path),
                ],
                stdin=stdin,
                capture_output=True,
                env={**own, **ROOM, RUNNER_VARIABLE: attempt_tag(startup.plan.cluster, str(folder.attempt))},
                timeout=_DETACH_DEADLINE_S,
                check=False,
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LaunchFailedError(folder, str(exc)) from exc
    if done.returncode != 0:
        raise LaunchFailedError(folder, done.stderr.decode(errors="replace").strip()[-300:])
    pid = int(done.stdout)
    ticks = start_ticks(pid)
    return ProcessId(pid, ticks) if ticks is not None else None
