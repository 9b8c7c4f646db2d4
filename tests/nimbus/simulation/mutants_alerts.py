"""Bugs of alerts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.domain import writes as w
from nimbus.domain.cluster.alerts import claimed
from nimbus.engine.decision import Decision
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.rules import alerts, assign, lateness, raised_alerts
from nimbus.engine.state import tasks as waiting_tasks
from tests.nimbus.simulation.mutant import mutant, replaced
from tests.nimbus.simulation.mutants_leaders import in_two


@mutant
def alert_claimed_again_without_a_word() -> Iterator[None]:
    """AF 51969: a new leader sends again, and the message does not say that it may be a repetition."""

    def silent(alert: Any, epoch: int) -> Any:
        return replace(claimed(alert, epoch), may_repeat=False)

    with replaced(alerts, claimed=silent):
        yield


@mutant
def alert_written_after_its_cause() -> Iterator[None]:
    """AF 60858: if a leader ends in between, the alert is never sent."""
    with replaced(LeaderTerm, _do=in_two(lambda write: not isinstance(write, w.CreateAlert))):
        yield


@mutant
def alert_of_a_dead_leader_marked_as_sent() -> Iterator[None]:
    """A new leader assumes that its predecessor has sent all claimed alerts."""
    original = alerts._send

    def trusting(state: Any, alert: Any, now: Any) -> Any:
        if alert.epoch != state.epoch:
            return alerts._ended(state, "alert_sent", alerts.accepted(alert, now))
        return original(state, alert, now)

    with replaced(alerts, _send=trusting):
        yield


@mutant
def alert_sent_before_it_is_claimed() -> Iterator[None]:
    """A leader that ends after sending leaves no record of it."""
    original = alerts._claim

    def hasty(state: Any, alert: Any, now: Any) -> Any:
        early = replace(alert, epoch=state.epoch)
        if early.claim not in state.alerts.outbox.started and not state.alerts.outbox.is_busy(alert.target):
            return Decision(name="alert_try_started", effects=(alerts.SendAlert(early),))
        return original(state, alert, now)

    with replaced(alerts, _claim=hasty):
        yield


@mutant
def late_end_that_nobody_saw_told_to_nobody() -> Iterator[None]:
    """The next leader raises no alert for a run that ended too late while there was no leader."""
    with replaced(raised_alerts, passed=lambda *_: ()):
        yield


@mutant
def late_counted_from_the_creation() -> Iterator[None]:
    """The time in the queue counts as running time."""
    original = lateness.passed

    def hasty(run: Any, now: Any, fastest: Any = None) -> Any:
        begun = run if run.started_at is None else replace(run, started_at=run.created_at)
        return original(begun, now, fastest)

    with replaced(lateness, passed=hasty):
        yield


@mutant
def queue_timeout_counted_from_the_start_of_the_run() -> Iterator[None]:
    """Attempts and the pauses of retries count as waiting for a slot."""

    def hasty(run: Any, task: Any) -> Any:
        timeout = task.spec.queue_timeout
        return None if timeout is None else run.started_at + timeout

    with replaced(assign, queue_ends_at=hasty), replaced(waiting_tasks, queue_ends_at=hasty):
        yield
