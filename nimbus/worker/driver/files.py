"""A driver's input: the files in its attempt's folder, and its environment.

Executors on other hosts, and drivers with another interpreter, import from archives, which the driver's Spark
sends to the executors. Each attempt makes its archives: they are in its folder, and go with its scratch.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId
from nimbus.domain.pipelines.pipeline import Limits, SparkMode
from nimbus.templates.names import RELEASE_ROOT
from nimbus.worker.application.bundle import build_bundle
from nimbus.worker.application.late_conf import JARS
from nimbus.worker.application.unpacking import ARCHIVE, BUNDLE
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.connect.session import driver_variables
from nimbus.worker.data.outside import is_verified
from nimbus.worker.data.places import place_of
from nimbus.worker.driver.environment import scaled_conf
from nimbus.worker.driver.main import DriverPlan
from nimbus.worker.host.files import write_new
from nimbus.worker.host.remains import ATTEMPT_VARIABLE, attempt_tag
from nimbus.worker.settings import RunnerPlan

_NO_LIMITS = asdict(Limits())
_PYTHONPATH = "spark.executorEnv.PYTHONPATH"
_ARCHIVES = "spark.archives"
_READABLE = 0o644
"""For the task's user, to whom the folder belongs, whatever this process's umask is."""
_WHEELS = ".nimbus-wheels"
"""Folder of unpacked wheels in the release's archive."""


def write_plan(
    folder: AttemptFolder,
    plan: RunnerPlan,
    order: Assignment,
    gets_plan: Callable[[DriverPlan], bool] = lambda _: False,
) -> DriverPlan:
    """Write the driver's files. `gets_plan`: it is given its plan; the file is for the log's limit."""
    made = driver_plan(plan, order).placed()
    if made.interpreter:
        made = replace(made, bundle=str(folder.bundle))
    sends_files = plan.sends_files and made.starts_spark
    if sends_files:
        made = replace(made, task_conf={**made.task_conf, **_archive_settings(folder, made)})
    if made.limits != _NO_LIMITS or not gets_plan(made):
        write_new(folder.driver_file, json.dumps(vars(made)).encode())
    write_new(folder.context_file, json.dumps(context_document(plan, order, folder.output)).encode())
    if plan.user is not None:
        folder.give_to(plan.user)
    if sends_files:
        _write_release(folder, made)
    if sends_files or made.bundle:
        folder.bundle.write_bytes(build_bundle())
        folder.bundle.chmod(_READABLE)
    return made


def driver_plan(plan: RunnerPlan, order: Assignment) -> DriverPlan:
    """The part of an order that the driver needs. `{{ release_root }}` stays, see `DriverPlan.placed`."""
    return DriverPlan(
        kind=order.task.kind.value,
        script=order.task.script,
        main_class=order.task.main_class,
        args=order.task.args,
        release_root=str(plan.release_root),
        python_path=order.python_path,
        wheels=[str(path) for path in plan.wheels],
        master=plan.master,
        worker_conf=worker_conf(plan, order),
        task_conf=task_conf(plan, order),
        limits=asdict(order.limits),
        user=None if plan.user is None else asdict(plan.user),
        interpreter=str(plan.interpreter or ""),
        connect=order.task.spark_mode is SparkMode.CONNECT,
    )


def worker_conf(plan: RunnerPlan, order: Assignment) -> dict[str, str]:
    """The worker's Spark properties, which the task's override."""
    return {**plan.telemetry.spark_properties(plan.cluster, order), **plan.spark_conf}


def task_conf(plan: RunnerPlan, order: Assignment) -> dict[str, str]:
    """The task's Spark properties. `{{ release_root }}` is not filled in.

    `spark.jars` has the jars of the release, before those that properties name. In `mode: connect` the
    driver sends them to its session.
    """
    conf = scaled_conf(order.task.spark_conf, plan.spark_conf, order.memory_scale)
    if not plan.jars:
        return conf
    others = "" if plan.connect else {**worker_conf(plan, order), **conf}.get(JARS, "")
    return {**conf, JARS: ",".join(filter(None, [*(f"{RELEASE_ROOT}/{jar}" for jar in plan.jars), others]))}


def context_document(plan: RunnerPlan, order: Assignment, own_output: Path) -> dict[str, Any]:
    """The file for `nimbus.task.context`. `own_output`: the local folder for outputs in a bucket."""
    place, interval = place_of(plan), order.data_interval
    return {
        "schema": 1,
        "pipeline": order.pipeline,
        "release": order.release,
        "cluster": plan.cluster,
        "run_id": order.run,
        "run_number": order.run_number,
        "task": order.task.name,
        "attempt": AttemptId.parse(order.attempt).number,
        "logical_date": order.logical_date.isoformat(),
        "data_interval_start": interval and interval.start.isoformat(),
        "data_interval_end": interval and interval.end.isoformat(),
        "tz": order.timezone,
        "parameters": dict(order.parameters),
        "variables": dict(order.variables),
        "inputs": {task: str(place.input(reference)) for task, reference in order.inputs.items()},
        **({"reads": reads_document(order)} if order.pins else {}),
        "output": str(place.output(order.output, own_output)),
        "data": {"uri": place.uri, "output": place.prefix(order.output), "inputs": dict(order.inputs)},
        "checkpoint": plan.checkpoint,
        "release_root": str(plan.release_root),
    }


def reads_document(order: Assignment) -> dict[str, Any]:
    """What the task reads of datasets. The output of a version, if it has one, is the input `read:place`."""
    return {
        name: [
            {
                "partition": version.partition,
                "run": version.run,
                "number": version.number,
                "at": version.at.isoformat(),
                "item": version.item,
                "value": version.value if version.outside is None else version.outside.value,
                "outside": version.outside and version.outside.uri,
                "sha256": version.outside and version.outside.sha256,
                "verified": version.outside is not None and is_verified(version.outside, order),
            }
            for version in versions
        ]
        for name, versions in order.pins.items()
    }


def make_output(folder: AttemptFolder, plan: RunnerPlan, order: Assignment) -> Path:
    """Create an attempt's output folder for its driver's user. Parent folders stay the worker's. OSError."""
    output = place_of(plan).output(order.output, folder.output)
    output.mkdir(parents=True, exist_ok=True)
    if plan.user is not None:
        output.chmod(0o750)
        os.chown(output, plan.user.uid, plan.user.gid, follow_symlinks=False)
    return output


def measured(folder: AttemptFolder, output: Path) -> tuple[Path, ...]:
    """The folders that an attempt writes to; none is inside another."""
    return (folder.path,) if output.is_relative_to(folder.path) else (folder.path, output)


def attempt_environment(folder: AttemptFolder, plan: RunnerPlan) -> dict[str, str]:
    """The complete environment of an attempt's driver."""
    return {
        **plan.telemetry.variables(plan.cluster, folder.attempt),
        **plan.environment,
        **plan.secrets,
        **({} if plan.connect is None else driver_variables(plan.connect)),
        ATTEMPT_VARIABLE: attempt_tag(plan.cluster, str(folder.attempt)),
        "NIMBUS_CONTEXT": str(folder.context_file),
        "TMPDIR": str(folder.short_scratch(plan.user)),
        "SPARK_LOCAL_DIRS": str(folder.spark_local),
    }


def import_path(
    conf: Mapping[str, str], script: str, python_path: Iterable[str], wheels: Iterable[str]
) -> dict[str, str]:
    """The property by which executors import from the unpacked archives, before what `conf` says.

    Modules beside `script` come first. All but `conf` are relative to the release; `wheels` may be unpacked.
    """
    beside = PurePosixPath(script).parent.as_posix()
    places = [f"{ARCHIVE}/{place}" for place in (beside, *python_path, *wheels)]
    return {_PYTHONPATH: ":".join(filter(None, [*places, BUNDLE, conf.get(_PYTHONPATH)]))}


def _archive_settings(folder: AttemptFolder, plan: DriverPlan) -> dict[str, str]:
    conf = {**plan.worker_conf, **plan.task_conf}
    archives = [f"{folder.release_archive}#{ARCHIVE}", f"{folder.bundle}#{BUNDLE}"]
    wheels = [f"{_WHEELS}/{Path(wheel).name}" for wheel in plan.wheels]
    return {
        _ARCHIVES: ",".join(filter(None, [conf.get(_ARCHIVES), *archives])),
        **import_path(conf, plan.script, plan.python_path, wheels),
    }


def _write_release(folder: AttemptFolder, plan: DriverPlan) -> None:
    with tarfile.open(folder.release_archive, "w", dereference=True) as archive:
        for place in sorted(Path(plan.release_root).iterdir()):
            archive.add(place, place.name, filter=_without_wheels)
        for wheel in plan.wheels:
            archive.add(wheel, f"{_WHEELS}/{Path(wheel).name}")
    folder.release_archive.chmod(_READABLE)


def _without_wheels(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith(".whl") else entry
