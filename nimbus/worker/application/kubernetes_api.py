"""The API server of a Kubernetes cluster, as far as driver pods need it.

The standard library alone: four requests do not need a client library. Any thread.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nimbus.domain.errors import NimbusError
from nimbus.worker.application.asking import Answer, NoAnswerError, NotSentError, ask
from nimbus.worker.application.manager import ClusterUnreachableError

Object = Mapping[str, Any]
"""Of the API, as JSON."""
_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class KubernetesRefusedError(NimbusError):
    """The API server does not let us, or does not understand us."""

    code = "kubernetes_refused"


class KubernetesApi:
    """One namespace. Each method raises ClusterUnreachableError and KubernetesRefusedError."""

    def __init__(
        self, master: str, namespace: str, ca_file: Path | None, token: Callable[[], str | None]
    ) -> None:
        """Make it.

        Args:
            master: As Spark spells it, `k8s://https://host:port`.
            namespace: Of the pods.
            ca_file: Of the authority that signed the server's certificate; None: those of the system.
            token: Asked for each request. Raises NimbusError.
        """
        server = master.removeprefix("k8s://")
        self.server = server if "://" in server else f"https://{server}"
        self._base = f"{self.server}/api/v1/namespaces/{quote(namespace, safe='')}"
        self._ca_file, self._token = ca_file, token

    def pod(self, name: str) -> Object | None:
        """Read a pod, as it is now; None: there is none."""
        answer = self._ask("GET", f"pods/{quote(name, safe='')}")
        return None if answer.status == HTTPStatus.NOT_FOUND else answer.said

    def pods(self, label: str) -> list[Object]:
        """List pods that have a label, as the server's cache knows them: that costs its database nothing."""
        answer = self._ask("GET", f"pods?labelSelector={quote(label, safe='')}&resourceVersion=0")
        return list(answer.said.get("items") or ())

    def has_config_map(self, name: str) -> bool:
        """Whether there is such a ConfigMap."""
        return self._ask("GET", f"configmaps/{quote(name, safe='')}").status != HTTPStatus.NOT_FOUND

    def delete(self, name: str, uid: str) -> None:
        """Delete a pod, unless it is another one of that name."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            self._ask("DELETE", f"pods/{quote(name, safe='')}", body)
        except _ConflictError:
            return

    def _ask(self, method: str, what: str, body: Object | None = None) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        try:
            token = self._token()
        except NimbusError as exc:
            raise ClusterUnreachableError(str(exc)) from exc
        try:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            answer = ask(method, f"{self._base}/{what}", data, headers, self._verify())
        except (NotSentError, NoAnswerError, OSError) as exc:
            raise ClusterUnreachableError(f"{self.server} does not answer: {exc}") from exc
        if answer.status < HTTPStatus.BAD_REQUEST or answer.status == HTTPStatus.NOT_FOUND:
            return answer
        said = f"{self.server} says {answer.status}: {str(answer.said.get('message', ''))[:300]}"
        if answer.status == HTTPStatus.CONFLICT:
            raise _ConflictError(said)
        if answer.status in _LATER or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ClusterUnreachableError(said)
        raise KubernetesRefusedError(said)

    def _verify(self) -> ssl.SSLContext | None:
        """Raises OSError."""
        if not self.server.startswith("https"):
            return None
        return _trusting(self._ca_file, None if self._ca_file is None else self._ca_file.stat().st_mtime_ns)


class _ConflictError(ClusterUnreachableError):
    """What is there is not what we have seen."""


@lru_cache(maxsize=32)
def _trusting(ca_file: Path | None, _changed: int | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)
