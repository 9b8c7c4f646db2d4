"""The NodeManager: starts containers as processes of this host, like Hadoop's DefaultContainerExecutor.

Like Hadoop's, its launch script exports variables in double quotes without escaping, so quotes, dollars and
backslashes in values have the same effects.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_TERM_S = 0.25
"""Like `yarn.nodemanager.sleep-delay-before-sigkill.ms`."""
KILLED = 143
_VARIABLE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Resource:
    """A file in the folder of a container."""

    place: Path
    is_archive: bool
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Launch:
    """The command and files of a container."""

    commands: Sequence[str]
    environment: Mapping[str, str]
    resources: Mapping[str, Resource]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Properties that are added to the Hadoop configuration that Spark has packed."""


@dataclass(slots=True, eq=False)
class _Container:
    process: subprocess.Popen[bytes]
    folder: Path


class Node:
    """One host. Any thread may call it."""

    def __init__(self, root: Path, java_home: Path, ended: Callable[[str, int, str], None]) -> None:
        """Create the node.

        Args:
            root: Folder of all containers.
            java_home: Java runtime of the containers.
            ended: Called for each ended container, with its id, exit status and diagnostics.
        """
        self._root, self._java_home, self._ended = root, java_home, ended
        self._containers: dict[str, _Container] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, container: str, application: str, launch: Launch) -> None:
        """Start a container. Raises OSError or ValueError if its files cannot be localized."""
        folder = self._root / application / container
        logs = folder / "logs"
        (folder / "tmp").mkdir(parents=True)
        logs.mkdir()
        for name, resource in launch.resources.items():
            _localize(resource, folder / name)
        for name in ("__spark_hadoop_conf__.xml", "__hadoop_conf__/yarn-site.xml"):
            _configure(folder / "__spark_conf__" / name, launch.settings)
        own = {
            "CONTAINER_ID": container,
            "JAVA_HOME": str(self._java_home),
            "LOCAL_DIRS": str(folder / "tmp"),
            "LOG_DIRS": str(logs),
            "NM_HOST": "127.0.0.1",
            "NM_HTTP_PORT": "8042",
            "HOME": "/home/",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PWD": str(folder),
        }
        script = folder / "launch_container.sh"
        script.write_text(_script({**launch.environment, **own}, own, launch.commands, logs))
        process = subprocess.Popen(
            ["bash", str(script)],
            cwd=folder,
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        thread = threading.Thread(target=self._wait, args=(container, process), name=f"node-{container}")
        with self._lock:
            self._containers[container] = _Container(process, folder)
            self._threads.append(thread)
        thread.start()

    def _wait(self, container: str, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = 128 - status if status < 0 else status
        self._ended(
            container, code, "" if code == 0 else f"Container exited with a non-zero exit code {code}."
        )

    def kill(self, container: str) -> None:
        """End a container with SIGTERM, later SIGKILL. `ended` is called as usual."""
        with self._lock:
            found = self._containers.get(container)
        if found is None or found.process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(found.process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                found.process.wait(_TERM_S)
            os.killpg(found.process.pid, signal.SIGKILL)

    def runs(self, container: str) -> bool:
        """Whether a container's process runs."""
        with self._lock:
            found = self._containers.get(container)
        return found is not None and found.process.poll() is None

    def log(self, container: str) -> str:
        """The output of a container."""
        with self._lock:
            folder = self._containers[container].folder
        return "".join((folder / "logs" / name).read_text() for name in ("stdout", "stderr"))

    def close(self) -> None:
        """End all containers."""
        with self._lock:
            containers, threads = list(self._containers), list(self._threads)
        for container in containers:
            self.kill(container)
        for thread in threads:
            thread.join(60)


def _localize(resource: Resource, place: Path) -> None:
    modified_ms = resource.place.stat().st_mtime_ns // 1_000_000
    if modified_ms != resource.modified_ms:
        raise ValueError(f"Resource {resource.place} changed on src filesystem")
    if not resource.is_archive:
        shutil.copyfile(resource.place, place)
    elif zipfile.is_zipfile(resource.place):
        with zipfile.ZipFile(resource.place) as archive:
            archive.extractall(place)
    else:
        place.mkdir()
        subprocess.run(["tar", "-xf", str(resource.place), "-C", str(place)], check=True)  # as YARN does


def _configure(place: Path, settings: Mapping[str, str]) -> None:
    if settings and place.exists():
        lines = "".join(
            f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()
        )
        place.write_text(place.read_text().replace("</configuration>", f"{lines}</configuration>"))


def _script(
    environment: Mapping[str, str], first: Mapping[str, str], commands: Sequence[str], logs: Path
) -> str:
    def expanded(text: str) -> str:
        return _VARIABLE.sub(r"$\1", text.replace("<CPS>", ":").replace("<LOG_DIR>", str(logs)))

    names = [*first, *(name for name in environment if name not in first)]
    exports = [f'export {name}="{expanded(environment[name])}"' for name in names]
    command = expanded(" ".join(commands))
    return "\n".join(["#!/bin/bash", "set -o pipefail -e", *exports, f'exec /bin/bash -c "{command}"', ""])
