"""Trace and lineage settings for tasks, so that their own spans and events have the right parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nimbus.domain.ids import AttemptId, ClusterId
from nimbus.domain.pipeline import SparkMode
from nimbus.domain.traces import attempt_uuid, run_uuid, traceparent
from nimbus.domain.workers import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTelemetry:
    """A worker's settings. Contains no secrets."""

    traces: bool = False
    """Whether spans of attempts are sent."""
    namespace: str = ""
    """Namespace of all jobs in lineage."""
    transport: Mapping[str, str] = field(default_factory=dict)
    """Properties that tell OpenLineage's listener in Spark where to send; empty: none are set."""

    def variables(self, cluster: ClusterId, attempt: AttemptId) -> dict[str, str]:
        """Variables for the environment of an attempt's driver."""
        return {"TRACEPARENT": traceparent(cluster, attempt)} if self.traces else {}

    def spark_properties(self, cluster: ClusterId, order: Assignment) -> dict[str, str]:
        """Properties for the Spark of an attempt; none on a shared Spark Connect server."""
        task = order.task
        if not (self.transport and task.kind.uses_spark and task.spark_mode is SparkMode.CLASSIC):
            return {}
        attempt = AttemptId.parse(order.attempt)
        told = {
            "parentJobNamespace": self.namespace,
            "parentJobName": f"{order.pipeline}.{task.name}",
            "parentRunId": attempt_uuid(cluster, attempt),
            "rootParentJobNamespace": self.namespace,
            "rootParentJobName": order.pipeline,
            "rootParentRunId": run_uuid(cluster, order.run),
        }
        return {f"spark.openlineage.{name}": value for name, value in {**self.transport, **told}.items()}
