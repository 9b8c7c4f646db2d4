"""A run's tasks as rows of tables, and a run as a small Gantt chart in text. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from nimbus.cli.output import moment, on_worker, span
from nimbus.domain.attempts.cost import cost_in_words, cost_of


def task_rows(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    """One row for each task: name, state, attempts, and its reason or progress."""
    rows = []
    for task in run["tasks"]:
        tried = task["attempts"][-1]["number"] if task["attempts"] else ""  # only the last ones are listed
        rows.append((task["name"], task["state"], tried, _said(task) or _child_runs(task)))
    return rows


_NOT_SHOWN = ("at", "number")
"""Bookkeeping of progress reports, which is of no use in a table."""
_LONGEST = 60
"""Most characters of a checkpoint in a table."""
_AT_REST = ("QUEUED", "COMPLETED")


def _child_runs(task: dict[str, Any]) -> str:
    children = task["children"]
    if not children or not children["attempt"]:
        return ""
    states = ("succeeded", "failed", "stopped", "refused", "waiting")
    counts = ", ".join(f"{children[state]} {state}" for state in states if children[state])
    return f"{children['total']} child runs: {counts}"


def progress(task: dict[str, Any]) -> str:
    """The progress of a running task, as reported by its driver."""
    last = task["attempts"][-1] if task["attempts"] else {}
    told = [
        _words(key, value) for key, value in (last.get("progress") or {}).items() if key not in _NOT_SHOWN
    ]
    if (kept := last.get("checkpoint")) is not None:
        text = json.dumps(kept, ensure_ascii=False)
        told.append(f"checkpoint {text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}")
    return ", ".join(told)


def _said(task: dict[str, Any]) -> str:
    """How it is kept running; then why a task waits, or its progress."""
    return "; ".join(filter(None, (task.get("kept"), task["why"] or progress(task))))


def remarks(task: dict[str, Any]) -> str:
    """What is said of a task; then its `ended_application`."""
    return ", ".join(filter(None, (_said(task), ended_application(task))))


def ended_application(task: dict[str, Any]) -> str:
    """The Spark application of a task's last attempt, if that has ended, with its history page."""
    application, page = _application(task["attempts"][-1]) if task["attempts"] else (None, None)
    return ", ".join(filter(None, (application and f"application {application}", page)))


def application_rows(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Spark applications of ended attempts: task, attempt, application, JVM, history page."""
    fields = ("number", "application", "jvm", "history_url")
    return [
        (task["name"], *(attempt[field] for field in fields))
        for task in run["tasks"]
        for attempt in task["attempts"]
        if _application(attempt)[0]
    ]


def cost_rows(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What the last attempt of each task used, if that is known: task, attempt, cost."""
    lasts = ((task["name"], task["attempts"][-1]) for task in run["tasks"] if task["attempts"])
    known = ((name, last["number"], cost_of(last.get("cost"))) for name, last in lasts)
    return [(name, number, cost_in_words(cost)) for name, number, cost in known if cost is not None]


def output_rows(run: dict[str, Any], results: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What tasks have left: task, `rows` and `bytes` of its result, reference of its output, result."""
    outputs = {
        task["name"]: attempt["output"]
        for task in run["tasks"]
        for attempt in task["attempts"]
        if attempt["output"] is not None
    }
    return [
        (
            name,
            *(results.get(name, {}).get(key) for key in ("rows", "bytes")),
            outputs.get(name),
            json.dumps(results[name], ensure_ascii=False) if name in results else None,
        )
        for name in dict.fromkeys([*results, *outputs])
    ]


def _application(attempt: dict[str, Any]) -> tuple[str | None, str | None]:
    """Id and history page of an ended attempt; for running ones they are in `progress`."""
    if attempt["outcome"] is None:
        return None, None
    return attempt["application"], attempt["history_url"]


def _words(key: str, value: Any) -> str:
    """One entry of progress as text; of a declarative pipeline's flows only the active ones."""
    if not isinstance(value, dict):
        return f"{key} {value}"
    under_way = [f"{name} {state}" for name, state in value.items() if state not in _AT_REST]
    return f"{key} {'; '.join(under_way) or '-'}"


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
        lines.append(f"{name:{label}}  {_bar(attempt, began, ended, whole, width)}  {_ending(attempt, now)}")
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


def _ending(attempt: Mapping[str, Any], now: datetime) -> str:
    began = moment(attempt["started_at"]) or moment(attempt["opened_at"]) or now
    end = moment(attempt["ended_at"]) or now
    ending = attempt["outcome"] or "running"
    failure = attempt["failure"]
    if failure not in (None, ending):
        ending += f" ({failure})"
    return f"{span((end - began).total_seconds())} {ending}{on_worker(attempt)}"
