"""Updates alerts, and the health of pipelines."""

from __future__ import annotations

from collections.abc import Iterable

from nimbus.domain.alerts import Alert, Claim, DeliveryFailure
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.engine.agenda import Agenda, about_alert
from nimbus.engine.outbox import Outbox


class Alerts:
    """Alerts that are waiting, being sent or ended, and health."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.outbox = Outbox()
        self.health: dict[PipelineName, PipelineHealth] = {}
        """Health of the pipelines that have a record: see `PipelineHealth`."""

    def put_all(self, alerts: Iterable[Alert], health: Iterable[PipelineHealth]) -> None:
        """Replace all alerts and health records by those that were read."""
        kept = {alert.id: alert for alert in alerts}
        for gone in self.outbox.ids() - kept.keys():
            self.forget(gone)
        for alert in kept.values():
            if self.outbox.get(alert.id) != alert:
                self.put(alert)
        self.health = {one.name: one for one in health}

    def put(self, alert: Alert) -> None:
        """Add or replace an alert."""
        freed = self.outbox.put(alert)
        self._agenda.add(about_alert(alert.id))
        if freed is not None:
            self._agenda.add(about_alert(freed))

    def forget(self, alert: str) -> None:
        """Remove an alert that is no longer in ZooKeeper."""
        self._agenda.forget(about_alert(alert))
        if (freed := self.outbox.remove(alert)) is not None:
            self._agenda.add(about_alert(freed))

    def tried(self, claim: Claim, failure: DeliveryFailure | None) -> None:
        """Record the result of a try to send an alert."""
        if self.outbox.answer(claim, failure):
            self._agenda.add(about_alert(claim[0]))
