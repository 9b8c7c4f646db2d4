"""A leader that kills its process at one step of sending one alert: see `test_alert_step_kills`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from leader import Leadership
from leader.sentinel.sentinel import CrashSentinel
from nimbus.adapters import alerts
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.adapters.store.transaction import Operation
from nimbus.domain.cluster.alerts import AlertMessage, AlertState
from nimbus.ports import AlertTarget, LeaderStore
from tests.benchmark.engine.shapes import run_built
from tests.nimbus.chaos import alert_leader
from tests.nimbus.chaos.backfill_leader import RELEASE
from tests.nimbus.chaos.forked_leaders import LONGEST_S, Notes

SPEC = replace(alert_leader.SPEC, schedule=None)
UNANSWERED = "after the target has accepted, before its answer"
POINTS = {
    "before the cause is committed": (1,),
    "after the cause is committed": (1,),
    "before the request is sent": (1,),
    UNANSWERED: (2,),
    "after the target's answer": (2,),
    "before the mark is committed": (2,),
    "after the mark is committed": (1,),
    "before the cause is committed, behind another alert": (1, 2),
    "after the cause is committed, behind another alert": (1, 2),
    "before the claim is committed, behind another alert": (1, 2),
    "after the claim is committed, behind another alert": (1, 1),
}
"""Points at which a leader dies, with the number of messages that follow: for the alert, and for the alert
that it waits for.

An alert is claimed in the transaction of its cause, unless its target is busy with another alert, which the
target has then already accepted.
"""
BEHIND = ", behind another alert"


def leader_of(run: str) -> str:
    """The name of the leader that dies at an alert of this run."""
    return f"leader-of-{run}"


def is_about(alert: str, run: str) -> bool:
    """True if an alert is about a run, by its id."""
    return f".{run}." in alert


_STEPS = {AlertState.SENDING: "claim", AlertState.SENT: "mark"}


class Doom:
    """Kills the process at one point of an alert of one run."""

    def __init__(self, run: str, at: str, notes: Notes) -> None:
        self._run, self._at, self._notes = run, at, notes

    def pass_by(self, point: str, alert: str) -> None:
        """Called when the leader reaches a point with an alert."""
        if point == self._at.removesuffix(BEHIND) and is_about(alert, self._run):
            self._notes.die(leader_of(self._run), self._at)


class DoomedTarget:
    """See `nimbus.ports.AlertTarget`."""

    def __init__(self, target: AlertTarget, doom: Doom) -> None:
        self._target, self._doom = target, doom

    def send(self, message: AlertMessage) -> None:
        self._doom.pass_by("before the request is sent", message.id)
        self._target.send(message)
        self._doom.pass_by("after the target's answer", message.id)


class DoomedStore(TreeLeaderStore):
    """A store whose requests may kill the leader."""

    doom: Doom

    def _write(self, operations: Sequence[Operation]) -> None:
        steps = [(step, path) for kind, path, data, _ in operations if (step := self._step(kind, path, data))]
        for step, path in steps:
            self.doom.pass_by(f"before the {step} is committed", path)
        super()._write(operations)
        for step, path in steps:
            self.doom.pass_by(f"after the {step} is committed", path)

    def _step(self, kind: str, path: str, data: bytes) -> str | None:
        if kind == "delete" or not path.startswith(self._paths.alert("")):
            return None
        state = AlertState(json.loads(data)["state"])
        return "cause" if kind == "create" else _STEPS[state]


class DoomedRole(alert_leader.AlertingRole):
    """Sends alerts until it kills itself. The crash sentinel ends its session at once."""

    def __init__(self, hosts: str, root: str, name: str, url: str, doom: Doom) -> None:
        self._doom = doom
        target = DoomedTarget(alerts.WebhookTarget(url, lambda: None), doom)
        super().__init__(hosts, root, name, target, timedelta(seconds=60))
        self._specs[RELEASE.digest] = SPEC

    def _store(self, leadership: Leadership) -> LeaderStore:
        store = DoomedStore(calls_on(self.session), self._root, leadership.token)
        store.doom = self._doom
        return store

    def _build(self, effect: Any) -> None:
        self.engine.enqueue(run_built(effect, self._specs))  # no templates in it


def lead(*, hosts: str, root: str, url: str, run: str, at: str, notes: str) -> None:
    """Queue for the lead; die at the point `at` of the alert about `run`.

    Only this death can make a message doubtful, even on a slow machine.
    """
    alerts.TIMEOUT_S = LONGEST_S
    role = DoomedRole(hosts, root, leader_of(run), url, Doom(run, at, Notes(Path(notes))))
    CrashSentinel(role.session).start()
    role.election.add_to_leader_lock_queue()
