"""When a driver is started as a program of its own, and when a fork of its runner will do.

A fork has the modules of its parent, and a module that is imported is not looked for again. So whatever a
release could bring in its place asks for an interpreter of its own; and so does what only a start reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Set
from functools import cache

from nimbus.worker.driver import DriverPlan

_READ_AT_START = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OPENSSL_")
"""Variables of the loader, of libc and of OpenSSL, by the beginning of their names."""
_READ_BY_CONNECT = ("ARROW_", "GRPC_", "MKL_", "OMP_", "OPENBLAS_")
"""Likewise, of what a client of Spark Connect imports."""


def why_own_interpreter(plan: DriverPlan, environment: Mapping[str, str]) -> str | None:
    """Say why a driver cannot be a fork of this process; None: it can.

    Args:
        plan: Of the driver.
        environment: That it is to have.
    """
    if plan.is_program:  # of which none of this is true: it is another one
        return None
    if plan.starts_spark:
        return f"the task is of kind {plan.kind}"
    if plan.wheels:
        return "the release has wheels"
    read_at_start = _READ_AT_START + (_READ_BY_CONNECT if plan.connect else ())
    if changed := _changed(environment, read_at_start):
        return f"{changed} counts when a program starts"
    if beaten := already_imported(import_folders(plan, environment), imported_names()):
        return f"{beaten} has the name of a module that is imported"
    return None


def counts_at_start(variable: str) -> bool:
    """Whether a program reads a variable when it is started, and not again."""
    return variable.startswith(_READ_AT_START)


@cache
def imported_names() -> frozenset[str]:
    """Names of imported modules, without those within packages. A fork server asks before it forks."""
    return frozenset(name.partition(".")[0] for name in sys.modules)


def _changed(environment: Mapping[str, str], beginnings: tuple[str, ...]) -> str | None:
    for name in (*environment, *os.environ):
        if name.startswith(beginnings) and environment.get(name) != os.environ.get(name):
            return name
    return None


def import_folders(plan: DriverPlan, environment: Mapping[str, str]) -> list[str]:
    """Where a driver looks for modules before it looks among the installed packages."""
    inherited = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    return [str(plan.script_path.parent), *plan.import_folders(), *inherited]


def already_imported(folders: Iterable[str], imported: Set[str]) -> str | None:
    """What can be imported from `folders` under one of the names of modules that are imported."""
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.partition(".")[0] in imported:
                        return entry.path
        except FileNotFoundError:
            continue
        except OSError:  # such as an archive, from which Python can import
            return folder
    return None
