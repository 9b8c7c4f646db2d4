"""Existing alerts: claimed, sent, marked. Each step follows from the record that the last one wrote."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.cluster.alerts import Alert, AlertState, accepted, claimed, refused
from nimbus.domain.writes import PutAlert, RemoveAlert, Write
from nimbus.engine.decision import Answer, Decision, NoDecision, SendAlert
from nimbus.engine.state import State

MAX_ENDED = 1000
"""Limit of ended alerts that are kept for people."""


def send_alert(state: State, alert_id: str, now: datetime) -> Answer:
    """The next step of an alert."""
    alert = state.alerts.outbox.get(alert_id)
    if alert is None:
        return NoDecision()
    match alert.state:
        case AlertState.WAITING:
            return _claim(state, alert, now)
        case AlertState.SENDING:
            return _send(state, alert, now)
        case AlertState.SENT | AlertState.NOT_DELIVERED:
            return _drop(alert, now)


def _claim(state: State, alert: Alert, now: datetime) -> Answer:
    if alert.next_try is not None and alert.next_try > now:
        return NoDecision(at=alert.next_try)
    if state.alerts.outbox.is_busy(alert.target):
        return NoDecision()  # the end of the alert before it queues this one
    return _put("alert_claimed", claimed(alert, state.epoch))


def _send(state: State, alert: Alert, now: datetime) -> Answer:
    outbox = state.alerts.outbox
    if alert.claim in outbox.answers:
        failure = outbox.answers[alert.claim]
        if failure is None:
            return _ended(state, "alert_sent", accepted(alert, now))
        late = refused(alert, failure, give_up_after=state.policy.alerts.give_up_after, now=now)
        if late.state is AlertState.WAITING:
            return _put("alert_delayed", late)
        return _ended(state, "alert_not_delivered", late)
    if alert.claim in outbox.started:
        return NoDecision()
    if alert.epoch != state.epoch:  # claimed by an earlier leader, which did not record the result
        return _put("alert_claimed_again", claimed(alert, state.epoch))
    return Decision(name="alert_try_started", effects=(SendAlert(alert),), about=_about(alert))


def _drop(alert: Alert, now: datetime) -> Answer:
    due = alert.kept_until
    if due is not None and due > now:
        return NoDecision(at=due)
    return Decision(name="alert_dropped", writes=(RemoveAlert(alert.id),), about=_about(alert))


def _ended(state: State, name: str, alert: Alert) -> Decision:
    oldest = state.alerts.outbox.oldest_ended(MAX_ENDED)
    return _put(name, alert, *(() if oldest is None else (RemoveAlert(oldest),)))


def _put(name: str, alert: Alert, *more: Write) -> Decision:
    return Decision(name=name, writes=(PutAlert(alert), *more), about=_about(alert))


def _about(alert: Alert) -> dict[str, str]:
    about = {"alert": alert.id, "target": alert.target, "tries": str(alert.tries)}
    return about | ({"error": alert.error} if alert.error else {})
