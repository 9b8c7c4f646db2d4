"""`nimbus run watch` without a terminal: one line for each change."""

from __future__ import annotations

from typing import Any

import pytest

from nimbus.cli.output import Output
from nimbus.cli.run.watch import Changes


def a_run(why: str, *, done: int = 0) -> dict[str, Any]:
    task = {"name": "load", "state": "waiting", "why": why, "attempts": []}
    return {"state": "running", "tasks_done": done, "tasks_total": 2, "tasks": [task]}


def shown(capsys: pytest.CaptureFixture[str], *runs: dict[str, Any]) -> list[str]:
    view = Changes(Output())
    for run in runs:
        view(run)
    return [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]


def test_time_that_passes_is_no_change(capsys: pytest.CaptureFixture[str]) -> None:
    looks = [
        a_run(f"waits for s3://b/k (last probed {ago} s ago: not there; next probe in {20 - ago} s)")
        for ago in range(20)
    ]

    assert shown(capsys, *looks) == [
        "load  waiting: waits for s3://b/k (last probed 0 s ago: not there; next probe in 20 s)",
        "run running, 0/2 tasks ended",
    ]


@pytest.mark.parametrize(
    "why",
    [
        "waits for s3://b/k (last probed 3 s ago: denied; next probe in 20 s)",
        "waits for 2 of 3 slots of pool p",
    ],
)
def test_other_words_are_a_change(capsys: pytest.CaptureFixture[str], why: str) -> None:
    first = a_run("waits for 1 of 3 slots of pool p")

    assert shown(capsys, first, a_run(why))[2:] == [f"load  waiting: {why}"]


def test_reason_of_several_lines_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, a_run("Traceback:\n  File x\n\nValueError: no")) == [
        "load  waiting: Traceback: File x ValueError: no",
        "run running, 0/2 tasks ended",
    ]
