"""A runner's handle of its driver: start, "go", SIGTERM, kill with all descendants. One thread at a time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import NoReturn

import structlog

from nimbus.domain.attempts.workers import Assignment
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.secret_mask import MaskedLog
from nimbus.worker.driver.child import be_driver, imported_names, why_own_interpreter
from nimbus.worker.driver.environment import settings_of
from nimbus.worker.driver.files import attempt_environment, write_plan
from nimbus.worker.driver.main import DriverPlan
from nimbus.worker.host import forked, procfs, usage
from nimbus.worker.jvm.loan import Loan
from nimbus.worker.jvm.plan import OWN, jvm_plan, why_not
from nimbus.worker.settings import RunnerPlan

_COLLECT_DEADLINE_S = 2.0
_POLL_S = 0.005

_log = structlog.get_logger("nimbus.worker.runner")


class DriverProcess:
    """One driver process and its descendants."""

    _masked: MaskedLog | None = None
    """Set for a task with secrets."""
    used: usage.Usage | None = None
    """After `end_all`: what all its processes used; None: not known, because its kept JVM has died."""

    def __init__(
        self, folder: AttemptFolder, plan: RunnerPlan, order: Assignment, loan: Loan | None = None
    ) -> None:
        """Fork it; it prepares and waits for `go` before it loads the task's code.

        The runner has one thread at that time. `loan`: the JVM for its Spark; None: it starts one.
        """
        self._folder, self._loan = folder, loan
        self.jvm = self._which_jvm(plan, order)
        """Which JVM its Spark has, as text; complete after `end_all`."""
        driver_plan = write_plan(folder, plan, order)
        folder.log.touch()
        environment = attempt_environment(folder, plan)
        why: str | None = "there is no room in /proc"
        if forked.make_room():
            why = why_own_interpreter(driver_plan, environment, os.environ, imported_names())
        if why is not None:
            _log.info("driver_gets_own_interpreter", attempt=str(folder.attempt), because=why)
        waits_on, self._go_fd = os.pipe2(os.O_CLOEXEC)
        self._fault_fd, fault = os.pipe2(os.O_CLOEXEC)
        printed, output = os.pipe2(os.O_CLOEXEC) if plan.secrets else (None, None)
        gateway = None if loan is None else self._borrow(loan, driver_plan, environment, plan, order, output)
        work = partial(
            be_driver,
            folder.path,
            driver_plan,
            environment,
            parent=os.getpid(),
            fault=fault,
            execute=why is not None,
            output=output,
            hidden=tuple(plan.secrets),
            waits_on=waits_on,
            gateway=gateway,
        )
        passed = [fd for fd in (waits_on, fault, output, gateway) if fd is not None]
        pid = forked.fork(partial(_be_driver, work, passed))
        for fd in passed:
            os.close(fd)
        if printed is not None:
            self._masked = MaskedLog(printed, folder.log, plan.secrets.values())
        self._watch(pid)

    def _which_jvm(self, plan: RunnerPlan, order: Assignment) -> str:
        made = jvm_plan(plan, order)
        if made is None:
            return ""
        if self._loan is not None:
            return "new"
        return f"{OWN}{why_not(made, plan, order) or 'the worker keeps none'}"

    def _borrow(
        self,
        loan: Loan,
        driver_plan: DriverPlan,
        environment: Mapping[str, str],
        plan: RunnerPlan,
        order: Assignment,
        output: int | None,
    ) -> int | None:
        """Give the JVM what it needs of the attempt; return where the driver reads its gateway."""
        of_jvm = {**plan.environment, **plan.secrets}
        own = {name: value for name, value in environment.items() if of_jvm.get(name) != value}
        own.pop("SPARK_LOCAL_DIRS", None)
        log = (
            os.open(self._folder.log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC) if output is None else output
        )
        try:
            return loan.lend(self._folder, settings_of(self._folder.path, driver_plan), own, log)
        except OSError as exc:
            _log.warning("jvm_not_lent", attempt=str(self._folder.attempt), error=str(exc))
            loan.end(clean=False)
            self._loan, self.jvm = None, f"{OWN}the keeper of the kept one had ended"
            self._folder.create(order)
            return None
        finally:
            if output is None:
                os.close(log)

    def processes(self) -> list[int]:
        """Pids of all processes of the attempt but the runner."""
        return [*procfs.below(os.getpid()), *([] if self._loan is None else self._loan.processes())]

    def _watch(self, pid: int) -> None:
        with suppress(OSError):  # the child does it, too; the first wins. EACCES: it has executed
            os.setpgid(pid, pid)
        ticks = procfs.start_ticks(pid)
        if ticks is None:  # we have not collected it, so it is there
            raise ProcessLookupError(f"/proc does not show the driver {pid}")
        self.id = procfs.ProcessId(pid, ticks)
        self.handle = os.pidfd_open(pid)
        self.exit_status: int | None = None
        """As of `Popen.returncode`: negative for a signal. None while it runs."""

    def fault(self) -> str:
        """Why it could not begin; empty if it has begun. Call it once; takes milliseconds at most."""
        with os.fdopen(self._fault_fd, "rb") as pipe:
            return pipe.read().decode(errors="replace")

    def go(self) -> None:
        """Let it run the task's code. If it has already ended, its exit status shows it."""
        with suppress(BrokenPipeError):
            os.write(self._go_fd, b"g")
        self._close_go()

    def _close_go(self) -> None:
        if self._go_fd >= 0:
            os.close(self._go_fd)
            self._go_fd = -1

    def signal(self, number: int) -> None:
        """Signal it and its process group."""
        if self.exit_status is None:  # not collected, so the group's number is still its own
            procfs.signal_child(self.id.pid, number)

    def collect(self) -> bool:
        """Collect the driver, if it has ended, and orphans of its; return True if children are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.id.pid:
                self.exit_status = os.waitstatus_to_exitcode(status)

    def end_all(self) -> bool:
        """Kill the driver and all its descendants, which are below us because we adopt orphans.

        Never by the attempt's tag: a runner whose claim was refused would kill the winner's driver. False: a
        process could not be killed within ten seconds (uninterruptible sleep).
        """
        self._close_go()
        self.signal(signal.SIGKILL)
        ended = procfs.kill_all(self._remains)
        until = time.monotonic() + _COLLECT_DEADLINE_S
        while self.collect() and time.monotonic() < until:
            time.sleep(_POLL_S)  # a killed JVM frees its memory: what it used counts when it is collected
        self.used = usage.of_children()
        if self._loan is not None:
            of_jvm = self._loan.used()
            self.used = None if of_jvm is None else self.used.plus(of_jvm)
            good = ended and self.exit_status == 0 and self._folder.came_to_its_end()
            why = self._loan.end(clean=good)
            self.jvm = self._folder.jvm() or "new"
            if why and not self.jvm.startswith(OWN):
                self.jvm += f"; not kept: {why}"
        if self._masked is not None:
            self._masked.finish(procfs.KILL_DEADLINE_S)
        return ended

    def _remains(self) -> list[procfs.ProcessId]:
        if not self.collect():  # descendants become our children when their parents end
            return []
        own = os.getpid()
        below = procfs.descendants(own)
        return [
            process.id
            for process in procfs.living()
            if process.id.pid != own and (process.id.pid in below or process.session == own)
        ]


def _be_driver(work: Callable[[], NoReturn], passed: Collection[int]) -> int:
    forked.keep_only(*passed)
    work()
