"""A pipeline's folder on the publisher's disk: its definition, the files of a release, and dry runs.

A dry run of a declarative pipeline lets Spark resolve all flows and run none. Each needs a JVM and about
10 s. It runs like a driver, with only the files of the release.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.domain.attempts.shebang import HEAD_BYTES, interpreter_of
from nimbus.domain.errors import NimbusError
from nimbus.domain.pipelines.pipeline import DEFINITION_FILE, Limits, PipelineSpec, TaskKind, TaskSpec

if TYPE_CHECKING:
    from blobsync import SourceFile

_MAKER_S = 60.0
_SPECIAL = ", # % * ? [ ] { }"
_SPECIAL_IN_LISTS = frozenset(_SPECIAL.replace(" ", ""))
"""Characters with a meaning in Spark's lists of jars."""


def read_sources(folder: Path) -> tuple[PipelineSpec, tuple[SourceFile, ...]]:
    """Read the definition, and find the files that it names.

    Raises:
        NimbusError: the definition is not valid, or a pattern matches nothing; with file, line and key.
        BlobSyncError: a file may not be published.
        CliError: there is no definition, it is older than the Python file that generates it, a task's
            script is not among the files, two wheels are of one package, or Spark would misread the name of a
            jar.
    """
    from blobsync import Role, UnmatchedPatternError, collect
    from nimbus.definition import read_definition, unmatched_pattern
    from nimbus.definition.calendar_file import calendar_file

    place = folder / DEFINITION_FILE
    if not place.is_file():
        raise CliError(
            f"{folder} has no {DEFINITION_FILE}: name the folder of a pipeline, such as examples/hello.",
            code="no_definition",
            exit_code=Exit.USAGE,
        )
    _check_made(place)
    spec = read_definition(place)
    calendars = {
        calendar_file(schedule.calendar)
        for schedule in spec.schedules
        if schedule.calendar and schedule.of_release
    }
    try:
        files = collect(
            folder, include=(*spec.files, DEFINITION_FILE, *calendars), dependencies=spec.libraries
        )
    except UnmatchedPatternError as exc:
        raise unmatched_pattern(place, exc.pattern, str(exc)) from exc
    known = {None, *(item.path for item in files)}
    absent = [f"task {task.name}: {task.file}" for task in spec.tasks if task.file not in known]
    if absent:
        raise CliError(
            f"{place}: files of tasks are not among the release's ({'; '.join(absent)}). Correct the task, "
            "or add them to `files`.",
            code="script_missing",
            exit_code=Exit.USAGE,
        )
    _check_wheels(place, spec, [item.path for item in files])
    jars = (item.path for item in files if item.role is Role.DEPENDENCY and item.path.endswith(".jar"))
    if odd := next((jar for jar in jars if not _SPECIAL_IN_LISTS.isdisjoint(jar)), None):
        raise CliError(
            f"{place}: {odd!r} has one of {_SPECIAL}, which Spark reads as no part of a name; rename it.",
            code="jar_name",
            exit_code=Exit.USAGE,
        )
    return spec, files


def warnings(folder: Path, spec: PipelineSpec, files: Iterable[SourceFile]) -> Iterator[str]:
    """Warnings about wheels that no task imports, and scripts whose interpreter this host lacks."""
    from blobsync import Role

    for item in files:
        if item.path.endswith(".whl") and item.role is not Role.DEPENDENCY:
            yield f"warning: no `dependencies` names {item.path}, so no task imports it"
    for task in spec.tasks:
        if task.kind is TaskKind.SHELL and task.file is not None:
            with (folder / task.file).open("rb") as script:
                name = interpreter_of(script.read(HEAD_BYTES))
            if name and not Path(name).exists():
                yield f"warning: task {task.name}: {task.file} needs {name}, which is not on this host"


def _check_wheels(place: Path, spec: PipelineSpec, paths: list[str]) -> None:
    """Refuse two wheels of one package in one `dependencies`. A task's own replaces that of the pipeline."""
    from blobsync import matching
    from nimbus.worker.libraries import same_package

    shared = frozenset(spec.dependencies)
    own = ([pattern for pattern in task.dependencies if pattern not in shared] for task in spec.tasks)
    for patterns in (spec.dependencies, *own):
        wheels = sorted({path for pattern in patterns for path in matching(pattern, paths)})
        if same := same_package(map(PurePosixPath, wheels)):
            raise CliError(
                f"{place}: {same[0]} and {same[1]} are wheels of one package, and a task imports only one. "
                "Delete one, or name the other alone in `dependencies`.",
                code="package_twice",
                exit_code=Exit.USAGE,
            )


def _check_made(place: Path) -> None:
    """Refuse an outdated definition that was generated by a Python file."""
    from nimbus.authoring.building import CHECK, OUTDATED, maker_of

    maker = maker_of(place)
    if maker is None:
        return
    command = [sys.executable, maker.name, CHECK]
    try:
        done = subprocess.run(
            command, cwd=maker.parent, capture_output=True, text=True, timeout=_MAKER_S, check=False
        )
        said, code = done.stderr.strip(), done.returncode
    except subprocess.TimeoutExpired:
        said, code = f"it did not end within {_MAKER_S:.0f} s", OUTDATED
    if code != 0:
        raise CliError(
            f"{maker} does not confirm {place.name}: {said.removeprefix('error: ')}",
            code="definition_outdated",
            exit_code=Exit.USAGE,
        )


_DEADLINE_S = 300.0


def dry_run(spec: PipelineSpec, files: Sequence[SourceFile], note: Callable[[str], None]) -> dict[str, str]:
    """Dry-run all declarative pipelines. Returns `passed` or `skipped: <why>`, by task.

    `note` is called with a warning for each task that is skipped. Raises CliError: Spark refuses one.
    """
    answer = {}
    for task in spec.tasks:
        if task.kind is TaskKind.SPARK_PIPELINE:
            why = _why_not(task)
            answer[str(task.name)] = "passed" if why is None else f"skipped: {why}"
            if why is None:
                _check_flows(spec, task, files)
            else:
                note(f"warning: task {task.name} is not dry-run: {why}")
    return answer


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


def _check_flows(spec: PipelineSpec, task: TaskSpec, files: Sequence[SourceFile]) -> None:
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
