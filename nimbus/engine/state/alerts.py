"""Alerts, with the indexes for their rule, and the health of pipelines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from datetime import datetime
from itertools import chain

from nimbus.domain.cluster.alerts import Alert, AlertClaim, AlertState, DeliveryFailure
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.engine.work_queue import Key, WorkQueue


class Alerts:
    """Alerts that are waiting, being sent or ended, and health."""

    def __init__(self, work: WorkQueue) -> None:
        self._work = work
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
        self.health = {record.name: record for record in health}

    def put(self, alert: Alert) -> None:
        """Add or replace an alert."""
        freed = self.outbox.put(alert)
        self._work.add(Key("alert", alert.id))
        if freed is not None:
            self._work.add(Key("alert", freed))

    def forget(self, alert: str) -> None:
        """Remove an alert that is no longer in ZooKeeper."""
        self._work.forget(Key("alert", alert))
        if (freed := self.outbox.remove(alert)) is not None:
            self._work.add(Key("alert", freed))

    def tried(self, claim: AlertClaim, failure: DeliveryFailure | None) -> None:
        """Record the result of a try to send an alert."""
        if self.outbox.answer(claim, failure):
            self._work.add(Key("alert", claim[0]))


class Outbox:
    """All alerts whose records are kept. Putting one costs O(1)."""

    def __init__(self) -> None:
        self._alerts: dict[str, Alert] = {}
        self._sending: dict[str, str] = {}
        self._waiting: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Ids of waiting alerts by target, oldest first."""
        self._held: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Waiting alerts that are due, while another alert is sent to their target."""
        self._ended: dict[str, None] = {}
        """Ids of ended alerts, in the order of their ends."""
        self.counts: Counter[AlertState] = Counter()
        self.started: set[AlertClaim] = set()
        """Tries that this leader is making now."""
        self.answers: dict[AlertClaim, DeliveryFailure | None] = {}
        """Results of these tries; None: the target accepted the alert."""

    def ids(self) -> Set[str]:
        """Ids of all alerts."""
        return self._alerts.keys()

    def get(self, alert: str) -> Alert | None:
        """One alert."""
        return self._alerts.get(alert)

    def oldest(self) -> datetime | None:
        """When the oldest alert that is neither sent nor given up was raised.

        The cost is bounded by `nimbus.engine.rules.raised_alerts.MAX_WAITING`.
        """
        unsent = chain(self._sending.values(), *self._waiting.values())
        return min((self._alerts[alert].raised_at for alert in unsent), default=None)

    def is_busy(self, target: str) -> bool:
        """True while an alert is being sent to a target."""
        return target in self._sending

    def newest_waiting(self, target: str) -> Alert | None:
        """The newest waiting alert for a target."""
        newest = next(reversed(self._waiting[target]), None)
        return None if newest is None else self._alerts[newest]

    def waiting(self, target: str) -> int:
        """Number of alerts that wait for a target."""
        return len(self._waiting[target])

    def oldest_ended(self, most: int) -> str | None:
        """The alert that ended first, if more than `most` ended alerts are kept."""
        return next(iter(self._ended)) if len(self._ended) > most else None

    def put(self, alert: Alert) -> str | None:
        """Add or replace an alert. Return the id of one that may be sent now that its target is free."""
        before = self._alerts.get(alert.id)
        freed = self._take_out(alert.id)
        if before is not None and before.claim != alert.claim:
            self._forget(before)
        self._alerts[alert.id] = alert
        self.counts[alert.state] += 1
        match alert.state:
            case AlertState.WAITING:
                self._waiting[alert.target][alert.id] = None
            case AlertState.SENDING:
                self._sending[alert.target] = alert.id
                return None
            case AlertState.SENT | AlertState.NOT_DELIVERED:
                self._ended[alert.id] = None
        return freed

    def remove(self, alert: str) -> str | None:
        """Remove an alert. Returns as `put`."""
        record = self._alerts.get(alert)
        if record is not None:
            self._forget(record)
        return self._take_out(alert)

    def _take_out(self, alert: str) -> str | None:
        record = self._alerts.pop(alert, None)
        if record is None:
            return None
        self.counts[record.state] -= 1
        self._waiting[record.target].pop(alert, None)
        self._held[record.target].pop(alert, None)
        self._ended.pop(alert, None)
        if self._sending.get(record.target) != alert:
            return None
        del self._sending[record.target]
        return next(iter(self._held[record.target]), None)

    def _forget(self, alert: Alert) -> None:
        """Remove a try's answer, after the next try has begun or the alert is removed.

        Not earlier: a decision about the answer may fail to be written, and is then repeated.
        """
        self.started.discard(alert.claim)
        self.answers.pop(alert.claim, None)

    def hold(self, alert: str) -> None:
        """Note that an alert is due while its target is busy."""
        record = self._alerts.get(alert)
        if record is not None and record.state is AlertState.WAITING:
            self._held[record.target][alert] = None

    def answer(self, claim: AlertClaim, failure: DeliveryFailure | None) -> bool:
        """Record the result of a try. False: it is not a try of this leader."""
        if claim not in self.started:
            return False
        self.answers[claim] = failure
        return True

    def keep_from(self, before: Outbox) -> None:
        """Copy the tries under way from `before`, before all alerts are read again."""
        self.started, self.answers = set(before.started), dict(before.answers)
