"""The chart against a real kube-apiserver: each option in a dry run of the server, installation, upgrade.

Needs the programs `etcd` and `kube-apiserver` on PATH or in the folder that NIMBUS_KUBE_PROGRAMS names. No
controller and no node runs: objects are checked and stored, and no pod starts. Objects of Prometheus are left
out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest
import yaml

from nimbus.localstack.ports import free_port
from tests.deploy.debian import PROJECT, until
from tests.deploy.test_chart import ALL, CHART, TOOLS, VALUES

_PATH = f"{os.environ.get('NIMBUS_KUBE_PROGRAMS', '')}:{os.environ['PATH']}"
_LACKS = [name for name in ("etcd", "kube-apiserver") if shutil.which(name, path=_PATH) is None]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(_LACKS), reason=f"needs {' and '.join(_LACKS)} in the folder NIMBUS_KUBE_PROGRAMS"
    ),
    pytest.mark.timeout(900),
]
_OPTIONS = {name: value for name, value in ALL.items() if name not in VALUES and name != "monitoring"}
_VARIANTS = {
    "least": VALUES,
    "all": VALUES | _OPTIONS,
    **{one: VALUES | {one: _OPTIONS[one]} for one in _OPTIONS},
}


@dataclass(frozen=True)
class Cluster:
    """A kube-apiserver with an empty namespace `prod`."""

    config: Path
    folder: Path

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl or helm."""
        words = [
            str(TOOLS / command[0]),
            "--kubeconfig",
            str(self.config),
            "--namespace",
            "prod",
            *command[1:],
        ]
        return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=120, check=False)

    def values(self, values: dict[str, Any]) -> str:
        """A file with these values."""
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        return str(file)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    subprocess.run([PROJECT / "scripts/chart-tools"], check=True, timeout=600)
    folder = tmp_path_factory.mktemp("kubernetes")
    client, peer, secure = (free_port() for _ in range(3))
    etcd = ["etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{client}"]
    etcd += [
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
    ]
    (folder / "tokens.csv").write_text('token,admin,1,"system:masters"\n')
    subprocess.run(["openssl", "genrsa", "-out", folder / "key", "2048"], check=True, capture_output=True)
    server = ["kube-apiserver", f"--etcd-servers=http://127.0.0.1:{client}", "--authorization-mode=RBAC"]
    server += ["--bind-address=127.0.0.1", f"--secure-port={secure}", f"--cert-dir={folder}/certificates"]
    server += ["--service-account-issuer=https://127.0.0.1", f"--service-account-key-file={folder}/key"]
    server += [f"--service-account-signing-key-file={folder}/key", f"--token-auth-file={folder}/tokens.csv"]
    made = Cluster(folder / "config", folder)
    made.config.write_text(yaml.safe_dump(_kubeconfig(secure)))
    with _started(etcd), _started([*server, "--service-cluster-ip-range=10.0.0.0/24"]):
        until(
            "the server answers", lambda: made.run("kubectl", "create", "namespace", "prod").returncode == 0
        )
        yield made


@pytest.mark.parametrize("name", _VARIANTS)
def test_server_accepts_each_option(cluster: Cluster, name: str) -> None:
    objects = cluster.run("helm", "template", "etl", str(CHART), "-f", cluster.values(_VARIANTS[name])).stdout

    done = cluster.run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=objects)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(server dry run)") == objects.count("\nkind: ") >= 8
    assert "Warning" not in done.stderr


def test_server_refuses_an_object_that_is_wrong(cluster: Cluster) -> None:
    objects = cluster.run("helm", "template", "etl", str(CHART), "-f", cluster.values(VALUES)).stdout
    wrong = objects.replace("containerPort: 8470", "containerPort: 84700")
    assert wrong != objects

    done = cluster.run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=wrong)

    assert "must be between 1 and 65535" in done.stderr


def test_release_is_installed_and_gets_every_option_by_an_upgrade(cluster: Cluster) -> None:
    for verb, values in (("install", VALUES), ("upgrade", VALUES | _OPTIONS)):
        done = cluster.run("helm", verb, "etl", str(CHART), "-f", cluster.values(values))
        assert done.returncode == 0, done.stderr

    found = cluster.run(
        "kubectl", "get", "statefulsets,networkpolicies,ingresses,poddisruptionbudgets", "-o", "name"
    )
    assert sorted(found.stdout.split()) == [
        "ingress.networking.k8s.io/etl",
        "networkpolicy.networking.k8s.io/etl-schedulers",
        "poddisruptionbudget.policy/etl-schedulers",
        "statefulset.apps/etl-scheduler",
        "statefulset.apps/etl-worker",
    ]


def _kubeconfig(port: int) -> dict[str, Any]:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": server}],
        "users": [{"name": "here", "user": {"token": "token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    }


@contextmanager
def _started(command: list[str]) -> Iterator[None]:
    program = shutil.which(command[0], path=_PATH)
    assert program
    with Popen([program, *command[1:]], stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
