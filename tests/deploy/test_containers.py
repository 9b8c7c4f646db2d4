"""The images of `deploy/container`: built with buildah, run with podman, killed, succeeded over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.debian import PROJECT, authorities, bare, until

_TOOLS = ("buildah", "podman", "runc", "debootstrap")
_LACKS = [name for name in _TOOLS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(bool(_LACKS), reason=f"needs {' '.join(_LACKS)} (apt-get install)"),
    pytest.mark.timeout(3600),
]
_BASE = "localhost/nimbus-test-debian:12-slim"
_PODMAN = ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
_TASK = """\
from pyspark.sql import SparkSession
print(SparkSession.builder.getOrCreate().range(1000).count())
"""
_PIPELINE = """\
schema: 1
name: counts
description: One Spark task.
files: ["tasks/*.py"]
tasks:
  count: {type: pyspark, script: tasks/count.py}
"""


def _run(*command: str | Path, **env: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1800, check=False, cwd=PROJECT, env=os.environ | env
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    """Names of the two images."""
    _run("make", "dist")
    container = _run("buildah", "from", "scratch")
    _run("buildah", "add", "-q", container, bare(), "/")
    _run("buildah", "commit", "-q", "--rm", container, _BASE)
    trusted, built = authorities(), {}
    for target in ("scheduler", "worker"):
        built[target] = f"localhost/nimbus-test-{target}"
        _run(
            *("buildah", "bud", "-q", "--layers", "--format", "docker", "--isolation", "chroot"),
            *("--volume", f"{trusted.parent}:/of-host:ro", "--build-arg", f"BASE={_BASE}"),
            *("--build-arg", f"PIP_OPTIONS=--cert /of-host/{trusted.name}"),
            *("-f", "deploy/container/Dockerfile", "--target", target, "-t", built[target], "."),
        )
    return built


def test_containers_run_tasks_and_a_killed_leader_is_succeeded(
    images: dict[str, str], services: dict[str, object], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    (tmp_path / "counts/tasks").mkdir(parents=True)
    (tmp_path / "counts/pipeline.yaml").write_text(_PIPELINE)
    (tmp_path / "counts/tasks/count.py").write_text(_TASK)
    started = []
    try:
        for number, kind in ((1, "scheduler"), (2, "scheduler"), (3, "worker")):
            config = tmp_path / f"{number}.yaml"
            config.write_text(yaml.safe_dump(_config(services, number)))
            name = f"nimbus-test-{os.getpid()}-{number}"
            mounts = ("-v", f"{config}:/etc/nimbus/nimbus.yaml:ro", "-v", f"{data}:/data")
            limits = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--cap-drop", "ALL")
            root = ("--read-only", "--tmpfs", "/tmp:mode=1777", "--network", "host")
            _run(*_PODMAN, "run", "-d", "--name", name, *root, *limits, *mounts, images[kind])
            started.append(name)
        servers = {"NIMBUS_SERVER": "http://127.0.0.1:8721,http://127.0.0.1:8722"}
        nimbus = Path(sys.executable).parent / "nimbus"
        until("one leads", lambda: "c-" in _leader(servers))
        leader = _leader(servers)
        publish = (nimbus, "pipeline", "publish", tmp_path / "counts", "--activate")
        _run(*publish, "--config", tmp_path / "1.yaml", **servers)
        _run(nimbus, "run", "start", "counts", "--watch", **servers)

        _run(*_PODMAN, "kill", "-s", "KILL", started[int(leader[-1]) - 1])
        _run(nimbus, "run", "start", "counts", "--watch", **servers)

        assert {leader, _leader(servers)} == {"c-1", "c-2"}
    finally:
        for name in started:
            _run(*_PODMAN, "rm", "-f", "-v", name)


def test_scheduler_has_neither_spark_nor_java(images: dict[str, str]) -> None:
    look = "import shutil, importlib.util as i; print(i.find_spec('pyspark'), shutil.which('java'))"
    limits = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
    python = (*limits, "--entrypoint", "/opt/nimbus/bin/python", images["scheduler"], "-c", look)
    assert _run(*_PODMAN, "run", "--rm", *python) == "None None"


def _leader(servers: dict[str, str]) -> str:
    """The id of the leader; empty: nobody leads."""
    words = [str(Path(sys.executable).parent / "nimbus"), "cluster", "leader"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env=os.environ | servers
    )
    return done.stdout.partition(" ")[0]


def _config(services: dict[str, object], number: int) -> dict[str, object]:
    port = 8720 + number
    return {
        **services,
        "cluster": {"root": "/containers"},
        "scheduler": {"id": f"c-{number}", "host": "127.0.0.1", "port": port, "state_dir": "/var/lib/nimbus"},
        "worker": {"embedded": False, "id": f"w-{number}", "slots": 2, "data": "/data"},
    }
