"""The demonstration's checks can fail: each gets a run that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from nimbus.demo.checks import BeforeTheKill, check

BEFORE = BeforeTheKill(leader="s1", epoch=1, finished={"a": 1}, computing={"b": (1, 4711)})


def attempt(number: int, outcome: str) -> dict[str, Any]:
    return {"number": number, "outcome": outcome}


def run(**attempts: list[dict[str, Any]]) -> dict[str, Any]:
    tasks = {"a": [attempt(1, "succeeded")], "b": [attempt(1, "succeeded")]} | attempts
    return {"state": "succeeded", "tasks": [{"name": n, "attempts": a} for n, a in tasks.items()]}


def failed(
    record: dict[str, Any],
    *,
    leader: str = "s2",
    epoch: int = 2,
    drivers: tuple[str, ...] = ("r.a.1", "r.b.1"),
) -> list[str]:
    claims = check(record, BEFORE, new_leader=leader, new_epoch=epoch, drivers=drivers)
    return [claim.text for claim in claims if not claim.holds]


def test_a_clean_takeover_passes() -> None:
    assert failed(run()) == []


def test_an_attempt_that_was_fenced_unstarted_is_no_second_execution() -> None:
    record = run(b=[attempt(1, "succeeded")], c=[attempt(1, "fenced"), attempt(2, "succeeded")])

    assert failed(record, drivers=("r.a.1", "r.b.1", "r.c.2")) == []


@pytest.mark.parametrize(
    ("record", "how", "broken"),
    [
        (run() | {"state": "failed"}, {}, "the run succeeded"),
        (run(), {"leader": "s1"}, "another scheduler took over, with a higher epoch"),
        (run(), {"epoch": 1}, "another scheduler took over, with a higher epoch"),
        (run(b=[attempt(1, "failed")]), {}, "every task has exactly one successful attempt"),
        (run(), {"drivers": ("r.a.1", "r.b.1", "r.b.2")}, "no task's code ran twice"),
        (
            run(b=[attempt(1, "lost"), attempt(2, "succeeded")]),
            {},
            "what was computing went on in the same attempt",
        ),
        (
            run(a=[attempt(1, "succeeded"), attempt(2, "succeeded")]),
            {},
            "no finished work was repeated",
        ),
    ],
)
def test_each_broken_promise_is_noticed(record: dict[str, Any], how: dict[str, Any], broken: str) -> None:
    assert broken in failed(record, **how)
