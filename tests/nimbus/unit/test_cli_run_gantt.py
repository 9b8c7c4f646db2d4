"""The text Gantt chart, and the texts for times, durations and sizes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nimbus.cli.output import between, clock, short, span
from nimbus.cli.run.rows import gantt
from nimbus.domain.wording import format_size

T0 = datetime(2026, 3, 1, tzinfo=UTC)


def _at(seconds: float | None) -> str | None:
    return None if seconds is None else (T0 + timedelta(seconds=seconds)).isoformat()


def _attempt(
    opened: float,
    started: float | None,
    ended: float | None,
    outcome: str | None,
    number: int = 1,
    failure: str | None = None,
) -> Any:
    return {
        "number": number,
        "worker": "w1",
        "opened_at": _at(opened),
        "started_at": _at(started),
        "ended_at": _at(ended),
        "outcome": outcome,
        "failure": failure,
    }


def _run(finished: float | None, **tasks: list[Any]) -> Any:
    rows = [{"name": name, "attempts": attempts} for name, attempts in tasks.items()]
    return {"created_at": _at(0), "finished_at": _at(finished), "tasks": rows}


def test_each_attempt_is_a_bar_where_it_was_in_time() -> None:
    run = _run(
        100,
        load=[_attempt(0, 10, 50, "failed"), _attempt(60, 60, 80, "succeeded", 2)],
        report=[_attempt(80, 90, 100, "succeeded")],
    )

    lines = gantt(run, T0, width=10)

    assert lines == [
        "         0s   1m40s",
        "load     ·░░░░       40s failed on w1",
        "load #2        ██    20s succeeded on w1",
        "report           ·█  10s succeeded on w1",
    ]


def test_an_open_attempt_reaches_to_now() -> None:
    now = T0 + timedelta(seconds=20)

    lines = gantt(_run(None, load=[_attempt(0, 10, None, None)]), now, width=10)

    assert lines[1] == "load  ·····▒▒▒▒▒  10s running on w1"


@pytest.mark.parametrize("width", [2, 10, 48])
@pytest.mark.parametrize("times", [(0, 0, 0), (100, 100, 100), (0, 100, 100), (0, None, None), (50, 49, 51)])
def test_every_bar_is_seen_and_has_the_width_of_the_axis(width: int, times: tuple[Any, Any, Any]) -> None:
    opened, started, ended = times
    outcome = None if ended is None else "succeeded"
    run = _run(100, t=[_attempt(opened, started, ended, outcome)])

    bar = gantt(run, T0, width=width)[1][3 : 3 + width]

    assert len(bar) == width
    assert set(bar) & set("█▒")


def test_a_run_that_took_no_time_is_drawn() -> None:
    assert "succeeded" in gantt(_run(0, t=[_attempt(0, 0, 0, "succeeded")]), T0)[1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (-1, "0.0s"),
        (0.44, "0.4s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (7_800, "2h10m"),
        (352_800, "4d02h"),
    ],
)
def test_spans(seconds: float | None, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes(count: int, words: str) -> None:
    assert format_size(count) == words


def test_times_and_digests() -> None:
    assert clock("2026-03-01T06:00:00Z") == clock("2026-03-01T07:00:00+01:00") == "2026-03-01 06:00:00Z"
    assert (clock(None), short(None), short("ab" * 32)) == ("", "", "abababababab")
    assert between(_at(0), None, T0 + timedelta(seconds=12)) == "12s"
    assert between(None, None, T0) == ""


def test_attempt_that_failed_says_its_class() -> None:
    ends = [("failed", "out_of_memory"), ("timed_out", "timed_out"), ("lost", None)]
    attempts = [_attempt(n, n, n + 1, outcome, n + 1, failure) for n, (outcome, failure) in enumerate(ends)]

    assert [line.split("s ", 1)[1] for line in gantt(_run(3, load=attempts), T0, width=10)[1:]] == [
        "failed (out_of_memory) on w1",
        "timed_out on w1",
        "lost on w1",
    ]


def test_attempt_whose_work_child_runs_did_names_no_worker() -> None:
    run = _run(1, fan=[{**_attempt(0, 0, 1, "succeeded"), "worker": ""}])

    assert gantt(run, T0, width=4)[1].endswith("s succeeded")
