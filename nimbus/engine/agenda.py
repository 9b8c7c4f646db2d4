"""Subjects that the leader must decide about, now or at a later time. Engine thread only.

An event, a commit or a timer puts a *subject* on the agenda. The engine then calls the rules of its kind for
this subject alone. So the cost of an event does not depend on how much is live.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Generic, Literal, NamedTuple, TypeVar

from nimbus.domain.ids import (
    AttemptId,
    BackfillId,
    CommandId,
    DatasetName,
    PipelineName,
    RunId,
    TaskName,
    WorkerId,
)

Kind = Literal[
    "term",
    "abdication",
    "attempt",
    "backfill",
    "run",
    "wait",
    "queue",
    "command",
    "pipeline",
    "child",
    "children",
    "rendering",
    "pins",
    "task",
    "worker",
    "finished",
    "schema",
    "alert",
    "overdue",
    "late",
    "deadline",
    "fresh",
    "hold",
]
"""`queue`: a queued run that may start. `task`: a task that waits for a worker. `wait`: a task that waits for
something else, see `nimbus.engine.rules.waits`. `worker`: a worker that backs off.
`rendering`: a task that can start after its templates are rendered. `child`: an item of a task, whose child
run may have ended. `children`: a task that starts child runs.
`finished`: a run that is archived, and later removed."""


PARTS_OF_RUNS: frozenset[Kind] = frozenset(
    {"attempt", "wait", "queue", "rendering", "pins", "task", "overdue", "late", "finished"}
)


class Subject(NamedTuple):
    """The object of one decision."""

    kind: Kind
    name: str
    """Name of the run, command, pipeline, dataset, backfill, hold or worker."""
    task: TaskName = TaskName("")
    number: int = 0
    """Number of the attempt, or index of the item."""

    @property
    def run(self) -> RunId:
        """The run that an attempt, a task, or a finished run belongs to."""
        return RunId(self.name)

    @property
    def attempt(self) -> AttemptId:
        """The id, if the subject is an attempt."""
        return AttemptId(self.run, self.task, self.number)

    @property
    def command(self) -> CommandId:
        """The id, if the subject is a command."""
        return CommandId(self.name)

    @property
    def backfill(self) -> BackfillId:
        """The id, if the subject is a backfill."""
        return BackfillId(self.name)

    @property
    def pipeline(self) -> PipelineName:
        """The name, if the subject is a pipeline."""
        return PipelineName(self.name)

    @property
    def dataset(self) -> DatasetName:
        """The name, if the subject is a dataset."""
        return DatasetName(self.name)

    @property
    def owner(self) -> Subject:
        """The subject that is set aside if a decision fails: the whole run, because its parts are linked.

        For a task that starts child runs, only the task: a child that cannot be built affects nothing else.
        """
        if self.kind == "child":
            return Subject("children", self.name, self.task)
        return Subject("run", self.name) if self.kind in PARTS_OF_RUNS else self


def about_attempt(attempt: AttemptId) -> Subject:
    """An open attempt."""
    return Subject("attempt", attempt.run, attempt.task, attempt.number)


def about_task(run: RunId, task: TaskName) -> Subject:
    """A task that waits."""
    return Subject("task", run, task)


def about_wait(run: RunId, task: TaskName) -> Subject:
    """A task that no worker runs, and whose needs are met."""
    return Subject("wait", run, task)


def about_pins(run: RunId, task: TaskName) -> Subject:
    """A ready task that waits for datasets."""
    return Subject("pins", run, task)


def about_rendering(run: RunId, task: TaskName) -> Subject:
    """A task that waits for its templates to be rendered."""
    return Subject("rendering", run, task)


def about_overdue(run: RunId, task: TaskName) -> Subject:
    """A task that waits for room, at the end of its `queue_timeout`."""
    return Subject("overdue", run, task)


def about_late(run: RunId, task: TaskName | None = None) -> Subject:
    """A live run, or a task of one, at the time when it becomes late."""
    return Subject("late", run, task or TaskName(""))


def about_run(run: RunId) -> Subject:
    """A live run."""
    return Subject("run", run)


def about_queued(run: RunId) -> Subject:
    """A queued run that may start."""
    return Subject("queue", run)


def about_child(run: RunId, task: TaskName, index: int) -> Subject:
    """An item of a task, whose child run may have ended. `run`: the parent."""
    return Subject("child", run, task, index)


def about_children(run: RunId, task: TaskName) -> Subject:
    """A task that starts child runs."""
    return Subject("children", run, task)


def about_finished(run: RunId) -> Subject:
    """A run that is final."""
    return Subject("finished", run)


def about_worker(worker: WorkerId) -> Subject:
    """A worker that backs off."""
    return Subject("worker", worker)


def about_alert(alert: str) -> Subject:
    """An alert."""
    return Subject("alert", alert)


ABOUT_TERM = Subject("term", "")
ABOUT_ABDICATION = Subject("abdication", "")
ABOUT_SCHEMA = Subject("schema", "")


def about_command(command: CommandId) -> Subject:
    """A command that waits."""
    return Subject("command", command)


def about_hold(name: str) -> Subject:
    """A hold, for its end."""
    return Subject("hold", name)


def about_backfill(backfill: BackfillId) -> Subject:
    """A backfill, for its next date."""
    return Subject("backfill", backfill)


def about_deadline(name: PipelineName) -> Subject:
    """A pipeline, for its deadline."""
    return Subject("deadline", name)


def about_freshness(name: DatasetName) -> Subject:
    """A dataset, at the time when it becomes late."""
    return Subject("fresh", name)


def about_pipeline(name: PipelineName) -> Subject:
    """A pipeline, for its schedule."""
    return Subject("pipeline", name)


class Instant(NamedTuple):
    """One moment on two clocks: the wall clock, for people and cron, and a monotonic one for durations."""

    wall: datetime
    elapsed_s: float
    """Seconds on a clock that never steps and that counts suspend."""


Moment = TypeVar("Moment", datetime, float)


class Timers(Generic[Moment]):
    """At most one moment for each subject. Setting and cancelling cost O(log n), the next one O(1)."""

    def __init__(self) -> None:
        self._moments: dict[Subject, Moment] = {}
        self._heap: list[tuple[Moment, Subject]] = []
        """May contain replaced or cancelled moments: only those in `_moments` are valid."""

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._moments

    def set(self, subject: Subject, moment: Moment) -> None:
        """Replace the subject's moment."""
        if self._moments.get(subject) == moment:
            return
        self._moments[subject] = moment
        heappush(self._heap, (moment, subject))
        if len(self._heap) > 2 * len(self._moments) + 64:
            self._heap = [(moment, subject) for subject, moment in self._moments.items()]
            heapify(self._heap)

    def cancel(self, subject: Subject) -> None:
        """Forget the subject's moment."""
        self._moments.pop(subject, None)

    def next(self) -> Moment | None:
        """The earliest moment."""
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: Moment) -> Iterator[Subject]:
        """Remove and yield every subject whose moment has come."""
        while (moment := self.next()) is not None and moment <= now:
            subject = heappop(self._heap)[1]
            del self._moments[subject]
            yield subject


class Agenda:
    """Subjects to decide now, oldest first within a kind, and subjects with a timer."""

    def __init__(self) -> None:
        self.set_aside: dict[Subject, str] = {}
        """Subjects that are left out for a while because a decision failed, with the error."""
        self._queues: defaultdict[Kind, OrderedDict[Subject, None]] = defaultdict(OrderedDict)
        """Queues by kind. Empty ones are removed, so that `first` is cheap when there is little."""
        self._at: Timers[datetime] = Timers()
        self._after: Timers[float] = Timers()

    def add(self, subject: Subject, *, urgent: bool = False) -> None:
        """Add a subject behind the others of its kind; an urgent one before them.

        A subject that is on the agenda already keeps its place.
        """
        queue = self._queues[subject.kind]
        if urgent and subject not in queue:
            queue[subject] = None
            queue.move_to_end(subject, last=False)
        queue.setdefault(subject)

    def first(self, *kinds: Kind) -> Subject | None:
        """The oldest subject of the first of these kinds that has one."""
        if self._queues:
            for kind in kinds:
                if kind in self._queues:
                    return next(iter(self._queues[kind]))
        return None

    def now(self, kind: Kind) -> Collection[Subject]:
        """The subjects of a kind that are due now."""
        return self._queues[kind].keys() if kind in self._queues else ()

    def done(self, subject: Subject) -> None:
        """Remove a subject from the queues; its timers stay."""
        queue = self._queues.get(subject.kind)
        if queue is not None:
            queue.pop(subject, None)
            if not queue:
                del self._queues[subject.kind]

    def forget(self, subject: Subject) -> None:
        """Remove a subject and its timers."""
        self.done(subject)
        self._at.cancel(subject)
        self._after.cancel(subject)

    def look_at(self, subject: Subject, moment: datetime) -> None:
        """Set a timer on the wall clock: for fire times, deadlines, retries."""
        self._at.set(subject, moment)

    def look_after(self, subject: Subject, elapsed_s: float) -> None:
        """Set a timer on the clock that counts suspend: for silences."""
        self._after.set(subject, elapsed_s)

    def pop_due(self, now: Instant) -> Iterator[Subject]:
        """Remove the due timers and yield their subjects."""
        yield from self._at.pop_due(now.wall)
        yield from self._after.pop_due(now.elapsed_s)

    def idle_s(self, now: Instant) -> float | None:
        """Seconds until a timer is due, 0.0 or less if one is; None without timers."""
        waits = []
        if (at := self._at.next()) is not None:
            waits.append((at - now.wall).total_seconds())
        if (after := self._after.next()) is not None:
            waits.append(after - now.elapsed_s)
        return min(waits, default=None)
