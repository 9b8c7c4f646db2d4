"""When a driver is started as a program of its own, and when a fork of its runner will do.

A fork has the runner's modules, and a module that is imported is not looked for again. So whatever a release
could bring in its place asks for an interpreter of its own; and so does what only a start reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Set
from functools import cache
from pathlib import Path

from nimbus.domain.pipeline import TaskKind
from nimbus.domain.workers import Assignment
from nimbus.worker.settings import RunnerPlan

_READ_AT_START = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OPENSSL_")
"""Variables of the loader, of libc and of OpenSSL, by the beginning of their names."""


def why_own_interpreter(plan: RunnerPlan, order: Assignment, environment: Mapping[str, str]) -> str | None:
    """Say why a driver cannot be a fork of this process; None: it can.

    Args:
        plan: Of its runner.
        order: That it runs under.
        environment: That it is to have.
    """
    if order.task.kind is not TaskKind.PYTHON:
        return f"the task is of kind {order.task.kind.value}"
    if plan.wheels:
        return "the release has wheels"
    if changed := _changed_at_start(environment):
        return f"{changed} counts when a program starts"
    script = plan.release_root / order.task.script
    inherited = (Path(place) for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place)
    folders = (script.parent, *(plan.release_root / place for place in order.python_path), *inherited)
    if beaten := already_imported(folders, imported_names()):
        return f"{beaten} has the name of a module that is imported"
    return None


@cache
def imported_names() -> frozenset[str]:
    """Names of imported modules, without those within packages. A fork server asks before it forks."""
    return frozenset(name.partition(".")[0] for name in sys.modules)


def _changed_at_start(environment: Mapping[str, str]) -> str | None:
    for name in sorted({*environment, *os.environ}):
        if name.startswith(_READ_AT_START) and environment.get(name) != os.environ.get(name):
            return name
    return None


def already_imported(folders: Iterable[Path], imported: Set[str]) -> Path | None:
    """What can be imported from `folders` under one of the names of modules that are imported."""
    for folder in folders:
        try:
            entries = list(folder.iterdir())
        except FileNotFoundError:
            continue
        except OSError:  # such as an archive, from which Python can import
            return folder
        for entry in entries:
            if entry.name.partition(".")[0] in imported:
                return entry
    return None
