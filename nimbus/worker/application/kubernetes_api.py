"""The requests for driver pods to the Kubernetes API server, with the standard library only. Any thread."""

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
from nimbus.worker.application.manager import (
    ClusterUnreachableError,
    NoAnswerError,
    NotSentError,
    Response,
    ask,
)

Object = Mapping[str, Any]
_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class KubernetesRefusedError(NimbusError):
    """The API server refused a request: no permission, or an invalid request."""

    code = "kubernetes_refused"


class KubernetesApi:
    """One namespace. Each method raises ClusterUnreachableError and KubernetesRefusedError."""

    def __init__(
        self, master: str, namespace: str, ca_file: Path | None, token: Callable[[], str | None]
    ) -> None:
        """`ca_file`: None: those of the system. `token`: called for each request; raises NimbusError."""
        server = master.removeprefix("k8s://")
        self.server = server if "://" in server else f"https://{server}"
        self._base = f"{self.server}/api/v1/namespaces/{quote(namespace, safe='')}"
        self._ca_file, self._token = ca_file, token

    def pod(self, name: str) -> Object | None:
        """Read a pod's current state; None if it does not exist."""
        answer = self._ask("GET", f"pods/{quote(name, safe='')}")
        return None if answer.status == HTTPStatus.NOT_FOUND else answer.said

    def pods(self, label: str) -> list[Object]:
        """List pods with a label from the server's cache, without a read of its database."""
        answer = self._ask("GET", f"pods?labelSelector={quote(label, safe='')}&resourceVersion=0")
        return list(answer.said.get("items") or ())

    def has_config_map(self, name: str) -> bool:
        """True if the ConfigMap exists."""
        return self._ask("GET", f"configmaps/{quote(name, safe='')}").status != HTTPStatus.NOT_FOUND

    def delete(self, name: str, uid: str) -> None:
        """Delete a pod, unless another pod has its name now."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            self._ask("DELETE", f"pods/{quote(name, safe='')}", body)
        except _ConflictError:
            return

    def _ask(self, method: str, what: str, body: Object | None = None) -> Response:
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = ask(method, f"{self._base}/{what}", data, token=self._token, verify=self._verify())
        except NotSentError as exc:
            raise ClusterUnreachableError(f"{self.server} cannot be asked: {exc}") from exc
        except (NoAnswerError, OSError) as exc:
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
    """The object has changed since it was read."""


@lru_cache(maxsize=32)
def _trusting(ca_file: Path | None, _changed: int | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)
