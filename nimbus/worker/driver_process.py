"""The driver as its runner sees it: start, let go, ask to end, kill with all it left. Main thread."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from nimbus.domain.workers import Assignment
from nimbus.worker import procfs
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.driver import EXIT_NOT_STARTED
from nimbus.worker.files import write_atomic
from nimbus.worker.procfs import ProcessId
from nimbus.worker.settings import ATTEMPT_VARIABLE, RunnerPlan, attempt_tag

_DRIVER = (sys.executable, "-I", "-u", "-m", "nimbus.worker.driver")
"""Isolated: no file of the release can be imported before go. Unbuffered: its log can be followed."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_DEADLINE_S = 10.0
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make what the driver leaves behind our children: so nothing below a runner can slip away from it."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class DriverProcess:
    """One driver process, from start to the last of its children."""

    def __init__(self, folder: AttemptFolder, plan: RunnerPlan, order: Assignment) -> None:
        """Start it; it prepares itself and waits for `go` before it touches the task's code."""
        self._folder = folder
        self._write_plan(plan, order)
        runner = os.getpid()
        waits_on, self._go_fd = os.pipe2(os.O_CLOEXEC)

        def tie_to_runner() -> None:  # pragma: no cover - between fork and exec
            # Safe here: the runner has one thread when it starts its driver.
            os.setpgid(0, 0)
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != runner:
                os._exit(EXIT_NOT_STARTED)

        try:
            with folder.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*_DRIVER, str(folder.path), str(waits_on)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder.scratch,
                    env=self._environment(plan),
                    pass_fds=(waits_on,),
                    preexec_fn=tie_to_runner,  # noqa: PLW1509 - see there
                )
        finally:
            os.close(waits_on)
        ticks = procfs.start_ticks(self._process.pid)
        if ticks is None:  # we have not reaped it, so it is there
            raise ProcessLookupError(f"/proc does not show the driver {self._process.pid}")
        self.id = ProcessId(self._process.pid, ticks)
        self.handle = os.pidfd_open(self.id.pid)
        self.exit_status: int | None = None
        """As of `Popen.returncode`: negative for a signal. None while it runs."""

    def _write_plan(self, plan: RunnerPlan, order: Assignment) -> None:
        document = {
            "kind": order.task.kind.value,
            "script": order.task.script,
            "args": list(order.task.args),
            "release_root": str(plan.release_root),
            "python_path": list(order.python_path),
            "wheels": [str(path) for path in plan.wheels],
            "master": plan.master,
            "worker_conf": dict(plan.spark_conf),
            "task_conf": dict(order.task.spark_conf),
        }
        context = {
            "schema": 1,
            "pipeline": order.pipeline,
            "release": order.release,
            "run_id": order.run,
            "task": order.task.name,
            "attempt": self._folder.attempt.number,
            "logical_date": order.logical_date.isoformat(),
            "parameters": dict(order.parameters),
            "inputs": {task: str(plan.data_dir / place) for task, place in order.inputs.items()},
            "output": str(plan.data_dir / order.output),
            "release_root": str(plan.release_root),
        }
        write_atomic(self._folder.driver_file, json.dumps(document).encode())
        write_atomic(self._folder.context_file, json.dumps(context).encode())

    def _environment(self, plan: RunnerPlan) -> dict[str, str]:
        folder = self._folder
        return {
            **plan.environment,
            ATTEMPT_VARIABLE: attempt_tag(plan.cluster, str(folder.attempt)),
            "NIMBUS_CONTEXT": str(folder.context_file),
            "TMPDIR": str(folder.scratch),
            "SPARK_LOCAL_DIRS": str(folder.spark_local),
        }

    def go(self) -> None:
        """Let it run the task's code. A driver that has ended meanwhile is found by its handle."""
        with suppress(BrokenPipeError):
            os.write(self._go_fd, b"g")
        self._close_go()

    def _close_go(self) -> None:
        if self._go_fd >= 0:
            os.close(self._go_fd)
            self._go_fd = -1

    def ask_to_end(self) -> None:
        """SIGTERM to its process group."""
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to its process group."""
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        if self.exit_status is None:  # not reaped, so the group's number is still its own
            with suppress(ProcessLookupError):
                os.killpg(self.id.pid, number)

    def reap(self) -> None:
        """Take the exit status of the driver, if it has ended, and of orphans that became our children."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.id.pid:
                self.exit_status = self._process.returncode = os.waitstatus_to_exitcode(status)

    def end_all(self) -> bool:
        """Kill the driver and everything it left: all of it is below us, since we adopt orphans.

        Never by the attempt's tag: a runner whose claim was refused would kill the winner's driver.

        Returns:
            False when something could not be killed within ten seconds (a process in uninterruptible sleep).
        """
        self._close_go()
        self.kill()
        return procfs.kill_all(self._remains, deadline_s=_KILL_DEADLINE_S)

    def _remains(self) -> list[ProcessId]:
        self.reap()
        own = os.getpid()
        below = procfs.descendants(own)
        return [
            found.id
            for found in procfs.living()
            if found.id.pid != own and (found.id.pid in below or found.session == own)
        ]
