"""Alerts: one message to one target, from its cause to the target's acceptance. Pure.

An alert is written in the transaction that writes its cause. A leader claims it, sends it, and marks it as
sent; each step is a fenced write. If a leader ends between the target's acceptance and the mark, the next
one sends the alert again, under the same id, and says that it may repeat.
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
"""Between two tries."""
KEEP_SENT = timedelta(hours=1)
KEEP_NOT_DELIVERED = timedelta(days=7)


Claim = tuple[str, int, int]
"""Of one try: id of the alert, epoch of the leader, number of the try."""


class AlertState(StrEnum):
    """Where an alert stands."""

    WAITING = "waiting"
    """For its first try, or for the next one at `next_try`."""
    SENDING = "sending"
    """Claimed by the leader of `epoch`."""
    SENT = "sent"
    """The target has accepted it."""
    NOT_DELIVERED = "not_delivered"
    """Given up."""

    @property
    def is_final(self) -> bool:
        """Nothing more is sent."""
        return self in (AlertState.SENT, AlertState.NOT_DELIVERED)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a target did not accept an alert."""

    error: str
    doubtful: bool = False
    """It may have been accepted all the same: there was no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing that is told to one target."""

    id: str
    """Made of the cause and the target, so receivers can tell a repeat by it."""
    event: AlertEvent
    target: str
    pipeline: PipelineName
    run: RunId | None = None
    about: str = ""
    """What happened, in words."""
    raised_at: datetime
    more: int = 0
    """Further alerts for the target that this one stands for, since too many of them wait."""
    state: AlertState = AlertState.WAITING
    tries: int = 0
    """How often it was claimed."""
    epoch: int = 0
    """Of the last claim."""
    may_repeat: bool = False
    """An earlier try may have been accepted: its leader ended before it could say, or had no answer."""
    next_try: datetime | None = None
    error: str = ""
    """Of the last try."""
    ended_at: datetime | None = None
    """When it was accepted, or given up."""

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
    """The alert as the leader of `epoch` is about to send it."""
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
    """The alert after a try that failed: it waits for the next one, or is given up."""
    alert = replace(
        alert, error=brief(failure.error), may_repeat=alert.may_repeat or failure.doubtful, next_try=None
    )
    pause = min(FIRST_PAUSE * 2 ** min(alert.tries - 1, 16), LONGEST_PAUSE)
    if now + pause > alert.raised_at + give_up_after:
        return replace(alert, state=AlertState.NOT_DELIVERED, ended_at=now)
    return replace(alert, state=AlertState.WAITING, next_try=now + pause)
