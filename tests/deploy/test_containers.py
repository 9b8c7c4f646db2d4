"""The images of `deploy/container`: built with buildah, run with podman, killed, succeeded over."""

from __future__ import annotations

import json
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


# Writes the configuration as the image `zookeeper` does, from the variables that compose.yaml sets.
_ZOOKEEPER = """\
printf '%s\\n' dataDir=/data tickTime=2000 initLimit=5 syncLimit=2 standaloneEnabled=true > /tmp/zoo.cfg
echo "admin.enableServer=$ZOO_ADMINSERVER_ENABLED" >> /tmp/zoo.cfg
echo "${ZOO_SERVERS:-server.1=localhost:2888:3888;2181}" >> /tmp/zoo.cfg
for entry in $ZOO_CFG_EXTRA; do echo "$entry" >> /tmp/zoo.cfg; done
echo 1 > /data/myid
exec java -cp '/opt/nimbus/lib/python3.11/site-packages/pyspark/jars/*' \
  org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
"""
_CONF = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
_NET = "nimbus-test-compose"


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


def test_compose_file_starts_a_cluster_in_which_a_killed_leader_is_succeeded(
    images: dict[str, str], tmp_path: Path
) -> None:
    """Without a registry: images of the same names and programs stand for those of ZooKeeper and rclone."""
    tools = PROJECT / "build/compose-tools"
    if not (tools / "bin/podman-compose").exists():
        _run(sys.executable, "-m", "venv", tools)
        _run(tools / "bin/pip", "install", "-q", "podman-compose>=1.3,<2")
    _stand_in(images["worker"], "docker.io/library/zookeeper:3.9", ("/bin/sh", "-c", _ZOOKEEPER))
    _stand_in(images["worker"], "docker.io/rclone/rclone:1.71", ("rclone",))
    for service, kind in (("scheduler-1", "scheduler"), ("scheduler-2", "scheduler"), ("worker-1", "worker")):
        _run("buildah", "tag", images[kind], f"localhost/container_{service}")
    (tmp_path / "counts/tasks").mkdir(parents=True)
    (tmp_path / "counts/pipeline.yaml").write_text(_PIPELINE)
    (tmp_path / "counts/tasks/count.py").write_text(_TASK)
    (tmp_path / "containers.conf").write_text(_CONF)
    _run("ip", "netns", "add", _NET)  # the ports of compose.yaml may be taken outside
    inside = ("nsenter", f"--net=/run/netns/{_NET}")
    _run("ip", "-n", _NET, "link", "set", "lo", "up")
    compose = (*inside, tools / "bin/podman-compose", "-f", "deploy/container/compose.yaml")
    podman = {"CONTAINERS_CONF": str(tmp_path / "containers.conf")}
    servers = {"NIMBUS_SERVER": "http://127.0.0.1:8470,http://127.0.0.1:8471"}
    nimbus = (*inside, Path(sys.executable).parent / "nimbus")
    try:
        _run(*compose, "up", "-d", "--no-build", **podman)
        until("one leads", lambda: "scheduler-" in _leader(servers, inside))
        leader = _leader(servers, inside)
        publish = (*nimbus, "pipeline", "publish", tmp_path / "counts", "--activate")
        _run(*publish, "--config", "deploy/container/trial.yaml", **servers)
        _run(*nimbus, "run", "start", "counts", "--watch", **servers)

        _run(*compose, "kill", "-s", "KILL", leader, **podman)
        until("another leads", lambda: _leader(servers, inside) not in ("", leader))
        _run(*nimbus, "run", "start", "counts", "--watch", **servers)
    finally:
        _run(*compose, "down", "-v", "-t", "5", **podman)
        _run("ip", "netns", "del", _NET)


def test_scheduler_has_neither_spark_nor_java(images: dict[str, str]) -> None:
    look = "import shutil, importlib.util as i; print(i.find_spec('pyspark'), shutil.which('java'))"
    limits = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
    python = (*limits, "--entrypoint", "/opt/nimbus/bin/python", images["scheduler"], "-c", look)
    assert _run(*_PODMAN, "run", "--rm", *python) == "None None"


def _stand_in(image: str, name: str, entrypoint: tuple[str, ...]) -> None:
    """Make an image with this name: a worker's, which has Java and ZooKeeper's jars, and rclone."""
    container = _run("buildah", "from", image)
    _run("buildah", "copy", container, Path(sys.executable).parent / "rclone", "/usr/local/bin/rclone")
    _run("buildah", "config", "--user", "0", "--entrypoint", json.dumps(entrypoint), "--cmd", "", container)
    _run("buildah", "commit", "-q", "--rm", container, name)


def _leader(servers: dict[str, str], inside: tuple[str, ...] = ()) -> str:
    """The id of the leader; empty: nobody leads."""
    words = [*inside, str(Path(sys.executable).parent / "nimbus"), "cluster", "leader"]
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
