"""Explains why data start no run of a pipeline now. Pure: facts in, reasons out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from nimbus.api.explain_reads import DatasetView, lacks
from nimbus.definition.complete_targets import Found, due_targets
from nimbus.definition.targets import Target, target_of
from nimbus.domain.catalog import Profile
from nimbus.domain.due import Due, has_room
from nimbus.domain.ids import DatasetName
from nimbus.domain.intervals import shown
from nimbus.domain.run import Run

MOST_TARGETS = 5
"""How many targets are explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueView:
    """Facts that starts by data depend on."""

    due: Due
    datasets: Mapping[DatasetName, DatasetView]
    live: Sequence[Run]
    """Runs of the pipeline that have not ended."""


def why_no_start(view: DueView, profile: Profile, now: datetime, *, is_held: bool) -> Iterator[str]:
    """The reasons, first that of all targets. `is_held`: the pipeline starts nothing, as told elsewhere."""
    due = view.due
    if not due.is_due:
        yield _unchanged(due)
        return
    runs = ", ".join(run.id for run in view.live[:MOST_TARGETS])
    if (until := due.may_start_at) > now:
        why = f"settle is {due.start.settle}" if due.refused is None else f"refused: {due.refused.why}"
        yield f"starts nothing before {_at(until)}: {why}; the last change was at {_at(due.changed_at)}"
    if not has_room(view.live, profile):
        yield f"what is due waits for the end of a run: {runs} under way, and no more may be at once"
    may_start = not is_held and until <= now and has_room(view.live, profile)
    known = {name: one.dataset for name, one in view.datasets.items() if one.dataset is not None}
    dates = {run.logical_date for run in view.live}
    for found in islice(due_targets(due, known, dates, now), MOST_TARGETS):
        yield f"{_name(due, found)}: {_why(due, found, view.datasets.__getitem__, may_start=may_start)}"
        may_start &= found.left is None


def _why(due: Due, found: Found, view: Callable[[DatasetName], DatasetView], *, may_start: bool) -> str:
    if found.is_live:
        return "a run of it is under way, and another one follows, because its data have changed since"
    if found.read is not None:
        target = target_of(due.schedule, found.target.end) if due.schedule and found.target else Target()
        return f"waits for {lacks(found.read, target, view(found.read.dataset)) or found.lacks}"
    if found.not_before is not None:
        return f"starts at {_at(found.not_before)}, when its time is over"
    if found.left is None:
        return "is complete; it starts after older ones, because too many separate times are due"
    return (
        "is complete: the leader starts its run next" if may_start else "is complete, and waits for its turn"
    )


def _name(due: Due, found: Found) -> str:
    if due.schedule is None or found.target is None:
        return f"changed: {', '.join(due.changed)}"
    interval = target_of(due.schedule, found.target.end).data_interval or found.target
    return shown(interval, due.schedule.timezone)


def _unchanged(due: Due) -> str:
    started = "none was started yet"
    if due.started_at is not None:
        started = f"the last start was at {_at(due.started_at)}"
    if due.changed:
        left = sorted({read.dataset for read in due.starting} - set(due.changed))
        return f"waits for a change of {', '.join(left)} (`data: all`); {started}"
    names = ", ".join(sorted({read.dataset for read in due.starting}))
    changed = "" if due.changed_at is None else f", the last change at {_at(due.changed_at)}"
    return f"nothing is due: {names} did not change since; {started}{changed}"


def _at(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
