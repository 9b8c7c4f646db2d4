"""A Kubernetes cluster for a test: the test server or a real kube-apiserver, and a kubelet for its pods.

A real one is used if these variables are set:
  NIMBUS_TEST_KUBERNETES             its URL
  NIMBUS_TEST_KUBERNETES_TOKEN_FILE  a token with all permissions
  NIMBUS_TEST_KUBERNETES_CA_FILE     the authority of its certificate
No scheduler, controllers or kubelet may run there: `tests.nimbus.kubernetes.kubelet` replaces them.
"""

from __future__ import annotations

import os
import ssl
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from nimbus.worker.application.kubernetes import VARIABLES, KubernetesManager
from nimbus.worker.application.kubernetes_api import KubernetesApi
from nimbus.worker.application.spark_client import SparkClient
from tests.nimbus.kubernetes import quick_client
from tests.nimbus.kubernetes.api_server import ApiServer
from tests.nimbus.kubernetes.kubelet import Command, Kubelet, bootstrap_alone

_REAL = "NIMBUS_TEST_KUBERNETES"


@dataclass(kw_only=True)
class Place:
    """Address and files of a cluster."""

    root: Path
    url: str
    token_file: Path
    ca_file: Path | None
    namespace: str
    server: ApiServer | None
    """The test server, for faults; None: it is a real one."""
    kubelet: Kubelet

    @property
    def faults(self) -> ApiServer:
        assert self.server is not None
        return self.server

    @property
    def conf(self) -> dict[str, str]:
        """The Spark configuration of a target."""
        made = {
            "spark.kubernetes.container.image": "spark:test",
            "spark.kubernetes.authenticate.submission.oauthTokenFile": str(self.token_file),
        }
        if self.ca_file is not None:
            made["spark.kubernetes.authenticate.submission.caCertFile"] = str(self.ca_file)
        return made

    def manager(self, **more: Any) -> KubernetesManager:
        """A manager with the quick client, unless SPARK_HOME is given."""
        home = more.pop("spark_home", None) or self._quick_home()
        client = SparkClient(
            master=f"k8s://{self.url}",
            folder=self.root / "client",
            java_home=more.pop("java_home", lambda: Path("/nowhere")),
            variables=VARIABLES,
            environment={"SPARK_HOME": str(home)},
            timeout=timedelta(seconds=more.pop("timeout_s", 60)),
        )
        return KubernetesManager(client, self.api(), self.namespace)

    def api(self, token: str | None = None) -> KubernetesApi:
        said = token or self.token_file.read_text().strip()
        return KubernetesApi(f"k8s://{self.url}", self.namespace, self.ca_file, lambda: said)

    def _quick_home(self) -> Path:
        program = self.root / "quick" / "bin" / "spark-submit"
        if not program.exists():
            program.parent.mkdir(parents=True)
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {quick_client.__file__} "$@"\n')
            program.chmod(0o755)
        return program.parent.parent

    def ask(self, method: str, what: str, body: object = None) -> httpx.Response:
        """Send a request to the API server as an administrator."""
        headers = {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}
        verify: Any = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
        return httpx.request(
            method, f"{self.url}/api/v1/{what}", json=body, headers=headers, verify=verify, timeout=10
        )

    def pods(self, label: str = "") -> list[dict[str, Any]]:
        answer = self.ask("GET", f"namespaces/{self.namespace}/pods?labelSelector={label}")
        found: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        return found


@contextmanager
def kubernetes(root: Path, kind: str, command: Command = bootstrap_alone) -> Iterator[Place]:
    """A cluster with an empty namespace. Skips the test if a real one is wanted and there is none."""
    namespace, server, ca_file = f"nimbus-{uuid.uuid4().hex[:8]}", None, None
    if kind == "real":
        if _REAL not in os.environ:
            pytest.skip(f"{_REAL} names no real kube-apiserver")
        url, ca_file = os.environ[_REAL], Path(os.environ[f"{_REAL}_CA_FILE"])
        token_file = Path(os.environ[f"{_REAL}_TOKEN_FILE"])
    else:
        server = ApiServer()
        server.store.namespaces.add(namespace)
        server.start()
        url, token_file = server.url, root / "token"
        token_file.write_text("admin-token")  # Spark does not accept a newline at its end
    kubelet = Kubelet(root / "pods", url, token_file.read_text().strip(), ca_file, command)
    kubelet.namespace = namespace
    place = Place(
        root=root,
        url=url,
        token_file=token_file,
        ca_file=ca_file,
        namespace=namespace,
        server=server,
        kubelet=kubelet,
    )
    try:
        if server is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            place.ask("POST", "namespaces", body).raise_for_status()
        kubelet.start()
        yield place
    finally:
        kubelet.stop()
        if server is not None:
            server.stop()
