"""What a task is told of the trace and the lineage that it belongs to, so that what it sends itself nests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nimbus.domain.ids import AttemptId, ClusterId
from nimbus.domain.pipeline import SparkMode
from nimbus.domain.telemetry_ids import attempt_uuid, run_uuid, traceparent
from nimbus.domain.workers import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTelemetry:
    """How a worker is set up for it. Holds no secrets."""

    traces: bool = False
    """Spans of attempts are sent."""
    namespace: str = ""
    """Of all jobs in lineage."""
    transport: Mapping[str, str] = field(default_factory=dict)
    """Properties of OpenLineage's listener in Spark that say where to send; empty: it is told nothing."""

    def variables(self, cluster: ClusterId, attempt: AttemptId) -> dict[str, str]:
        """For the environment of an attempt's driver."""
        return {"TRACEPARENT": traceparent(cluster, attempt)} if self.traces else {}

    def spark_properties(self, cluster: ClusterId, order: Assignment) -> dict[str, str]:
        """For the Spark of an attempt. On a Spark Connect server, which is for many, there are none."""
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
