"""Alerts: the events that raise them, one message to one target until it is accepted, and its text. Pure.

An alert is written in the transaction that writes its cause. A leader claims it, sends it, and marks it as
sent; each step is a fenced write. If a leader fails between the target's acceptance and the mark, the next
leader sends the alert again, with the same id and a note that it may be a repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.wording import shortened


class AlertEvent(StrEnum):
    """Events that can raise an alert."""

    FAILED = "failed"
    """A run failed, not by a timeout. Raised once, until a run of its pipeline succeeds.

    Also: a task that is kept running has ended early three times in a row; again after it has run well.
    """
    TIMED_OUT = "timed_out"
    """A run failed because its timeout, or that of a task, passed. Raised once, together with `failed`."""
    RECOVERED = "recovered"
    """A run succeeded after one that failed."""
    SUCCEEDED = "succeeded"
    WORKER_LOST = "worker_lost"
    """An attempt of a run was lost with its worker. Raised once for each run and worker."""
    SKIPPED_FIRE = "skipped_fire"
    """A fire time of the schedule started no run. Raised once, until one does."""
    LATE = "late"
    """A run is late, see `Lateness`; an attempt has lasted as long as `warn_after` of its task; or the newest
    data of a dataset are older than its `fresh`."""
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    """A task waits until a person approves or rejects it."""


class Lateness(StrEnum):
    """Kinds of lateness of a run. Each is raised once."""

    WARN_AFTER = "warn_after"
    """The run has been under way for `warn_after`."""
    EXPECT = "expect"
    """The run has not ended `expect` after it was requested."""
    EXPECT_SOON = "expect_soon"
    """The run is likely to miss `expect`: most earlier runs took longer than the time that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRule:
    """Which events raise alerts for one target."""

    on: tuple[AlertEvent, ...]
    to: str
    """Name of a target, one of `alerts.targets` in the schedulers' configuration."""


FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=10)
"""Longest pause between two tries."""
KEEP_SENT = timedelta(hours=1)
KEEP_NOT_DELIVERED = timedelta(days=7)


AlertClaim = tuple[str, int, int]
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
class DeliveryFailure:
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
    def claim(self) -> AlertClaim:
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


def refused(alert: Alert, failure: DeliveryFailure, *, give_up_after: timedelta, now: datetime) -> Alert:
    """The alert after a failed try: it waits for the next try, or is not delivered."""
    alert = replace(
        alert, error=shortened(failure.error), may_repeat=alert.may_repeat or failure.doubtful, next_try=None
    )
    pause = min(FIRST_PAUSE * 2 ** min(alert.tries - 1, 16), LONGEST_PAUSE)
    if now + pause > alert.raised_at + give_up_after:
        return replace(alert, state=AlertState.NOT_DELIVERED, ended_at=now)
    return replace(alert, state=AlertState.WAITING, next_try=now + pause)


_ADVICE = {
    AlertEvent.FAILED: "see why: nimbus run explain {run}; nimbus run logs {run} TASK",
    AlertEvent.TIMED_OUT: "see where the time went: nimbus run show {run}",
    AlertEvent.RECOVERED: "nothing to do",
    AlertEvent.SUCCEEDED: "nothing to do",
    AlertEvent.WORKER_LOST: "see the registered workers: nimbus cluster workers; nimbus run show {run}",
    AlertEvent.LATE: "see its progress, or why it waits: nimbus run explain {run}",
    AlertEvent.WAITING_FOR_APPROVAL: "see its question, then: nimbus run approve {run} TASK --reason WHY",
    AlertEvent.SKIPPED_FIRE: "see what was passed over: nimbus pipeline show {pipeline}",
}
_LATE_WITHOUT_RUN = "see its runs, and why none has ended: nimbus pipeline explain {pipeline}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage:
    """An alert as text, for any target."""

    id: str
    """Id of the alert, the same for all tries."""
    subject: str
    text: str
    fields: dict[str, object]
    """The same content for programs, as values that JSON can represent."""


def message(alert: Alert, *, cluster: str, public_url: str) -> AlertMessage:
    """The text of an alert. `public_url`: base URL of a scheduler, for the link to the run's page."""
    link = "" if alert.run is None else f"{public_url}/ui/runs/{alert.run}"
    marks = ["may repeat"] if alert.may_repeat else []
    marks += [f"and {alert.more} more alerts like it, which are not sent"] if alert.more else []
    subject = f"[{cluster}] {alert.pipeline or 'hold'}: {alert.event.value.replace('_', ' ')}"
    has_no_run = alert.event is AlertEvent.LATE and alert.run is None
    advice = _LATE_WITHOUT_RUN if has_no_run else _ADVICE[alert.event]
    advice = advice if alert.pipeline else "see holds, and end it when its reason is gone: nimbus hold list"
    what_to_do = advice.format(run=alert.run or "", pipeline=alert.pipeline)
    lines = [
        alert.about,
        *([f"pipeline: {alert.pipeline}"] if alert.pipeline else []),
        f"at: {alert.raised_at:%Y-%m-%d %H:%M:%S}Z",
        f"what to do: {what_to_do}",
        *([f"runbook: {alert.runbook}"] if alert.runbook else []),
        *([f"link: {link}"] if link else []),
        *marks,
    ]
    return AlertMessage(
        id=alert.id,
        subject=subject + (f" ({'; '.join(marks)})" if marks else ""),
        text="\n".join(lines) + "\n",
        fields={
            "id": alert.id,
            "event": alert.event.value,
            "cluster": cluster,
            "pipeline": alert.pipeline,
            "run": alert.run,
            "about": alert.about,
            "what_to_do": what_to_do,
            "runbook": alert.runbook or None,
            "link": link or None,
            "raised_at": alert.raised_at.isoformat(),
            "try": alert.tries,
            "may_repeat": alert.may_repeat,
            "more": alert.more,
        },
    )
