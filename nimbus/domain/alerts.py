"""Alerts: one message to one target, from its cause to the target's acceptance. Pure.

An alert is written in the transaction that writes its cause. A leader claims it, sends it, and marks it as
sent; each step is a fenced write. If a leader fails between the target's acceptance and the mark, the next
leader sends the alert again, with the same id and a note that it may be a repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nimbus.domain.growth import brief
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.notify import AlertEvent

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=10)
"""Longest pause between two tries."""
KEEP_SENT = timedelta(hours=1)
KEEP_NOT_DELIVERED = timedelta(days=7)


Claim = tuple[str, int, int]
"""One try: id of the alert, epoch of the leader, number of the try."""


class AlertState(StrEnum):
    """The state of an alert."""

    WAITING = "waiting"
    """It waits for its first try, or for the next one at `next_try`."""
    SENDING = "sending"
    """Claimed by the leader of `epoch`."""
    SENT = "sent"
    """The target has accepted it."""
    NOT_DELIVERED = "not_delivered"
    """All tries failed; no more are made."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a target did not accept an alert."""

    error: str
    doubtful: bool = False
    """True when there was no answer: the target may have accepted the alert nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One message to one target."""

    id: str
    """Derived from the cause and the target, so receivers can recognise a repeat."""
    event: AlertEvent
    target: str
    pipeline: PipelineName
    """Empty: it is about a hold."""
    run: RunId | None = None
    about: str = ""
    """What happened, as text."""
    runbook: str = ""
    """That of the pipeline."""
    raised_at: datetime
    more: int = 0
    """Number of further alerts for the target that this one replaces because too many wait."""
    state: AlertState = AlertState.WAITING
    tries: int = 0
    """Number of tries so far."""
    epoch: int = 0
    """Epoch of the leader that made the last try."""
    may_repeat: bool = False
    """True when an earlier try may have been accepted: its leader failed, or received no answer."""
    next_try: datetime | None = None
    error: str = ""
    """Error of the last try."""
    ended_at: datetime | None = None
    """When the target accepted it, or the tries ended."""

    @property
    def claim(self) -> Claim:
        """The last try."""
        return self.id, self.epoch, self.tries

    @property
    def kept_until(self) -> datetime | None:
        """When the record of an alert that has ended is removed."""
        if self.ended_at is None:
            return None
        return self.ended_at + (KEEP_SENT if self.state is AlertState.SENT else KEEP_NOT_DELIVERED)


def claimed(alert: Alert, epoch: int) -> Alert:
    """The alert with one more try, by the leader of `epoch`, which sends it next."""
    doubt = alert.may_repeat or alert.state is AlertState.SENDING
    return replace(
        alert,
        state=AlertState.SENDING,
        epoch=epoch,
        tries=alert.tries + 1,
        may_repeat=doubt,
        next_try=None,
    )


def accepted(alert: Alert, now: datetime) -> Alert:
    """The alert after its target has accepted it."""
    return replace(alert, state=AlertState.SENT, error="", ended_at=now)


def refused(alert: Alert, failure: Failure, *, give_up_after: timedelta, now: datetime) -> Alert:
    """The alert after a failed try: it waits for the next try, or is not delivered."""
    alert = replace(
        alert, error=brief(failure.error), may_repeat=alert.may_repeat or failure.doubtful, next_try=None
    )
    pause = min(FIRST_PAUSE * 2 ** min(alert.tries - 1, 16), LONGEST_PAUSE)
    if now + pause > alert.raised_at + give_up_after:
        return replace(alert, state=AlertState.NOT_DELIVERED, ended_at=now)
    return replace(alert, state=AlertState.WAITING, next_try=now + pause)
