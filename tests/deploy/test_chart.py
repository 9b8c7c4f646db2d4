"""The chart of `deploy/helm`: Kubernetes accepts its objects, and our daemons what their pods give them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nimbus.config import Settings, load_settings
from tests.deploy.debian import PROJECT

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]
CHART = PROJECT / "deploy/helm/nimbus"
TOOLS = PROJECT / "build/chart-tools"
VALUES: dict[str, Any] = {
    "images": {"scheduler": "registry.example.com/s:1", "worker": "registry.example.com/w:1"},
    "config": {
        "zookeeper": {"hosts": "zk-0.zk:2181,zk-1.zk:2181,zk-2.zk:2181"},
        "storage": {"bucket": "nimbus"},
        "worker": {"data": "s3://outputs/nimbus"},
    },
    "tlsSecret": "nimbus-tls",
    "tokensSecret": "nimbus-tokens",
}
ALL: dict[str, Any] = VALUES | {
    "environmentSecret": "nimbus-environment",
    "outputs": {"claim": "outputs"},
    "serviceAccount": {"driverPods": True, "annotations": {"example.com/role": "nimbus"}},
    "ingress": {"enabled": True, "host": "nimbus.example.com", "className": "x", "tlsSecret": "ingress-tls"},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}]},
    "monitoring": {"enabled": True, "tokenSecret": "viewer", "labels": {"release": "prometheus"}},
}


@pytest.fixture(scope="module")
def helm() -> Path:
    subprocess.run([PROJECT / "scripts/chart-tools"], check=True, timeout=600)
    return TOOLS / "helm"


def _helm(
    helm: Path, tmp_path: Path, values: dict[str, Any], *command: str
) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    words = [str(helm), *command, str(CHART), "-f", str(file)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def _objects(helm: Path, tmp_path: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    done = _helm(helm, tmp_path, values, "template", "etl", "--namespace", "prod")
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


@pytest.mark.parametrize("values", [VALUES, ALL], ids=["least", "all"])
def test_chart_is_what_kubernetes_accepts(helm: Path, tmp_path: Path, values: dict[str, Any]) -> None:
    lint = _helm(helm, tmp_path, values, "lint", "--strict")
    assert lint.returncode == 0, lint.stdout

    ours = [found for found in _objects(helm, tmp_path, values) if "coreos" not in found["apiVersion"]]
    assert len(ours) >= 8
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(ours))
    for version in ("1.25", "1.31", "1.37"):
        check = [str(TOOLS / "venv/bin/kubernetes-validate"), "--strict", "-k", version, str(file)]
        done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout


def test_selectors_find_the_pods(helm: Path, tmp_path: Path) -> None:
    objects = _objects(helm, tmp_path, ALL)
    pods = [
        found["spec"]["template"]["metadata"]["labels"] for found in objects if found["kind"] == "StatefulSet"
    ]
    selectors = [found["spec"]["selector"] for found in objects if found["kind"] == "Service"]
    selectors += [
        found["spec"]["podSelector"]["matchLabels"] for found in objects if found["kind"] == "NetworkPolicy"
    ]

    assert len(selectors) == 4
    for selector in selectors:
        assert sum(selector.items() <= labels.items() for labels in pods) == 1


def test_daemons_accept_the_configuration_of_their_pods(helm: Path, tmp_path: Path) -> None:
    objects = _objects(helm, tmp_path, ALL)
    scheduler, worker = _settings(objects, "scheduler", tmp_path), _settings(objects, "worker", tmp_path)

    assert scheduler.scheduler.id == "etl-scheduler-0"
    assert scheduler.scheduler.advertise_url == "https://etl-scheduler-0.etl-schedulers.prod.svc:8470"
    assert scheduler.scheduler.allowed_hosts == ["etl.prod.svc", "nimbus.example.com"]
    assert not scheduler.worker.embedded
    assert worker.worker.id == "etl-worker-0"
    assert worker.worker.drain_timeout.total_seconds() == 3600


def test_pod_gets_the_time_that_its_attempts_get(helm: Path, tmp_path: Path) -> None:
    worker = _pods(_objects(helm, tmp_path, VALUES), "worker")

    assert worker["terminationGracePeriodSeconds"] == 3660


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tlsSecret": ""}, "tlsSecret"),
        ({"config": {"storage": {}, "zookeeper": {}, "worker": {}}}, "hosts"),
        ({"schedulers": {"replica": 3}}, "replica"),
        ({"images": {}}, "is required"),
    ],
)
def test_bad_values_are_refused(helm: Path, tmp_path: Path, change: dict[str, Any], said: str) -> None:
    done = _helm(helm, tmp_path, VALUES | change, "template", "etl")

    assert done.returncode != 0
    assert said in done.stderr


def _pods(objects: list[dict[str, Any]], component: str) -> dict[str, Any]:
    (found,) = (
        one
        for one in objects
        if one["kind"] == "StatefulSet" and one["metadata"]["name"] == f"etl-{component}"
    )
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def _settings(objects: list[dict[str, Any]], component: str, tmp_path: Path) -> Settings:
    """What the first pod of a StatefulSet reads."""
    (config,) = (
        one["data"] for one in objects if one["kind"] == "ConfigMap" and "nimbus.yaml" in one["data"]
    )
    file = tmp_path / "nimbus.yaml"
    file.write_text(config["nimbus.yaml"])
    pod = f"etl-{component}-0"
    variables = _pods(objects, component)["containers"][0]["env"]
    return load_settings(
        file, {one["name"]: one.get("value", pod).replace("$(POD_NAME)", pod) for one in variables}
    )
