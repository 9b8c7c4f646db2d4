"""Environments: interpreters of this host with a Spark and a Java of their own, for tasks that name one.

Nothing of ours is installed there: a driver imports our modules from the bundle in its attempt's folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags

from nimbus.domain.errors import NimbusError
from nimbus.domain.pipeline import TaskKind
from nimbus.java import java_version

OLDEST_PYTHON = (3, 9)
OLDEST_SPARK = (3, 5)
_PIPELINES_SINCE = (4, 1)
_JAVA_OF_SPARK = {3: 8, 4: 17}
"""The oldest Java of each Spark."""
_PATIENCE_S = 30.0
_PROBE = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
try:
    spark = version("pyspark")
except PackageNotFoundError:
    spark = ""
print(json.dumps([list(sys.version_info[:2]), platform.python_version(), spark]))
"""


class EnvironmentUnusableError(NimbusError):
    """An environment of the configuration cannot be used on this host."""

    code = "environment_unusable"


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
        if kind is TaskKind.SPARK_PIPELINE and _numbers(self.spark) < _PIPELINES_SINCE:
            needed = ".".join(map(str, _PIPELINES_SINCE))
            return f"a declarative pipeline needs Spark {needed}, and environment {name} has {self.spark}"
        return None


def find_environment(environment: TaskEnvironment, java_home: Path | None) -> FoundEnvironment:
    """Look at an environment: its interpreter is run once.

    Args:
        environment: The environment.
        java_home: The worker's Java, for an environment that names none; None: there is none.

    Raises:
        EnvironmentUnusableError: its Python, Spark or Java is missing, too old, or does not fit.
    """
    python, full, spark = _asked(environment)
    if python < OLDEST_PYTHON:
        raise EnvironmentUnusableError(f"{environment.python} is Python {full}, and 3.9 or newer is needed")
    if environment.spark_home is not None:
        spark = _spark_of(environment.spark_home, spark)
    if not spark:
        return FoundEnvironment(configured=environment, python=python, spark="", versions=f"Python {full}")
    if _numbers(spark) < OLDEST_SPARK:
        raise EnvironmentUnusableError(f"its Spark is {spark}, and 3.5 or newer is needed")
    java = _java(environment.java_home or java_home, spark)
    versions = f"Python {full}, Spark {spark}, Java {java}"
    return FoundEnvironment(configured=environment, python=python, spark=spark, versions=versions)


def _asked(environment: TaskEnvironment) -> tuple[tuple[int, int], str, str]:
    try:
        done = subprocess.run(
            [environment.python, "-I", "-c", _PROBE],
            env={"PATH": os.defpath, **environment.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_PATIENCE_S,
        )
        (major, minor), full, spark = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        said = (getattr(exc, "stderr", None) or b"").decode(errors="replace").strip().rpartition("\n")[2]
        said = said or getattr(exc, "strerror", "")
        raise EnvironmentUnusableError(f"{environment.python} cannot be run: {said or exc}") from exc
    return (major, minor), full, spark


def _spark_of(home: Path, of_python: str) -> str:
    jars = [jar.stem.partition("-core_")[2].partition("-")[2] for jar in home.glob("jars/spark-core_*.jar")]
    if not jars:
        raise EnvironmentUnusableError(f"spark_home {home} has no jars/spark-core_*.jar: is it a Spark?")
    if of_python and _numbers(of_python) != _numbers(jars[0]):
        raise EnvironmentUnusableError(
            f"spark_home is Spark {jars[0]}, and its Python has PySpark {of_python}: remove the one, or let "
            "spark_home name that Spark"
        )
    return jars[0]


def _java(home: Path | None, spark: str) -> int:
    needed = _JAVA_OF_SPARK.get(_numbers(spark)[0], 17)
    if home is None:
        raise EnvironmentUnusableError(f"Spark {spark} needs Java {needed} or newer: set its java_home")
    found = java_version(home)
    if found is None:
        raise EnvironmentUnusableError(f"java_home {home} has no bin/java that runs")
    if found < needed:
        raise EnvironmentUnusableError(f"its Java is {found} ({home}), and Spark {spark} needs {needed}")
    return found


def _numbers(version: str) -> tuple[int, int]:
    """Major and minor version. An unreadable one counts as 0.0."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
