"""A run as a small Gantt chart in text. Pure: takes the API's response, returns lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from nimbus.cli.words import moment, on_worker, span

_MARKS = {"succeeded": "█", None: "▒"}
_QUEUED, _BAD = "·", "░"


def gantt(run: Mapping[str, Any], now: datetime, width: int = 48) -> list[str]:
    """Draw one line for each attempt.

    Args:
        run: `GET /runs/{id}`.
        now: The end of open attempts on the chart.
        width: Characters of the time axis.

    Returns:
        Lines: a header with the span, then the attempts in the order of tasks. `·` waiting for its driver,
        `█` computed, `▒` still computing, `░` computed in an attempt that failed.
    """
    began = moment(run["created_at"]) or now
    ended = moment(run["finished_at"]) or max(now, began)
    whole = max((ended - began).total_seconds(), 0.001)
    bars = list(_bars(run["tasks"]))
    label = max((len(name) for name, _ in bars), default=0)
    lines = [f"{'':{label}}  0s{span(whole):>{width - 2}}"]
    for name, attempt in bars:
        lines.append(f"{name:{label}}  {_bar(attempt, began, ended, whole, width)}  {_words(attempt, now)}")
    return lines


def _bars(tasks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for task in tasks:
        for attempt in task["attempts"]:
            again = f" #{attempt['number']}" if attempt["number"] > 1 else ""
            yield task["name"] + again, attempt


def _bar(attempt: Mapping[str, Any], began: datetime, ended: datetime, whole: float, width: int) -> str:
    def column(at: datetime) -> int:
        share = (at - began).total_seconds() / whole
        return min(max(round(share * width), 0), width)

    end = moment(attempt["ended_at"]) or ended
    opened = column(moment(attempt["opened_at"]) or began)
    started = column(moment(attempt["started_at"]) or end)
    # Even the shortest attempt gets one visible character.
    done = max(column(end), min(started + 1, width))
    started = min(started, done - 1)
    mark = _MARKS.get(attempt["outcome"], _BAD)
    bar = " " * min(opened, started) + _QUEUED * max(started - opened, 0) + mark * (done - started)
    return bar.ljust(width)


def _words(attempt: Mapping[str, Any], now: datetime) -> str:
    began = moment(attempt["started_at"]) or moment(attempt["opened_at"]) or now
    end = moment(attempt["ended_at"]) or now
    ending = attempt["outcome"] or "running"
    failure = attempt["failure"]
    if failure not in (None, ending):
        ending += f" ({failure})"
    return f"{span((end - began).total_seconds())} {ending}{on_worker(attempt)}"
