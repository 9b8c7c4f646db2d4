"""Decides whether a driver needs its own interpreter, or can be a fork of its runner.

A fork has the imported modules of its parent, and Python does not search for an imported module again. So a
release that may contain another version of such a module needs its own interpreter. So do variables that are
only read when a program starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Set
from functools import cache

from nimbus.worker.driver import DriverPlan

_READ_AT_START = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OPENSSL_")
"""Prefixes of variables of the loader, libc and OpenSSL."""
_READ_BY_LIBRARIES = ("ARROW_", "GRPC_", "MKL_", "OMP_", "OPENBLAS_")
"""Prefixes of variables that numpy, pyarrow and grpc read when they are imported."""


def why_own_interpreter(
    plan: DriverPlan, environment: Mapping[str, str], parent: Mapping[str, str], imported: Set[str]
) -> str | None:
    """Why a driver cannot be a fork of a process; None: it can.

    `parent` and `imported`: the environment and the `imported_names` of the process.
    """
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
