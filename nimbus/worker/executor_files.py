"""Gives executors on other hosts what a task imports: archives that the driver's Spark sends to them.

Each attempt makes its archives: they are in its folder, and go with its scratch.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from nimbus.worker.application.bundle import build_bundle
from nimbus.worker.application.unpacking import ARCHIVE, BUNDLE
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.driver import DriverPlan

_PYTHONPATH = "spark.executorEnv.PYTHONPATH"
_ARCHIVES = "spark.archives"
_READABLE = 0o644
"""For the task's user, to whom the folder belongs, whatever this process's umask is."""
_WHEELS = ".nimbus-wheels"
"""Folder of unpacked wheels in the release's archive."""


def import_path(
    conf: Mapping[str, str], script: str, python_path: Iterable[str], wheels: Iterable[str]
) -> dict[str, str]:
    """The property by which executors import from the unpacked archives, before what `conf` says.

    Args:
        conf: Spark's properties for the task.
        script: The task's file: modules beside it come first. Like the others it is relative to the release.
        python_path: Folders of modules.
        wheels: Wheels, or folders with their content.
    """
    beside = PurePosixPath(script).parent.as_posix()
    places = [f"{ARCHIVE}/{place}" for place in (beside, *python_path, *wheels)]
    return {_PYTHONPATH: ":".join(filter(None, [*places, BUNDLE, conf.get(_PYTHONPATH)]))}


def settings(folder: AttemptFolder, plan: DriverPlan) -> dict[str, str]:
    """Properties with which Spark sends the archives, and executors import from them."""
    conf = {**plan.worker_conf, **plan.task_conf}
    archives = [f"{_release_file(folder)}#{ARCHIVE}", f"{bundle_file(folder)}#{BUNDLE}"]
    wheels = [f"{_WHEELS}/{Path(wheel).name}" for wheel in plan.wheels]
    return {
        _ARCHIVES: ",".join(filter(None, [conf.get(_ARCHIVES), *archives])),
        **import_path(conf, plan.script, plan.python_path, wheels),
    }


def write_release(folder: AttemptFolder, plan: DriverPlan) -> None:
    """Write the archive of the release, with its wheels unpacked."""
    with tarfile.open(_release_file(folder), "w", dereference=True) as archive:
        for place in sorted(Path(plan.release_root).iterdir()):
            archive.add(place, place.name, filter=_without_wheels)
        for wheel in plan.wheels:
            archive.add(wheel, f"{_WHEELS}/{Path(wheel).name}")
    _release_file(folder).chmod(_READABLE)


def write_bundle(folder: AttemptFolder) -> None:
    """Write the archive of our modules, for executors and for drivers with another interpreter."""
    bundle_file(folder).write_bytes(build_bundle())
    bundle_file(folder).chmod(_READABLE)


def _without_wheels(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith(".whl") else entry


def _release_file(folder: AttemptFolder) -> Path:
    return folder.work / "release.tar"


def bundle_file(folder: AttemptFolder) -> Path:
    """The archive of our modules; user code may read it."""
    return folder.work / "bundle.zip"
