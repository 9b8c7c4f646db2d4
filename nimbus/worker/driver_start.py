"""What a forked child does until it is a driver: its own group, folder, log, environment, perhaps program.

Both who fork drivers use it: a runner for its one driver, and the zygote of an executor. Neither has read any
secret when it forks.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from nimbus.domain.pipeline import Limits
from nimbus.worker import driver, forked
from nimbus.worker.driver import DriverPlan
from nimbus.worker.limits import impose
from nimbus.worker.proc_area import show_as
from nimbus.worker.program_end import run_to_end
from nimbus.worker.task_user import TaskUser

PROGRAM = (sys.executable, "-I", "-u", "-m", "nimbus.worker.driver")
"""Isolated: no file of the release can be imported before go. Unbuffered: its log can be followed."""


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
    """Be as a program that was started, by the plan's user; ends this process if its parent is dead.

    Args:
        folder: Of the attempt.
        plan: Of the driver.
        environment: Of the driver, all of it.
        parent: Who forked this process; the kernel ends it when that ends.
        execute: The driver gets an interpreter of its own.
        output: Where it writes to; None: into its log.
        hidden: Variables that /proc does not show; those of an interpreter of its own are shown to its user.

    Raises:
        OSError: a folder or the log is not to be used, or its user cannot read what it needs.
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
    impose(Limits(**plan.limits), uses_spark=plan.has_jvm)
    os.chdir(folder / "work" / "tmp")  # as that user: no link leads it where the user may not go
    if not forked.die_with(parent):
        os._exit(driver.EXIT_NOT_STARTED)


def _refuse_unreadable(user: TaskUser, folder: Path, plan: DriverPlan) -> None:
    """Say what the user cannot read. Of an interpreter that misses a module, only a traceback would."""
    ours = [sys.executable, os.__file__, __file__, str(folder / "context.json"), str(folder / "work")]
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
) -> NoReturn:
    """Run the driver.

    Args:
        folder: Of the attempt.
        plan: Of the driver.
        environment: Of the driver, all of it.
        execute: In an interpreter of its own.
        waits_on: Descriptor from which it reads go; None: it may go.

    Raises:
        OSError: the interpreter cannot be started.
    """
    if not execute:
        run_to_end(partial(driver.run, folder, plan, waits_on))
    arguments = [str(folder)]
    if waits_on is not None:
        os.set_inheritable(waits_on, True)
        arguments.append(str(waits_on))
    os.execve(PROGRAM[0], [*PROGRAM, *arguments], environment)  # noqa: S606 - no shell
