"""Environments: interpreters of this host with a Spark and a Java of their own, for tasks that name one.

Nothing of ours is installed there: a driver imports our modules from the bundle in its attempt's folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from packaging.tags import Tag, compatible_tags, cpython_tags

from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.java import java_version, spark_numbers, why_unfit

OLDEST_PYTHON = (3, 9)
OLDEST_SPARK = (3, 5)
_PIPELINES_SINCE = (4, 1)
_PATIENCE_S = 30.0
"""For all interpreters of one probe together."""
_SHORTEST_S = 1.0
"""For one whose answer is read after a silent one."""
_PROBE = """
import json, platform, sys
try:
    from importlib.metadata import version
    spark = version("pyspark")
except ImportError:  # no PySpark, or a Python before 3.8
    spark = ""
print(json.dumps([list(sys.version_info[:2]), platform.python_version(), spark]))
"""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """One environment, as configured."""

    name: str
    python: Path
    java_home: Path | None = None
    """None: the worker's Java."""
    spark_home: Path | None = None
    """None: the PySpark that the interpreter has."""
    env: Mapping[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """The variables of its drivers that differ from the worker's."""
        spark = {} if self.spark_home is None else {"SPARK_HOME": str(self.spark_home)}
        return {
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            **spark,
            **self.env,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEnvironment:
    """An environment that can be used, with what is there."""

    configured: TaskEnvironment
    python: tuple[int, int]
    spark: str
    """Version; empty: none, so it is for tasks without Spark."""
    versions: str
    """All versions, for people."""

    def tags(self) -> Set[Tag]:
        """Tags of wheels that its interpreter can import."""
        short = f"cp{self.python[0]}{self.python[1]}"
        return {*cpython_tags(self.python), *compatible_tags(self.python, short)}

    def unfit(self, kind: TaskKind) -> str | None:
        """Why a task of this kind cannot run in it; None: it can."""
        if kind is TaskKind.PYTHON:
            return None
        name = self.configured.name
        if not self.spark:
            return (
                f"environment {name} has no Spark ({self.versions}): install pyspark there, or set spark_home"
            )
        lacking = lacks(self.spark, kind)
        return None if lacking is None else f"{lacking}, and environment {name} has {self.spark}"


def lacks(spark: str, kind: TaskKind) -> str | None:
    """What tasks of a kind need that a Spark does not have, with the version that has it."""
    if kind is TaskKind.SPARK_PIPELINE and spark_numbers(spark) < _PIPELINES_SINCE:
        return f"a declarative pipeline needs Spark {'.'.join(map(str, _PIPELINES_SINCE))}"
    return None


class Environments(dict[str, FoundEnvironment | str]):
    """The environments of a configuration by name, as last seen: of one that cannot be used the reason."""

    def __init__(
        self,
        configured: Sequence[TaskEnvironment] = (),
        java_home: Callable[[], Path | None] = lambda: None,
    ) -> None:
        """Probe them. `java_home`: the worker's Java, for those that name none; None: there is none."""
        super().__init__()
        self._configured, self._java_home = configured, java_home
        self.probe()

    def probe(self) -> None:
        """Probe all again: their interpreters are run, side by side, for at most 30 s, then their Javas."""
        ends_s = time.monotonic() + _PATIENCE_S
        javas: dict[Path, int | None] = {}
        for environment, interpreter in [(each, _started(each)) for each in self._configured]:
            name, before = environment.name, self.get(environment.name)
            try:
                self[name] = usable = self._found(environment, interpreter, ends_s, javas)
            except _UnusableError as exc:
                self[name] = why = str(exc)
                if before not in (None, why):
                    _log.warning("environment_unusable", environment=name, error=why)
            else:
                if isinstance(before, str):
                    _log.info("environment_usable", environment=name, versions=usable.versions)

    def _found(
        self,
        environment: TaskEnvironment,
        interpreter: subprocess.Popen[bytes] | OSError,
        ends_s: float,
        javas: dict[Path, int | None],
    ) -> FoundEnvironment:
        python, full, spark = _answer(environment, interpreter, ends_s)
        if python < OLDEST_PYTHON:
            raise _UnusableError(f"{environment.python} is Python {full}, and 3.9 or newer is needed")
        if environment.spark_home is not None:
            spark = _spark_of(environment.spark_home, spark)
        if spark and spark_numbers(spark) < OLDEST_SPARK:
            raise _UnusableError(f"its Spark is {spark}, and 3.5 or newer is needed")
        versions = f"Python {full}"
        if spark:
            java = _java(environment.java_home or self._java_home(), spark, javas)
            versions += f", Spark {spark}, Java {java}"
        return FoundEnvironment(configured=environment, python=python, spark=spark, versions=versions)


class _UnusableError(Exception):
    """An environment cannot be used. Never raised out of this module."""


def _started(environment: TaskEnvironment) -> subprocess.Popen[bytes] | OSError:
    try:
        return subprocess.Popen(
            [environment.python, "-I", "-c", _PROBE],
            env={"PATH": os.defpath, **environment.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as exc:
        return exc


def _answer(
    environment: TaskEnvironment, interpreter: subprocess.Popen[bytes] | OSError, ends_s: float
) -> tuple[tuple[int, int], str, str]:
    """Versions of Python, short and in full, and of its PySpark; empty: it has none."""
    if isinstance(interpreter, OSError):
        raise _UnusableError(f"{environment.python} cannot be run: {interpreter.strerror}") from interpreter
    with interpreter:
        try:
            said, error = interpreter.communicate(timeout=max(_SHORTEST_S, ends_s - time.monotonic()))
            (major, minor), full, spark = json.loads(said)
        except subprocess.TimeoutExpired as exc:
            interpreter.kill()
            raise _UnusableError(f"{environment.python} did not answer in {_PATIENCE_S:.0f} s") from exc
        except ValueError as exc:
            why = error.decode(errors="replace").strip().rpartition("\n")[2]
            why = why or f"exit code {interpreter.returncode}"
            raise _UnusableError(f"{environment.python} cannot be run: {why}") from exc
    return (major, minor), full, spark


def spark_at(home: Path) -> str:
    """The version of the Spark in a folder; empty: there is none."""
    jars = home.glob("jars/spark-core_*.jar")
    return next((jar.stem.partition("-core_")[2].partition("-")[2] for jar in jars), "")


def _spark_of(home: Path, of_python: str) -> str:
    spark = spark_at(home)
    if not spark:
        raise _UnusableError(f"spark_home {home} has no jars/spark-core_*.jar: is it a Spark?")
    if of_python and spark_numbers(of_python) != spark_numbers(spark):
        raise _UnusableError(
            f"spark_home is Spark {spark}, and its Python has PySpark {of_python}: remove the one, or let "
            "spark_home name that Spark"
        )
    return spark


def _java(home: Path | None, spark: str, known: dict[Path, int | None]) -> int:
    """The version of a Java that can run a Spark."""
    if home is None:
        raise _UnusableError(f"there is no Java for Spark {spark}: set its java_home")
    if home not in known:
        known[home] = java_version(home)
    version = known[home]
    if version is None:
        raise _UnusableError(f"java_home {home} has no bin/java that runs")
    if why := why_unfit(version, spark):
        raise _UnusableError(f"its Java is {version} ({home}), and {why}")
    return version
