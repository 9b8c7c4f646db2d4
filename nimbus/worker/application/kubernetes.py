"""Drivers as pods of a Kubernetes cluster: submitted by Spark's own client, followed through the API server.

Guarantees:
  * The pod's name is derived from the attempt, and the API server refuses a second pod with that name. So at
    most one pod of an attempt exists at a time, and a lookup by name shows the outcome of a submission.
  * A pod is ours if it has an annotation with the tag from which its name was derived. No other pod is
    followed or deleted, and a deletion names the uid of the pod that was read.
  * The client creates the ConfigMap last. A pod without it cannot start: it is deleted, and submitted again.

Source: measured with Spark 4.3 and Kubernetes 1.20: the client creates the pod, then applies its Service,
NetworkPolicy and ConfigMap, and deletes the pod when that fails. It sets `restartPolicy: Never`.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from nimbus.java import JavaMissingError
from nimbus.worker.application.kubernetes_api import KubernetesApi, KubernetesRefusedError, Object
from nimbus.worker.application.manager import (
    ClusterUnreachableError,
    DriverState,
    DriverStatus,
    Submission,
    SubmissionRefusedError,
    SubmissionUnknownError,
)
from nimbus.worker.application.spark_client import ClientResult, SparkClient

NAME_VARIABLE = "NIMBUS_DRIVER"
VARIABLES = "spark.kubernetes.driverEnv"
LABEL = "nimbus-attempt"
"""Label of all our driver pods: `kubectl get pods -l nimbus-attempt`."""
_TAG = "nimbus-submission"
_LIST_S = 2.0
_COST = 20
"""How long a list is cached, as a multiple of its CPU time: lists cost 5 % of a core at most."""
_UNFIT = re.compile(r"[^a-z0-9]+")
_UNFIT_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME, _LONGEST_LABEL, _DIGEST = 50, 63, 12
"""A Service's name may have 63 characters; Spark appends 11 to ours."""
_STATUS = re.compile(r"Message: (.*?)\. Received status: Status\(.*?code=(\d+)", re.DOTALL)
_FINAL = ("400", "401", "403", "404", "405", "413", "415", "422")


class _BeingDeletedError(ClusterUnreachableError):
    """The pod is being deleted: it can be submitted again."""


class KubernetesManager:
    """See `nimbus.worker.application.manager.ClusterManager`. A driver's id is the name of its pod."""

    def __init__(self, client: SparkClient, api: KubernetesApi, namespace: str) -> None:
        self._client, self._api, self._namespace = client, api, namespace
        self._lock = threading.Lock()
        self._list_again_s = float("-inf")
        self._listed: Mapping[str, DriverStatus] | str = {}

    def submit(self, submission: Submission) -> str:
        """See `ClusterManager.submit`."""
        name = pod_name(submission.name)
        try:
            if self._stands(name):
                return name
        except KubernetesRefusedError as exc:
            raise SubmissionRefusedError(str(exc)) from exc
        try:
            result = self._client.submit(submission, self._conf(submission.name), submission.bootstrap_url)
        except OSError as exc:
            raise ClusterUnreachableError(f"Spark's client could not be started: {exc}") from exc
        except JavaMissingError as exc:
            raise SubmissionRefusedError(str(exc)) from exc
        if result.exit_code == 0:
            return name
        try:
            if self._stands(name):
                return name
        except _BeingDeletedError:
            pass
        except (ClusterUnreachableError, KubernetesRefusedError) as exc:
            raise SubmissionUnknownError(f"{_last_error(result)}; then {exc}") from exc
        raise _error_of(result)

    def _conf(self, tag: str) -> dict[str, str]:
        name = pod_name(tag)
        return {
            "spark.kubernetes.namespace": self._namespace,
            "spark.kubernetes.driver.pod.name": name,
            f"spark.kubernetes.driver.label.{LABEL}": _label_of(tag),
            f"spark.kubernetes.driver.annotation.{_TAG}": tag,
            f"{VARIABLES}.{NAME_VARIABLE}": name,
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }

    def _stands(self, name: str) -> bool:
        """True if the pod is submitted. A pod that cannot start is deleted.

        Raises:
            _BeingDeletedError: it is being deleted.
            ClusterUnreachableError: no answer.
            KubernetesRefusedError: we lack permission, or the pod with that name is not ours.
        """
        pod = self._api.pod(name)
        if pod is None:
            return False
        if not _is_ours(pod):
            raise KubernetesRefusedError(f"pod {name} is somebody else's: it has no annotation of ours")
        if pod["metadata"].get("deletionTimestamp"):
            raise _BeingDeletedError(f"pod {name} of an earlier submission is being deleted")
        if (pod.get("status") or {}).get("phase") != "Pending" or self._can_start(pod):
            return True
        self._api.delete(name, pod["metadata"]["uid"])
        raise _BeingDeletedError(f"pod {name} is half-made, and is deleted")

    def _can_start(self, pod: Object) -> bool:
        maps = [volume.get("configMap") or {} for volume in pod["spec"].get("volumes") or ()]
        wanted = [str(source["name"]) for source in maps if not source.get("optional") and source.get("name")]
        return all(map(self._api.has_config_map, wanted))

    def find(self, tag: str) -> str | None:
        """See `ClusterManager.find`."""
        report = self._asked(pod_name(tag))
        return None if report.state is DriverState.GONE else pod_name(tag)

    def probe(self, driver: str) -> DriverStatus:
        """See `ClusterManager.probe`. One list serves all drivers; missing ones are read individually."""
        listed = self._list()
        if isinstance(listed, str):
            return DriverStatus(DriverState.UNKNOWN, listed)
        if driver in listed:
            return listed[driver]
        try:
            return self._asked(driver)
        except ClusterUnreachableError as exc:
            return DriverStatus(DriverState.UNKNOWN, str(exc))

    def _list(self) -> Mapping[str, DriverStatus] | str:
        with self._lock:
            if time.monotonic() >= self._list_again_s:
                began_s = time.thread_time()
                try:
                    pods = self._api.pods(LABEL)
                    self._listed = {pod["metadata"]["name"]: report_of(pod) for pod in pods if _is_ours(pod)}
                except (ClusterUnreachableError, KubernetesRefusedError) as exc:
                    self._listed = str(exc)
                pause_s = max(_LIST_S, _COST * (time.thread_time() - began_s))
                self._list_again_s = time.monotonic() + pause_s
            return self._listed

    def _asked(self, driver: str) -> DriverStatus:
        try:
            pod = self._api.pod(driver)
        except KubernetesRefusedError as exc:
            raise ClusterUnreachableError(str(exc)) from exc
        if pod is None or not _is_ours(pod):
            return DriverStatus(DriverState.GONE, "there is no such pod")
        return report_of(pod)

    def kill(self, driver: str) -> None:
        """See `ClusterManager.kill`. Executors are deleted by Kubernetes: the driver's pod owns them."""
        try:
            pod = self._api.pod(driver)
            if pod is not None and _is_ours(pod):
                self._api.delete(driver, pod["metadata"]["uid"])
        except KubernetesRefusedError as exc:
            raise ClusterUnreachableError(str(exc)) from exc


def pod_name(tag: str) -> str:
    """The name of a submission's pod: a readable DNS label, unique for its tag."""
    digest = hashlib.sha256(tag.encode()).hexdigest()[:_DIGEST]
    told = _UNFIT.sub("-", tag.lower()).strip("-")[: _LONGEST_NAME - _DIGEST - 1].strip("-")
    return f"{told}-{digest}"


def _label_of(tag: str) -> str:
    return _UNFIT_LABEL.sub("-", tag)[-_LONGEST_LABEL:].strip("_.-")


def _is_ours(pod: Object) -> bool:
    metadata = pod["metadata"]
    tag = (metadata.get("annotations") or {}).get(_TAG)
    return isinstance(tag, str) and metadata.get("name") == pod_name(tag)


def _error_of(result: ClientResult) -> ClusterUnreachableError | SubmissionRefusedError:
    """Why the client has submitted nothing. Temporary errors are retried."""
    said = _last_error(result)
    if (answer := _STATUS.search(result.said)) is not None:
        message, code = answer[1][:300], answer[2]
        if code in _FINAL and "exceeded quota" not in message:
            return SubmissionRefusedError(f"Kubernetes refuses the driver: {message}")
        return ClusterUnreachableError(f"Kubernetes does not take the driver now: {message}")
    if result.exit_code is None or result.exit_code < 0 or "KubernetesClientException" in result.said:
        return ClusterUnreachableError(said)
    return SubmissionRefusedError(said)


def _last_error(result: ClientResult) -> str:
    lines = [line.strip() for line in result.said.splitlines()]
    told = [line for line in lines if ("Exception" in line or "Error" in line) and not line.startswith("at ")]
    how = "was ended at its timeout" if result.exit_code is None else f"ended with {result.exit_code}"
    return f"Spark's client {how}: {(told or lines or [''])[-1][:300]}"


_STATES = {
    "Pending": DriverState.WAITING,
    "Running": DriverState.RUNNING,
    "Succeeded": DriverState.GONE,
    "Failed": DriverState.GONE,
}
"""All phases except `Unknown`, which means that the pod's node does not answer."""
_CONTAINER = "spark-kubernetes-driver"


def report_of(pod: Mapping[str, Any]) -> DriverStatus:
    """The report on a driver, from its pod's status."""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Unknown")
    state = _STATES.get(phase, DriverState.UNKNOWN)
    if state is DriverState.RUNNING and _has_ended(status):  # other containers of the pod still run
        state = DriverState.GONE
    words = [phase, *_reasons(pod, status)]
    return DriverStatus(state, ": ".join(words)[:300])


def _has_ended(status: Mapping[str, Any]) -> bool:
    return any(
        container.get("name") == _CONTAINER and "terminated" in (container.get("state") or {})
        for container in status.get("containerStatuses") or ()
    )


def _reasons(pod: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        yield "it is being deleted"
    if status.get("reason"):  # as of an eviction
        yield _text(status)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield _text(condition)
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        if waiting := state.get("waiting"):
            yield _text(waiting)
        if ended := state.get("terminated"):
            yield f"{_text(ended)}, exit code {ended.get('exitCode')}"


def _text(said: Mapping[str, Any]) -> str:
    return ", ".join(str(said[name]) for name in ("reason", "message") if said.get(name)) or "no reason"
