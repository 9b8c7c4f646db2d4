"""Dry runs of declarative pipelines before a release is published: Spark resolves all flows and runs none.

Each needs a JVM and about 10 s. It runs like a driver, with only the files of the release.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.domain.errors import NimbusError
from nimbus.domain.pipeline import Limits, PipelineSpec, TaskKind, TaskSpec

if TYPE_CHECKING:
    from blobsync import SourceFile

_DEADLINE_S = 300.0

dry_run_option: Callable[..., Any] = click.option(
    "--dry-run/--no-dry-run",
    default=True,
    show_default=True,
    help="Let Spark check declarative pipelines (tasks of type spark_pipeline); about 10 s for each.",
)


def dry_run(spec: PipelineSpec, files: Sequence[SourceFile], note: Callable[[str], None]) -> dict[str, str]:
    """Dry-run all declarative pipelines.

    Args:
        spec: The definition.
        files: The release's files.
        note: Called with a warning for each task that is skipped, with the reason.

    Returns:
        `passed` or `skipped: <why>`, by task.

    Raises:
        CliError: Spark refuses one.
    """
    found = {}
    for task in spec.tasks:
        if task.kind is TaskKind.SPARK_PIPELINE:
            why = _why_not(task)
            found[str(task.name)] = "passed" if why is None else f"skipped: {why}"
            if why is None:
                _check(spec, task, files)
            else:
                note(f"warning: task {task.name} is not dry-run: {why}")
    return found


def _why_not(task: TaskSpec) -> str | None:
    from nimbus.java import find_java
    from nimbus.templates.names import needs_rendering
    from nimbus.worker.connect.session import check_packages
    from nimbus.worker.environments import lacks

    if task.environment:
        return f"environment {task.environment} is on workers"
    if (lacking := lacks(version("pyspark"), task.kind)) is not None:
        return f"{lacking}, and Spark is {version('pyspark')} here"
    if any(map(needs_rendering, task.spark_conf.values())):
        return "its spark.conf has templates, which only a run can render"
    if task.needs:
        return f"it needs {', '.join(task.needs)}, whose outputs are not there before it runs"
    if task.uses:
        return f"it reads {', '.join(task.uses)}, and the versions are known only when it runs"
    try:
        check_packages()
        find_java()
    except NimbusError as exc:
        return str(exc)
    return None


def _check(spec: PipelineSpec, task: TaskSpec, files: Sequence[SourceFile]) -> None:
    from nimbus.worker.attempt.verdict import error_in

    with tempfile.TemporaryDirectory(prefix="nimbus-dry-run-") as place:
        folder = Path(place)
        _prepare(folder, spec, task, files)
        environment = _environment(folder)
        with subprocess.Popen(
            [sys.executable, "-I", "-u", "-m", "nimbus.worker.driver", str(folder)],
            cwd=folder / "work" / "tmp",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=_DEADLINE_S)
            except subprocess.TimeoutExpired as exc:
                raise _refused(task, f"it did not end within {_DEADLINE_S:.0f} s") from exc
            finally:  # a JVM outlives the Python process that started it, and keeps the pipe open
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        click.echo(said, err=True, nl=False)
        raise _refused(task, error_in(said))


def _refused(task: TaskSpec, why: str) -> CliError:
    return CliError(
        f"task {task.name}: Spark refuses the declarative pipeline {task.script}: {why}\n"
        "Correct it, or skip this check with --no-dry-run.",
        code="dry_run_failed",
        exit_code=Exit.USAGE,
    )


def _prepare(folder: Path, spec: PipelineSpec, task: TaskSpec, files: Sequence[SourceFile]) -> None:
    """Write the files that a driver reads; the release consists of links."""
    from nimbus.worker.driver.main import DriverPlan
    from nimbus.worker.libraries import find_wheels, unpack_wheel

    release = folder / "release"
    for item in files:
        (release / item.path).parent.mkdir(parents=True, exist_ok=True)
        (release / item.path).symlink_to(item.file.resolve())
    for name in ("output", "work/tmp", "work/spark-local"):
        (folder / name).mkdir(parents=True)
    plan = DriverPlan(
        kind=task.kind.value,
        script=task.script,
        main_class="",
        args=["dry-run"],
        release_root=str(release),
        python_path=list(spec.python_path),
        wheels=[
            str(unpack_wheel(release / wheel, folder / "wheels"))
            for wheel in find_wheels(release, task.dependencies)
        ],
        master="local[2]",
        worker_conf={},
        task_conf={**task.spark_conf, **_jars(release, task)},
        limits=asdict(Limits()),
    )
    (folder / "driver.json").write_text(json.dumps(asdict(plan)))
    (folder / "context.json").write_text(json.dumps(_context(folder, spec, task)))


def _jars(release: Path, task: TaskSpec) -> dict[str, str]:
    from nimbus.worker.libraries import find_jars

    jars = [f"{release}/{jar}" for jar in find_jars(release, task.jars)]
    return {"spark.jars": ",".join(filter(None, [*jars, task.spark_conf.get("spark.jars")]))} if jars else {}


def _context(folder: Path, spec: PipelineSpec, task: TaskSpec) -> Mapping[str, Any]:
    return {
        "schema": 1,
        "pipeline": spec.name,
        "release": "0" * 64,
        "run_id": "dry-run",
        "task": task.name,
        "attempt": 1,
        "logical_date": datetime.now(UTC).isoformat(),
        "parameters": {name: parameter.default for name, parameter in spec.parameters.items()},
        "inputs": {},
        "output": str(folder / "output"),
        "release_root": str(folder / "release"),
    }


def _environment(folder: Path) -> Mapping[str, str]:
    from nimbus.java import find_java
    from nimbus.worker.driver.environment import driver_environment

    own = {
        "NIMBUS_CONTEXT": str(folder / "context.json"),
        "TMPDIR": str(folder / "work" / "tmp"),
        "SPARK_LOCAL_DIRS": str(folder / "work" / "spark-local"),
    }
    return driver_environment(os.environ, java_home=find_java().java_home, extra=own)
