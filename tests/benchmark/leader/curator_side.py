"""Curator's side: compiles `CuratorHost.java` against the jars inside PySpark."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from nimbus.java import JavaMissingError, find_java

_JARS = (
    "curator-*.jar",
    "zookeeper-*.jar",
    "guava-*.jar",
    "failureaccess-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "netty-*.jar",
    "snappy-java-*.jar",
    "commons-*.jar",
)
_SOURCE = Path(__file__).with_name("CuratorHost.java")


class CuratorMissingError(Exception):
    """Curator cannot take part. The message says why."""


class CuratorProgram:
    """The compiled program.

    Raises:
        CuratorMissingError: No `javac`, no Java, no jars, or the source does not compile.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._java = find_java().java
        except JavaMissingError as exc:
            raise CuratorMissingError(f"no Java: {exc}") from exc
        compiler = _javac(self._java)
        jars = _jars()
        self.version = _version(jars)
        self._class_path = ":".join(map(str, [folder, *jars]))
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [str(compiler), "-cp", self._class_path, "-d", str(folder), str(_SOURCE)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise CuratorMissingError(f"javac failed: {done.stderr.strip()[:500]}")

    def command(self, hosts: str, path: str, session_ms: int) -> list[str]:
        """The command line of one host process."""
        options = ["-Djava.awt.headless=true", "-Xmx512m"]
        return [
            str(self._java),
            *options,
            "-cp",
            self._class_path,
            "CuratorHost",
            hosts,
            path,
            str(session_ms),
        ]


def _javac(java: Path) -> Path:
    beside = java.resolve().with_name("javac")
    if beside.exists():
        return beside
    found = shutil.which("javac")
    if found is None:
        raise CuratorMissingError("no javac, neither beside java nor on PATH; install a JDK")
    return Path(found)


def _jars() -> list[Path]:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CuratorMissingError("no PySpark, whose jars have Curator")
    folder = Path(spec.origin).parent / "jars"
    return [jar for pattern in _JARS for jar in sorted(folder.glob(pattern))]


def _version(jars: list[Path]) -> str:
    for jar in jars:
        if match := re.fullmatch(r"curator-recipes-(.+)\.jar", jar.name):
            return match[1]
    raise CuratorMissingError("no curator-recipes-*.jar among PySpark's jars")
