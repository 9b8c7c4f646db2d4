"""Attempts of a run on a time axis, as SVG, with the critical path. Pure.

An open attempt ends at "now", rounded to hundredths of the axis, so that the page changes only visibly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from nimbus.api.models_runs import AttemptModel, RunModel, TaskModel
from nimbus.domain.task_run import TaskRun
from nimbus.domain.wording import format_span
from nimbus.web.run.graph import shortened

_ROW, _TOP, _LABEL, _WIDTH, _MARGIN = 22, 26, 200, 760, 60
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_TICKS = 6
_HUNDREDTHS = 100


@dataclass(frozen=True, slots=True)
class _Axis:
    began: datetime
    step_s: float
    whole_s: float
    now: datetime

    def x(self, at: datetime) -> int:
        share = (at - self.began).total_seconds() / self.whole_s
        return _LABEL + round(min(max(share, 0.0), 1.0) * _WIDTH)


def _axis(run: RunModel, now: datetime) -> _Axis:
    """An axis as long as the run, in whole steps. The end of a live run moves in steps, too."""
    began = run.started_at or run.created_at
    elapsed = max(((run.finished_at or now) - began).total_seconds(), 1.0)
    step = next((step for step in _STEPS_S if elapsed / step <= _TICKS), 86400.0)
    while elapsed / step > _TICKS:
        step *= 2
    whole = step * -(-elapsed // step)
    hundredth = whole / _HUNDREDTHS
    shown = run.finished_at or began + timedelta(seconds=hundredth * (elapsed // hundredth))
    return _Axis(began, step, whole, shown)


def critical_path(tasks: Iterable[TaskRun]) -> list[str]:
    """The chain of tasks that decided the duration: from the last end, back to the need that ended last.

    A task that has begun and not ended counts as the last. Empty: no task was tried.
    """
    known = {task.spec.name: task for task in tasks}
    last = {name: end for name, task in known.items() if (end := _end(task)) is not None}
    at = max(last, key=last.__getitem__, default=None)
    path: list[str] = []
    while at is not None:
        path.append(at)
        at = max((need for need in known[at].spec.needs if need in last), key=last.__getitem__, default=None)
    return path[::-1]


def _end(task: TaskRun) -> float | None:
    if not task.attempts:
        return None
    ended = task.attempts[-1].ended_at
    return float("inf") if ended is None else ended.timestamp()


_SVG = Markup(
    '<svg id="gantt" class="gantt" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="group" '
    'aria-label="Attempts of {count} tasks over {whole}">{ticks}{rows}</svg>'
)
_TICK = Markup('<path class="tick" d="M{x} 18V{h}"/><text class="w" x="{x}" y="12">{said}</text>')
_ROWS = Markup(
    '<a id="g-{name}" href="{href}" class="{kind}"><title>{title}</title>'
    '<text x="{tx}" y="{ty}">{label}</text>{bars}</a>'
)
_BAR = Markup('<rect class="{state}" x="{x}" y="{y}" width="{w}" height="14" rx="2"/>')
_QUEUED = Markup('<path class="queued" d="M{x} {y}H{to}"/>')


def svg(run: RunModel, path: Iterable[str], now: datetime, href: Callable[[str], str]) -> Markup:
    """One row for each task of the model that was tried. `path`: the critical path."""
    axis, critical = _axis(run, now), set(path)
    tried = [task for task in run.tasks if task.attempts]
    rows = []
    for number, task in enumerate(tried):
        y = _TOP + number * _ROW
        bars = Markup("").join(_bar(attempt, axis, y) for attempt in task.attempts)
        kind = "critical" if task.name in critical else ""
        title = f"{task.name}: {_words(task)}{', on the critical path' if kind else ''}"
        if task.why:
            title = f"{title}: {task.why}"
        label = shortened(task.name, 22)
        words = {"name": task.name, "href": href(task.name), "label": label, "title": title}
        rows.append(_ROWS.format(**words, kind=kind, tx=4, ty=y + 12, bars=bars))
    height = _TOP + len(tried) * _ROW + 4
    marks = [number * axis.step_s for number in range(int(axis.whole_s // axis.step_s) + 1)]
    ticks = [
        _TICK.format(x=axis.x(axis.began + timedelta(seconds=at)), h=height, said=format_span(at))
        for at in marks
    ]
    return _SVG.format(
        w=_LABEL + _WIDTH + _MARGIN,
        h=height,
        count=len(tried),
        whole=format_span(axis.whole_s),
        ticks=Markup("").join(ticks),
        rows=Markup("").join(rows),
    )


def _words(task: TaskModel) -> str:
    last = task.attempts[-1]
    outcome = last.outcome.value if last.outcome else "running"
    attempts = f"{last.number} attempts, " if last.number > 1 else ""
    if last.ended_at is None:
        return f"{attempts}{outcome}"
    return f"{attempts}{outcome} after {format_span((last.ended_at - last.opened_at).total_seconds())}"


def _bar(attempt: AttemptModel, axis: _Axis, y: int) -> Markup:
    """A line from its opening to its driver's start, and a bar from there to its end."""
    end = attempt.ended_at or max(axis.now, attempt.opened_at)
    opened = axis.x(attempt.opened_at)
    started = axis.x(attempt.started_at or (end if attempt.ended_at else attempt.opened_at))
    state = "running" if attempt.outcome is None else attempt.outcome.value
    bar = _BAR.format(state=state, x=min(started, axis.x(end)), y=y, w=max(axis.x(end) - started, 2))
    return (_QUEUED.format(x=opened, y=y + 7, to=started) if started > opened else Markup("")) + bar
