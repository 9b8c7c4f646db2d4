"""Alerts, with the indexes that their rule asks: one is sent at a time to each target, the others wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Set
from datetime import datetime
from itertools import chain

from nimbus.domain.alerts import Alert, AlertState, Claim, Failure


class Outbox:
    """All alerts whose records are kept. Putting one costs O(1)."""

    def __init__(self) -> None:
        self._alerts: dict[str, Alert] = {}
        self._sending: dict[str, str] = {}
        """Id of the alert that is claimed, by target."""
        self._waiting: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Ids by target, oldest first."""
        self._held: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Those of them that are due and wait for another one of their target to be sent."""
        self._ended: dict[str, None] = {}
        """Ids; those that ended first are at the front."""
        self.counts: Counter[AlertState] = Counter()
        """How many there are in each state."""
        self.started: set[Claim] = set()
        """What this leader is sending now."""
        self.answers: dict[Claim, Failure | None] = {}
        """What came of it; None: acceptance."""

    def ids(self) -> Set[str]:
        """Of all of them."""
        return self._alerts.keys()

    def get(self, alert: str) -> Alert | None:
        """One alert."""
        return self._alerts.get(alert)

    def oldest(self) -> datetime | None:
        """When the oldest alert was raised that is neither sent nor given up.

        Costs what waits, of which there is little: see `nimbus.engine.rules.raised.MOST_WAITING`.
        """
        unsent = chain(self._sending.values(), *self._waiting.values())
        return min((self._alerts[alert].raised_at for alert in unsent), default=None)

    def is_busy(self, target: str) -> bool:
        """Whether an alert is being sent to a target."""
        return target in self._sending

    def newest_waiting(self, target: str) -> Alert | None:
        """The alert for a target that was raised last and has not been claimed."""
        newest = next(reversed(self._waiting[target]), None)
        return None if newest is None else self._alerts[newest]

    def waiting(self, target: str) -> int:
        """How many alerts wait for a target."""
        return len(self._waiting[target])

    def oldest_ended(self, most: int) -> str | None:
        """The alert that ended first, if more than `most` are kept that have ended."""
        return next(iter(self._ended)) if len(self._ended) > most else None

    def put(self, alert: Alert) -> str | None:
        """Take in an alert. Returns the id of one that may be sent now, since its target became free."""
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
        """Forget an alert. Returns as `put`."""
        found = self._alerts.get(alert)
        if found is not None:
            self._forget(found)
        return self._take_out(alert)

    def _take_out(self, alert: str) -> str | None:
        found = self._alerts.pop(alert, None)
        if found is None:
            return None
        self.counts[found.state] -= 1
        self._waiting[found.target].pop(alert, None)
        self._held[found.target].pop(alert, None)
        self._ended.pop(alert, None)
        if self._sending.get(found.target) != alert:
            return None
        del self._sending[found.target]
        return next(iter(self._held[found.target]), None)

    def _forget(self, alert: Alert) -> None:
        """Another try has begun, or the alert is gone.

        Not before: that its last one is over may be decided and not be written, and is then decided again.
        """
        self.started.discard(alert.claim)
        self.answers.pop(alert.claim, None)

    def hold(self, alert: str) -> None:
        """An alert is due, and its target is busy."""
        found = self._alerts.get(alert)
        if found is not None and found.state is AlertState.WAITING:
            self._held[found.target][alert] = None

    def answer(self, claim: Claim, failure: Failure | None) -> bool:
        """Note what came of a claim. False: it is not one of this leader's."""
        if claim not in self.started:
            return False
        self.answers[claim] = failure
        return True

    def keep_from(self, before: Outbox) -> None:
        """Keep what is being sent, before all alerts are read anew."""
        self.started, self.answers = set(before.started), dict(before.answers)
