"""Alerts: the API and the command line, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from click.testing import Result

from nimbus.domain.cluster.alerts import Alert, AlertEvent, AlertState
from nimbus.domain.ids import PipelineName, RunId

Invoke = Callable[..., Result]
ALERT = Alert(
    id="failed.p-1.oncall",
    event=AlertEvent.FAILED,
    target="oncall",
    pipeline=PipelineName("p"),
    run=RunId("p-1"),
    about="run p-1 failed: a",
    raised_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
)


def test_alerts_are_listed_with_their_states(world: Any, nimbus: Invoke) -> None:
    assert "no alerts" in nimbus("alert", "list").output
    world.cluster.put(
        replace(ALERT, state=AlertState.WAITING, tries=3, error="mail: refused", more=7),
        replace(ALERT, id="b", state=AlertState.SENT, tries=2, may_repeat=True),
        replace(ALERT, id="c", state=AlertState.NOT_DELIVERED),
    )

    shown = nimbus("alert", "list").output
    (first, *_rest) = json.loads(nimbus("alert", "list", "-o", "json").stdout)["alerts"]

    for words in (
        "waiting (try 3, for 7 more)",
        "sent (may repeat)",
        "not delivered",
        "mail: refused",
        "p-1",
        f"{ALERT.raised_at:%Y-%m-%d %H:%M:%S}Z  ",
    ):
        assert words in shown
    assert {first[key] for key in ("event", "state")} <= {"failed", "sent", "waiting", "not_delivered"}


def test_target_is_tested_by_the_scheduler_that_answers(world: Any, nimbus: Invoke) -> None:
    tested = nimbus("alert", "test", "oncall")
    assert (tested.exit_code, tested.stdout) == (0, "oncall accepted it\n")

    failed = nimbus("alert", "test", "dead")
    assert failed.exit_code == 1
    assert failed.stdout == "dead did not accept it: nobody listens\n"

    unknown = nimbus("alert", "test", "other")
    assert unknown.exit_code == 3
    assert "there is no alert target other" in unknown.stderr
    assert "known: dead, oncall" in unknown.stderr
