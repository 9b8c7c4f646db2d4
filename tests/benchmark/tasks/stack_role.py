"""Runs a local stack of one revision: `python -m ...stack_role FOLDER`. Reads requests as JSON lines.

The first process only adopts orphans and reaps them, as init does, see `usage`. Its child starts the stack,
and answers the requests on its main thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from nimbus.localstack.daemons import BUCKET, StackTuning, scheduler_command, write_settings
from nimbus.localstack.stack import LocalStack
from tests.benchmark.engine.child import play

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_READY = timedelta(seconds=120)


class StackRole:
    """See the module."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._stack: LocalStack | None = None
        self._more: dict[str, dict[str, Any]] = {}

    def start(
        self, slots: int, schedulers: int, workers: int, settings: dict[str, dict[str, Any]]
    ) -> dict[str, Any]:
        """Start the stack. Returns the addresses of the schedulers, and the folder of the objects in S3.

        Args:
            settings: Added to the configuration of the schedulers.
        """
        self._more = settings
        tuning = StackTuning(slots=slots, attempt_patience=timedelta(seconds=2))
        stack = self._stack = LocalStack(
            self._folder, schedulers, workers=workers, tuning=tuning, command=self._command
        )
        stack.start()
        stack.wait_ready(_READY)
        return {"urls": stack.addresses.schedulers, "objects": str(stack.s3.objects / BUCKET)}

    def _command(self, config: Path) -> list[str]:
        document = yaml.safe_load(config.read_text())
        for section, values in self._more.items():
            document.setdefault(section, {}).update(values)
        write_settings(config, document)
        return scheduler_command(config)

    def publish(self, pipeline: str) -> None:
        """Publish a pipeline's folder and make it active."""
        stack = self._started()
        config, server = str(stack.config_file(1)), stack.addresses.schedulers[0]
        done = self._cli(
            "pipeline", "publish", pipeline, "--activate", "--config", config, "--server", server
        )
        if done.returncode != 0:
            raise RuntimeError(f"the pipeline cannot be published: {done.stderr}")

    def _cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nimbus.cli.main", *words],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def pids(self) -> dict[str, int]:
        """Pids of the running daemons, by name."""
        stack = self._started()
        return {daemon.name: daemon.pid for daemon in (*stack.schedulers, *stack.workers) if daemon.running}

    def kill(self, name: str) -> None:
        """End a daemon at once (SIGKILL), and start it again."""
        stack = self._started()
        daemon = next(each for each in (*stack.schedulers, *stack.workers) if each.name == name)
        daemon.kill()
        daemon.spawn()

    def await_ready(self) -> None:
        """Wait until all daemons are ready."""
        self._started().wait_ready(_READY)

    def close(self) -> None:
        """Stop it if it runs."""
        if self._stack is not None:
            self._stack.stop()

    def _started(self) -> LocalStack:
        assert self._stack is not None
        return self._stack


def main(folder: str) -> int:
    """Run the role in a child process, and adopt orphans in this process."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    role = os.fork()
    if role == 0:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return play(StackRole(folder))
    while True:
        pid, status = os.wait()
        if pid == role:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
