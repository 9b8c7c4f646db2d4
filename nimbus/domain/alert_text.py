"""The text of an alert: what happened, to which run, and what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.alerts import Alert
from nimbus.domain.notify import AlertEvent

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
    """The text of an alert.

    Args:
        alert: The claimed alert.
        cluster: Name of the cluster.
        public_url: Base URL of a scheduler, for the link to the run's page.
    """
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
