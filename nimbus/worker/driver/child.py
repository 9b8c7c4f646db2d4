"""Turns a forked child into a driver: own process group, folder, log, environment, perhaps interpreter.

Used by the two kinds of processes that fork drivers: a runner, for its one driver, and the zygote of an
executor. Neither has read a secret when it forks.

A fork has the imported modules of its parent, and Python does not search for an imported module again. So a
release that may contain another version of such a module needs its own interpreter. So do variables that are
only read when a program starts.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Collection, Iterable, Mapping, Set
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

from nimbus.worker.attempt.limits import impose
from nimbus.worker.driver import main
from nimbus.worker.driver.main import DriverPlan
from nimbus.worker.driver.program_end import run_fork
from nimbus.worker.host import forked
from nimbus.worker.host.task_user import TaskUser

PROGRAM: tuple[str, ...] = (sys.executable, "-I", "-u", "-m", "nimbus.worker.driver")
"""Isolated: no file of the release can be imported before go. Unbuffered: its log can be followed."""
_START = """
import glob, os, sys
bundle, *arguments = sys.argv[1:]
home = os.environ.get("SPARK_HOME", "")
sys.path += [home + "/python", *glob.glob(home + "/python/lib/*.zip")] if home else []
sys.path.insert(0, bundle)
from nimbus.worker.driver.main import main
sys.path.remove(bundle)
sys.path.append(bundle)
main(arguments)
"""
"""The same with another interpreter, which imports our modules from an archive, after its own packages."""
_READ_AT_START = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OPENSSL_")
"""Prefixes of variables of the loader, libc and OpenSSL."""
_READ_BY_LIBRARIES = ("ARROW_", "GRPC_", "MKL_", "OMP_", "OPENBLAS_")
"""Prefixes of variables that numpy, pyarrow and grpc read when they are imported."""


def be_driver(
    folder: Path,
    plan: DriverPlan,
    environment: Mapping[str, str],
    *,
    parent: int,
    fault: int,
    execute: bool,
    output: int | None = None,
    hidden: Collection[str] = (),
    waits_on: int | None = None,
    gateway: int | None = None,
) -> NoReturn:
    """Run the driver in the forked child, like a new program of the plan's user.

    Args:
        folder: The attempt's folder.
        plan: The driver's plan.
        environment: The driver's complete environment.
        parent: The process that forked this one; the kernel ends this process when the parent ends.
        fault: Descriptor for the reason why it cannot begin; closed without one when it has begun.
        execute: The driver gets its own interpreter.
        output: Descriptor for its output; None: its log.
        hidden: Variables that /proc does not show, except to the same user if it has its own interpreter.
        waits_on: See `nimbus.worker.driver.main.run`.
        gateway: See `nimbus.worker.driver.main.run`.
    """
    try:
        _prepare(folder, plan, environment, parent, execute=execute, output=output, hidden=hidden)
        if execute:  # `fault` is closed at exec
            _execute(folder, plan, environment, waits_on, gateway)
        os.close(fault)
    except OSError as exc:
        os.write(fault, str(exc).encode(errors="replace")[: select.PIPE_BUF])
        os._exit(main.EXIT_NOT_STARTED)
    run_fork(partial(main.run, folder, plan, waits_on, gateway))


def _prepare(
    folder: Path,
    plan: DriverPlan,
    environment: Mapping[str, str],
    parent: int,
    *,
    execute: bool,
    output: int | None,
    hidden: Collection[str],
) -> None:
    os.setpgid(0, 0)
    forked.reset_signals()
    if output is None:
        forked.write_to(folder / "log")
    else:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
    if not execute:
        forked.show_as("nimbus-driver", ("nimbus.worker.driver", folder.name), environment, hidden)
        forked.reset_modules()
    if plan.user is not None:
        user = TaskUser(**plan.user)
        user.become()
        _refuse_unreadable(user, folder, plan)
    impose(plan.limits["open_files"], None if plan.has_jvm else plan.limits["memory_bytes"])
    os.chdir(f"{folder}/work/tmp")  # as that user: a link cannot lead out
    if not forked.die_with(parent):
        os._exit(main.EXIT_NOT_STARTED)


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


def _execute(
    folder: Path,
    plan: DriverPlan,
    environment: Mapping[str, str],
    waits_on: int | None,
    gateway: int | None,
) -> NoReturn:
    arguments = [str(folder)]
    for fd in (waits_on, gateway):
        if fd is not None:
            os.set_inheritable(fd, True)
            arguments.append(str(fd))
    program = PROGRAM
    if plan.interpreter:
        program = (plan.interpreter, "-I", "-u", "-c", _START, plan.bundle)
    os.execve(program[0], [*program, *arguments], environment)  # noqa: S606 - no shell


def why_own_interpreter(
    plan: DriverPlan, environment: Mapping[str, str], parent: Mapping[str, str], imported: Set[str]
) -> str | None:
    """Why a driver cannot be a fork of a process with this environment and `imported_names`; None: it can."""
    if plan.interpreter:
        return f"its environment has {plan.interpreter}"
    if plan.is_program:  # it is executed in any case
        return None
    if plan.starts_spark:
        return f"the task is of kind {plan.kind}"
    if plan.wheels:
        return "the task has wheels"
    has_libraries = not imported.isdisjoint(("numpy", "pyarrow", "grpc"))
    read_at_start = _READ_AT_START + (_READ_BY_LIBRARIES if has_libraries else ())
    for name in (*environment, *parent):
        if name.startswith(read_at_start) and environment.get(name) != parent.get(name):
            return f"{name} counts when a program starts"
    if beaten := already_imported(import_folders(plan, environment), imported):
        return f"{beaten} has the name of a module that is imported"
    return None


@cache
def imported_names() -> frozenset[str]:
    """Names of imported top-level modules. A fork server calls it before it forks."""
    return frozenset(name.partition(".")[0] for name in sys.modules)


def import_folders(plan: DriverPlan, environment: Mapping[str, str]) -> list[str]:
    """Folders in which a driver searches modules before the installed packages."""
    inherited = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    return [str(plan.script_path.parent), *plan.import_folders(), *inherited]


def already_imported(folders: Iterable[str], imported: Set[str]) -> str | None:
    """A module in `folders` with the name of an imported module; None if there is none."""
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.partition(".")[0] in imported:
                        return entry.path
        except FileNotFoundError:
            continue
        except OSError:  # for example a zip archive
            return folder
    return None
