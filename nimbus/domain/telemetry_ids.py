"""Ids of traces and of lineage. They are derived from our own ids, so a repeated event has the same id."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID, uuid5

from nimbus.domain.ids import AttemptId, ClusterId, RunId

_NAMESPACE = UUID("6f4f2b3e-5f1d-5c0e-9a55-2f1f0a3c7b61")
"""Namespace of the ids of lineage. It must never change."""


def trace_id(cluster: ClusterId, run: RunId) -> str:
    """Id of a run's trace: 32 hexadecimal characters."""
    return _digest(cluster, run)[:32]


def run_span_id(cluster: ClusterId, run: RunId) -> str:
    """Id of the root span of a run's trace: 16 hexadecimal characters."""
    return _digest(cluster, run)[32:48]


def attempt_span_id(cluster: ClusterId, attempt: AttemptId) -> str:
    """Id of an attempt's span: 16 hexadecimal characters."""
    return _digest(cluster, str(attempt))[:16]


def traceparent(cluster: ClusterId, attempt: AttemptId) -> str:
    """The parent of the spans that an attempt's own code creates.

    Source: W3C Trace Context, https://www.w3.org/TR/trace-context/
    """
    return f"00-{trace_id(cluster, attempt.run)}-{attempt_span_id(cluster, attempt)}-01"


def run_uuid(cluster: ClusterId, run: RunId) -> str:
    """The `runId` of a run in lineage."""
    return str(uuid5(_NAMESPACE, f"{cluster}/{run}"))


def attempt_uuid(cluster: ClusterId, attempt: AttemptId) -> str:
    """The `runId` of an attempt in lineage."""
    return str(uuid5(_NAMESPACE, f"{cluster}/{attempt}"))


def _digest(cluster: ClusterId, name: str) -> str:
    return sha256(f"{cluster}/{name}".encode()).hexdigest()
