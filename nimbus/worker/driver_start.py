"""Turns a forked child into a driver: own process group, folder, log, environment, and interpreter if needed.

Used by the two kinds of processes that fork drivers: a runner, for its one driver, and the zygote of an
executor.
Neither has read a secret when it forks.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from nimbus.worker import driver, forked
from nimbus.worker.driver import DriverPlan
from nimbus.worker.limits import impose
from nimbus.worker.proc_area import show_as
from nimbus.worker.program_end import run_fork
from nimbus.worker.task_user import TaskUser

PROGRAM: tuple[str, ...] = (sys.executable, "-I", "-u", "-m", "nimbus.worker.driver")
"""Isolated: no file of the release can be imported before go. Unbuffered: its log can be followed."""
_START = """
import glob, os, sys
bundle, *arguments = sys.argv[1:]
home = os.environ.get("SPARK_HOME", "")
sys.path += [home + "/python", *glob.glob(home + "/python/lib/*.zip")] if home else []
sys.path.insert(0, bundle)
from nimbus.worker.driver import main
sys.path.remove(bundle)
sys.path.append(bundle)
main(arguments)
"""
"""The same with another interpreter, which imports our modules from an archive, after its own packages."""


def prepare(
    folder: Path,
    plan: DriverPlan,
    environment: Mapping[str, str],
    parent: int,
    *,
    execute: bool,
    output: int | None = None,
    hidden: Collection[str] = (),
) -> None:
    """Set up this process like a new program of the plan's user; exit if its parent is dead.

    Args:
        folder: The attempt's folder.
        plan: The driver's plan.
        environment: The driver's complete environment.
        parent: The process that forked this one; the kernel ends this process when the parent ends.
        execute: The driver gets its own interpreter.
        output: Descriptor for its output; None: its log.
        hidden: Variables that /proc does not show, except to the same user if it has its own interpreter.

    Raises:
        OSError: a folder or the log cannot be used, or its user cannot read a needed file.
    """
    os.setpgid(0, 0)
    forked.reset_signals()
    if output is None:
        forked.write_to(folder / "log")
    else:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
    if not execute:
        show_as("nimbus-driver", ("nimbus.worker.driver", folder.name), environment, hidden)
        forked.reset_modules()
    if plan.user is not None:
        user = TaskUser(**plan.user)
        user.become()
        _refuse_unreadable(user, folder, plan)
    impose(plan.limits["open_files"], None if plan.has_jvm else plan.limits["memory_bytes"])
    os.chdir(f"{folder}/work/tmp")  # as that user: a link cannot lead out
    if not forked.die_with(parent):
        os._exit(driver.EXIT_NOT_STARTED)


def _refuse_unreadable(user: TaskUser, folder: Path, plan: DriverPlan) -> None:
    """Raise with the path that the user cannot read. The interpreter would only print a traceback."""
    ours = [
        plan.interpreter or sys.executable,
        os.__file__,
        __file__,
        str(folder / "context.json"),
        str(folder / "work"),
    ]
    script = [] if plan.is_host_program else [str(plan.script_path)]
    for needed in (*ours, *script, *plan.wheels):
        path = Path(os.path.realpath(needed))
        for place in (*reversed(path.parents), path):
            if not os.access(place, os.R_OK if place == path else os.X_OK):
                why = f"user {user.name}, as whom it runs, may not read {path}: no right to"
                raise PermissionError(errno.EACCES, why, str(place))


def run(
    folder: Path,
    plan: DriverPlan,
    environment: Mapping[str, str],
    *,
    execute: bool,
    waits_on: int | None = None,
    gateway: int | None = None,
) -> NoReturn:
    """Run the driver.

    Args:
        folder: The attempt's folder.
        plan: The driver's plan.
        environment: The driver's complete environment.
        execute: Use a new interpreter.
        waits_on: Descriptor from which it reads go; None: do not wait.
        gateway: Descriptor from which it reads the gateway of a kept JVM; None: Spark starts one.

    Raises:
        OSError: the interpreter cannot be started.
    """
    if not execute:
        run_fork(partial(driver.run, folder, plan, waits_on, gateway))
    arguments = [str(folder)]
    for fd in (waits_on, gateway):
        if fd is not None:
            os.set_inheritable(fd, True)
            arguments.append(str(fd))
    program = PROGRAM
    if plan.interpreter:
        program = (plan.interpreter, "-I", "-u", "-c", _START, plan.bundle)
    os.execve(program[0], [*program, *arguments], environment)  # noqa: S606 - no shell
