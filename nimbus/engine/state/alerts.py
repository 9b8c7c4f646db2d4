"""Updates alerts, and the health of pipelines."""

from __future__ import annotations

from collections.abc import Iterable

from nimbus.domain import writes as w
from nimbus.domain.alerts import Alert, Claim, Failure
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.engine.agenda import about_alert
from nimbus.engine.state.catalog import Catalog


class Alerts(Catalog):
    """Alerts that are waiting, being sent or ended, and health."""

    def _apply_alert(self, write: w.AlertWrite) -> None:
        match write:
            case w.CreateAlert(alert) | w.PutAlert(alert):
                self.put_alert(alert)
            case w.RemoveAlert(alert_id):
                self.forget_alert(alert_id)
            case w.PutHealth(health, _):
                self.health[health.name] = health
                self._look_at_deadline(health.name)
            case w.RemoveHealth(name):
                self.health.pop(name, None)

    def put_alerts(self, alerts: Iterable[Alert], health: Iterable[PipelineHealth]) -> None:
        """Replace all alerts and health records by those that were read."""
        kept = {alert.id: alert for alert in alerts}
        for gone in self.outbox.ids() - kept.keys():
            self.forget_alert(gone)
        for alert in kept.values():
            if self.outbox.get(alert.id) != alert:
                self.put_alert(alert)
        self.health = {one.name: one for one in health}

    def put_alert(self, alert: Alert) -> None:
        """Add or replace an alert."""
        freed = self.outbox.put(alert)
        self.agenda.add(about_alert(alert.id))
        if freed is not None:
            self.agenda.add(about_alert(freed))

    def forget_alert(self, alert: str) -> None:
        """Remove an alert that is no longer in ZooKeeper."""
        self.agenda.forget(about_alert(alert))
        if (freed := self.outbox.remove(alert)) is not None:
            self.agenda.add(about_alert(freed))

    def alert_tried(self, claim: Claim, failure: Failure | None) -> None:
        """Record the result of a try to send an alert."""
        if self.outbox.answer(claim, failure):
            self.agenda.add(about_alert(claim[0]))
