"""Attempts of a run on a time axis, as SVG, with waits and the critical path. Pure.

The axis ends where the run ends, and that of a live run at "now", rounded to two digits, so that the page
changes only visibly. Places are shares of the width, so a drawing is as wide as its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10

from markupsafe import Markup

from nimbus.api.runs.models import RunModel, TaskModel
from nimbus.domain.ids import TaskName
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Attempt, TaskRun, TaskState
from nimbus.domain.wording import format_span
from nimbus.web.run.graph import shortened

_ROW, _TOP, _LONGEST_LABEL, _LONGEST_WHY = 22, 26, 22, 100
_LEFT, _WIDTH = 14.0, 78.0
"""Place and width of the time axis, in percent of the drawing. Right of it is room for durations."""
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_TICKS, _LAST_TICK = 8, 0.93
WAITS = {"needs": "its needs", "slot": "a slot or a pool", "retry": "a retry", "start": "its driver"}
"""What a task waits for, in the order of a task's life."""


@dataclass(frozen=True, slots=True)
class _Axis:
    began: datetime
    whole_s: float

    @property
    def ends(self) -> datetime:
        return self.began + timedelta(seconds=self.whole_s)

    def x(self, at: datetime) -> float:
        share = (at - self.began).total_seconds() / self.whole_s
        return round(_LEFT + min(max(share, 0.0), 1.0) * _WIDTH, 1)

    def ticks(self) -> Iterator[float]:
        """Seconds of the marks: whole steps, then the end."""
        step = next((step for step in _STEPS_S if self.whole_s / step <= _TICKS), 86400)
        while self.whole_s / step > _TICKS:
            step *= 2
        yield from (at for at in range(0, ceil(self.whole_s), step) if at < _LAST_TICK * self.whole_s)
        yield self.whole_s


def _axis(run: RunModel, now: datetime) -> _Axis:
    began = run.started_at or run.created_at
    elapsed = max(((run.finished_at or now) - began).total_seconds(), 1.0)
    if run.finished_at is None:
        digit = 10 ** (floor(log10(elapsed)) - 1)
        elapsed = digit * ceil(elapsed / digit)
    return _Axis(began, elapsed)


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


@dataclass(frozen=True, slots=True)
class WaitBar:
    """A time in which a task waited."""

    kind: str
    """A key of `WAITS`."""
    start: datetime
    end: datetime | None
    """None: it waits now."""


def waits(run: Run, task: TaskRun) -> list[WaitBar]:
    """The waits of a task, in their order. What left no trace in the run's record is left out."""
    began, ends = run.started_at or run.created_at, [_ended_at(run.tasks[need]) for need in task.spec.needs]
    known = [end for end in ends if end is not None]
    is_waiting = task.state is TaskState.WAITING and not run.state.is_final
    if not task.attempts and len(known) < len(ends):
        return [WaitBar("needs", began, None)] if is_waiting else []
    ready, bars = max([began, *known]), list[WaitBar]()
    if ready > began:
        bars.append(WaitBar("needs", began, ready))
    since: datetime | None = ready if not task.attempts or task.attempts[0].number == 1 else None
    kind = "slot"
    for attempt in task.attempts:
        if since is not None and attempt.opened_at > since:
            bars.append(WaitBar(kind, since, attempt.opened_at))
        if attempt.started_at is not None and attempt.started_at > attempt.opened_at:
            bars.append(WaitBar("start", attempt.opened_at, attempt.started_at))
        since, kind = attempt.ended_at, "retry"
    if is_waiting and since is not None:
        bars.append(WaitBar(kind, since, None))
    return bars


def _ended_at(task: TaskRun) -> datetime | None:
    """When a task ended; None: it has not. One that was skipped or is reused ended before its run."""
    if task.settled is not None:
        return task.settled.at
    if task.attempts:
        return task.attempts[-1].ended_at if task.state.is_final else None
    return datetime.min.replace(tzinfo=UTC) if task.state.is_final else None


_SVG = Markup(
    '<svg id="gantt" class="gantt" width="100%" height="{h}" role="group" '
    'aria-label="Attempts of {count} tasks over {whole}">{ticks}{rows}</svg>'
)
_TICK = Markup(
    '<line class="tick" x1="{x}%" x2="{x}%" y1="18" y2="{h}"/><text class="w" x="{x}%" y="12">{said}</text>'
)
_ROWS = Markup(
    '<a id="g-{name}" href="{href}" class="{kind}"><title>{title}</title>'
    '<text x="4" y="{ty}">{label}</text>{bars}</a>'
)
_BAR = Markup('<rect class="{state}" x="{x}%" y="{y}" width="{w}%" height="14" rx="2"/>')
_LINE = Markup('<line class="{kind}" x1="{x}%" x2="{to}%" y1="{y}" y2="{y}"/>')
_TEXT = Markup('<text class="w{end}" x="{x}%" y="{y}" dx="{dx}">{said}</text>')
_SINCE = Markup('<tspan data-since="{}">running</tspan>')


def svg(
    run: Run,
    model: RunModel,
    path: Iterable[str],
    now: datetime,
    href: Callable[[str], str],
    earlier: Run | None = None,
) -> Markup:
    """One row for each task of the model, with thin lines for the attempts of `earlier`, from its own start.

    `now`: the end of what is open.
    """
    axis, critical = _axis(model, now), set(path)
    rows = []
    for number, shown in enumerate(model.tasks):
        task, y = run.tasks[TaskName(shown.name)], _TOP + number * _ROW
        waiting, before = waits(run, task), _before(earlier, shown.name, axis)
        low = y + (7 if task.attempts else 15)  # below the text of a task that was not tried
        bars = [_line("earlier", *before, axis, y + 18)] if before else []
        bars += [_line(f"wait {bar.kind}", bar.start, bar.end or axis.ends, axis, low) for bar in waiting]
        bars += [_bar(attempt, axis, y) for attempt in task.attempts]
        bars.append(_said(task, shown, axis, y, waiting))
        kind = "critical" if shown.name in critical else ""
        words = [_words(task), *map(_waited, waiting), "on the critical path" if kind else ""]
        if before:
            words.append(f"the last success took {format_span((before[1] - before[0]).total_seconds())}")
        title = f"{shown.name}: {', '.join(filter(None, words))}{f': {shown.why}' if shown.why else ''}"
        texts = {"name": shown.name, "href": href(shown.name), "label": shortened(shown.name, _LONGEST_LABEL)}
        rows.append(_ROWS.format(**texts, title=title, kind=kind, ty=y + 11, bars=Markup("").join(bars)))
    height = _TOP + len(rows) * _ROW + 4
    ticks = [
        _TICK.format(x=axis.x(axis.began + timedelta(seconds=at)), h=height, said=format_span(at))
        for at in axis.ticks()
    ]
    return _SVG.format(
        h=height,
        count=len(rows),
        whole=format_span(axis.whole_s),
        ticks=Markup("").join(ticks),
        rows=Markup("").join(rows),
    )


def _before(earlier: Run | None, name: str, axis: _Axis) -> tuple[datetime, datetime] | None:
    """The last attempt of a task in an earlier run, as if that run had begun with this one."""
    task = None if earlier is None else earlier.tasks.get(TaskName(name))
    if earlier is None or task is None or not task.attempts or (ended := task.attempts[-1].ended_at) is None:
        return None
    later = axis.began - (earlier.started_at or earlier.created_at)
    return _began(task.attempts[-1]) + later, ended + later


def _began(attempt: Attempt) -> datetime:
    return attempt.started_at or attempt.ended_at or attempt.opened_at


def _words(task: TaskRun) -> str:
    if not task.attempts:
        return task.state.value.replace("_", " ")
    last = task.attempts[-1]
    outcome = last.outcome.value.replace("_", " ") if last.outcome else "running"
    attempts = f"{last.number} attempts, " if last.number > 1 else ""
    if last.ended_at is None:
        return f"{attempts}{outcome}"
    return f"{attempts}{outcome} after {format_span((last.ended_at - _began(last)).total_seconds())}"


def _waited(bar: WaitBar) -> str:
    if bar.end is None:
        return f"waits for {WAITS[bar.kind]}"
    return f"waited {format_span((bar.end - bar.start).total_seconds())} for {WAITS[bar.kind]}"


def _bar(attempt: Attempt, axis: _Axis, y: int) -> Markup:
    """From the start of its driver to its end. One that has not started yet has none."""
    if attempt.started_at is None and attempt.ended_at is None:
        return Markup("")
    x, to = axis.x(_began(attempt)), axis.x(attempt.ended_at or axis.ends)
    state = "running" if attempt.outcome is None else attempt.outcome.value
    return _BAR.format(state=state, x=x, y=y, w=max(round(to - x, 1), 0.2))


def _line(kind: str, start: datetime, end: datetime, axis: _Axis, y: int) -> Markup:
    x, to = axis.x(start), axis.x(end)
    return _LINE.format(kind=kind, x=x, to=to, y=y) if to > x else Markup("")


def _said(task: TaskRun, shown: TaskModel, axis: _Axis, y: int, bars: Sequence[WaitBar]) -> Markup:
    """The duration at the end of the last bar, or why there is none."""
    last = task.attempts[-1] if task.attempts else None
    if last is None or (bars and bars[-1].end is None):
        start = bars[-1].start if bars else axis.began
        is_late = axis.x(start) > _LEFT + _WIDTH / 2
        why = shortened(shown.why or "", _LONGEST_WHY)
        place = {"x": axis.x(axis.ends if is_late else start), "dx": -2 if is_late else 2}
        return _TEXT.format(**place, end=" end" * is_late, y=y + 10, said=why)
    took = _SINCE.format(_began(last).isoformat())
    if last.ended_at is not None:
        took = Markup("{}").format(format_span((last.ended_at - _began(last)).total_seconds()))
    number = f" #{last.number}" if last.number > 1 else ""
    x = axis.x(last.ended_at or axis.ends)
    return _TEXT.format(x=x, dx=4, end="", y=y + 11, said=took + number)
