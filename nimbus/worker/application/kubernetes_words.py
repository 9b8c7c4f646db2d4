"""Converts the status of a driver pod to a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nimbus.worker.application.manager import DriverReport, DriverState

_STATES = {
    "Pending": DriverState.WAITING,
    "Running": DriverState.RUNNING,
    "Succeeded": DriverState.GONE,
    "Failed": DriverState.GONE,
}
"""All phases except `Unknown`, which means that the pod's node does not answer."""
_CONTAINER = "spark-kubernetes-driver"
"""Spark's name of the driver's container."""


def report_of(pod: Mapping[str, Any]) -> DriverReport:
    """The report on a driver, from its pod's status."""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Unknown")
    state = _STATES.get(phase, DriverState.UNKNOWN)
    if state is DriverState.RUNNING and _has_ended(status):  # other containers of the pod still run
        state = DriverState.GONE
    words = [phase, *_reasons(pod, status)]
    return DriverReport(state, ": ".join(words)[:300])


def _has_ended(status: Mapping[str, Any]) -> bool:
    return any(
        one.get("name") == _CONTAINER and "terminated" in (one.get("state") or {})
        for one in status.get("containerStatuses") or ()
    )


def _reasons(pod: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        yield "it is being deleted"
    if status.get("reason"):  # as of an eviction
        yield _text(status)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield _text(condition)
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = one.get("state") or {}
        if waiting := state.get("waiting"):
            yield _text(waiting)
        if ended := state.get("terminated"):
            yield f"{_text(ended)}, exit code {ended.get('exitCode')}"


def _text(said: Mapping[str, Any]) -> str:
    return ", ".join(str(said[name]) for name in ("reason", "message") if said.get(name)) or "no reason"
