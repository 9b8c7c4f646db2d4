"""Alerts, and the health records of pipelines, in the store."""

from __future__ import annotations

from typing import Literal, assert_never

from nimbus import records
from nimbus.adapters.store.calls import Calls, readable
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.domain import writes as w
from nimbus.domain.alerts import Alert
from nimbus.domain.pipeline_health import PipelineHealth


def change(paths: Paths, write: w.AlertWrite) -> Operation:
    """The operation for a write."""
    match write:
        case w.CreateAlert(alert):
            return Operation("create", paths.alert(alert.id), records.ALERT.encode(alert))
        case w.PutAlert(alert):
            return Operation("set", paths.alert(alert.id), records.ALERT.encode(alert))
        case w.RemoveAlert(alert_id):
            return Operation("delete", paths.alert(alert_id))
        case w.PutHealth(health, is_new):
            kind: Literal["create", "set"] = "create" if is_new else "set"
            return Operation(kind, paths.health_of(health.name), records.HEALTH.encode(health))
        case w.RemoveHealth(pipeline):
            return Operation("delete", paths.health_of(pipeline))
        case _:
            assert_never(write)


def read_alerts(calls: Calls, paths: Paths) -> tuple[Alert, ...]:
    """All readable alerts, oldest first."""
    found = readable(records.ALERT, calls.records(paths.alerts), paths.alerts)
    return tuple(sorted(found, key=lambda alert: (alert.raised_at, alert.id)))


def read_health(calls: Calls, paths: Paths) -> tuple[PipelineHealth, ...]:
    """All readable health records of pipelines."""
    return tuple(readable(records.HEALTH, calls.records(paths.health), paths.health))
