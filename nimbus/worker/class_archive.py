"""Finds the class-data archive of Spark's jars, from which a JVM loads classes faster than from jars.

    <class_archive_dir or work_dir>/class-archives/<key>-<size>.jsa

The key identifies Java and the jars. A JVM ignores the archive of another Java, and a damaged one if it is
told to verify it. But a truncated archive crashes the JVM (SIGBUS), so the name contains the size, which is
compared before each use. Any thread may call this.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

FOLDER = "class-archives"
QUIET = "-Xlog:cds=error -Xlog:cds+dynamic=error"
"""Suppresses warnings about classes that cannot be archived and about archives that do not fit."""

_OPTIONS = ("SharedArchiveFile", "-Xshare", "ArchiveClassesAtExit")
"""A user who sets one of these options controls archives."""
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_VERSION_DEADLINE_S = 20.0


class NoSparkError(Exception):
    """This environment has no Java, or no Spark; the text says which."""


def has_own_archive(options: str) -> bool:
    """True if these Java options already control archives."""
    return any(word in options for word in _OPTIONS)


def java_options(archive: Path) -> str:
    """The options with which a JVM uses an archive."""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto -XX:+VerifySharedSpaces {QUIET}"


def find_archive(home: Path, environment: Mapping[str, str]) -> Path | None:
    """The archive for drivers with this environment, if a complete one exists below `home`."""
    if any(has_own_archive(environment.get(name, "")) for name in _VARIABLES):
        return None
    try:
        check_folder(home / FOLDER)
        return whole_archive(home / FOLDER, archive_key(environment))
    except (NoSparkError, OSError):
        return None


def check_folder(folder: Path) -> None:
    """Raise OSError if other users can write here: a JVM runs the code in an archive."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others than this user can write to it", str(folder))


def whole_archive(folder: Path, key: str) -> Path | None:
    """The archive of this key; None if it is missing or truncated."""
    for place in folder.glob(archive_name(key, "*")):
        if place.name == archive_name(key, place.stat().st_size):
            return place
    return None


def archive_name(key: str, size_bytes: int | str) -> str:
    """A finished archive's file name; `*` as size makes a pattern."""
    return f"{key}-{size_bytes}.jsa"


def archive_key(environment: Mapping[str, str]) -> str:
    """A key that identifies Java and Spark.

    Raises:
        NoSparkError: one of them is missing.
    """
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH", os.defpath))
    jars = Path(environment.get("SPARK_HOME") or _pyspark()) / "jars"
    try:
        version = _version(java or "java", os.stat(java or "java").st_mtime_ns)  # noqa: PTH116 - may be a name
        listing = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars.iterdir())
    except (OSError, subprocess.SubprocessError) as exc:
        raise NoSparkError(str(exc)) from exc
    return hashlib.sha256(repr((version, str(jars), listing)).encode()).hexdigest()[:16]


def _pyspark() -> str:
    spec = find_spec("pyspark")  # not imported: finding it is cheaper
    if spec is None or spec.origin is None:
        raise NoSparkError("pyspark is not installed")
    return os.path.dirname(spec.origin)  # noqa: PTH120 - returns text


@lru_cache(maxsize=16)
def _version(java: str, _changed_ns: int) -> str:
    done = subprocess.run(
        [java, "-version"],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=_VERSION_DEADLINE_S,
        check=True,
    )
    return done.stderr + done.stdout
