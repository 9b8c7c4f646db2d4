"""When a driver is a fork of its runner, and when it gets its own interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nimbus.domain.pipelines.pipeline import SparkMode, TaskKind
from nimbus.worker.driver.child import why_own_interpreter
from nimbus.worker.driver.files import write_plan
from nimbus.worker.driver.main import read_plan
from tests.nimbus.worker_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def _why(
    bench: Bench, *, order: Any = None, plan: Any = None, environment: dict[str, str] | None = None
) -> str | None:
    made = bench.order(bench.script("jobs/task.py", ""), **(order or {}))
    folder = bench.folder(made.attempt)
    folder.create(made)
    write_plan(folder, bench.startup(**(plan or {})).plan, made)
    imported = {name.partition(".")[0] for name in sys.modules}
    return why_own_interpreter(
        read_plan(folder.path), {**os.environ, **(environment or {})}, os.environ, imported
    )


def test_python_task_is_forked_when_nothing_speaks_against_it(bench: Bench) -> None:
    bench.script("jobs/beside.py", "")
    bench.script("lib/shared.py", "")
    bench.script("structlog.py", "")  # in a folder from which nothing is imported

    why = _why(
        bench,
        order={"python_path": ("lib", "absent")},
        environment={"TZ": "UTC", "OF_CONFIGURATION": "yes", "PYTHONPATH": str(bench.root / "absent")},
    )

    assert why is None


@pytest.mark.parametrize("kind", [TaskKind.PYSPARK, TaskKind.SQL])
def test_spark_task_gets_its_own_interpreter(bench: Bench, kind: TaskKind) -> None:
    assert kind.value in (_why(bench, order={"task_kind": kind}) or "")


@pytest.mark.parametrize("kind", [TaskKind.SHELL, TaskKind.SPARK_SUBMIT])
def test_driver_that_becomes_a_program_needs_no_interpreter(bench: Bench, kind: TaskKind) -> None:
    bench.script("jobs/structlog.py", "")

    why = _why(
        bench,
        order={"task_kind": kind},
        plan={"wheels": (bench.root,)},
        environment={"LD_LIBRARY_PATH": "/x"},
    )

    assert why is None


CONNECT = {"task_kind": TaskKind.SQL, "spark_mode": SparkMode.CONNECT}


@pytest.mark.parametrize(
    ("imported", "environment", "why"),
    [
        (["pyarrow"], {}, None),
        (["pyarrow"], {"OMP_NUM_THREADS": "3"}, "OMP_NUM_THREADS counts when a program starts"),
        ([], {"OMP_NUM_THREADS": "3"}, None),
    ],
)
def test_task_is_forked_unless_a_variable_of_an_imported_library_differs(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    imported: list[str],
    environment: dict[str, str],
    why: str | None,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("numpy", "pyarrow", "grpc")]:
        monkeypatch.delitem(sys.modules, name)  # another test may have imported them
    for library in imported:
        monkeypatch.setitem(sys.modules, library, ModuleType(library))

    assert _why(bench, order=CONNECT if imported else {}, environment=environment) == why


def test_release_with_wheels_gets_its_own_interpreter(bench: Bench) -> None:
    assert "wheels" in (_why(bench, plan={"wheels": (bench.root,)}) or "")


@pytest.mark.parametrize(
    "place", ["jobs/structlog.py", "jobs/structlog/x.txt", "lib/structlog.abi3.so", "lib/json/__init__.py"]
)
def test_release_with_the_name_of_an_imported_module_gets_its_own_interpreter(
    bench: Bench, place: str
) -> None:
    bench.script(place, "")

    assert "/".join(place.split("/")[:2]) in (_why(bench, order={"python_path": ("lib",)}) or "")


def test_python_path_of_an_archive_gets_its_own_interpreter(bench: Bench) -> None:
    bench.script("lib.zip", "")

    assert "lib.zip" in (_why(bench, order={"python_path": ("lib.zip",)}) or "")


def test_configured_pythonpath_with_the_name_of_an_imported_module_gets_its_own_interpreter(
    bench: Bench,
) -> None:
    bench.script("more/structlog.py", "")

    assert "structlog" in (_why(bench, environment={"PYTHONPATH": str(bench.release / "more")}) or "")


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "LC_ALL", "MALLOC_ARENA_MAX", "OPENSSL_CONF"])
def test_variable_that_counts_at_a_start_gets_its_own_interpreter(bench: Bench, name: str) -> None:
    assert name in (_why(bench, environment={name: "changed"}) or "")


def test_driver_leaves_names_of_the_standard_library_to_the_modules_of_a_task() -> None:
    """A module that is imported before the task hides that of the release with the same name."""
    program = "import sys; before = {*sys.modules}; import nimbus.worker.driver.main as _; "
    program += "print(*{name.partition('.')[0] for name in {*sys.modules} - before})"

    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)

    imported = set(done.stdout.split())
    assert "nimbus" in imported
    assert imported & {"concurrent", "hashlib", "logging", "queue", "string", "subprocess"} == set()
