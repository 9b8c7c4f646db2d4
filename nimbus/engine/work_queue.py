"""Keys that the leader must decide about, now or at a later time. Engine thread only.

An event, a commit or a timer puts a *key* in the work queue. The engine then calls the rules of its kind for
this key alone. So the cost of an event does not depend on how much is live.
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


class Key(NamedTuple):
    """What one decision is about."""

    kind: Kind
    name: str = ""
    """Name of the run, command, pipeline, dataset, backfill, hold or worker."""
    task: TaskName = TaskName("")
    number: int = 0
    """Number of the attempt, or index of the item."""

    @classmethod
    def of_attempt(cls, attempt: AttemptId) -> Key:
        """The key of an open attempt."""
        return cls("attempt", attempt.run, attempt.task, attempt.number)

    @property
    def run(self) -> RunId:
        """The run that an attempt, a task, or a finished run belongs to."""
        return RunId(self.name)

    @property
    def attempt(self) -> AttemptId:
        """The id, if the key is an attempt."""
        return AttemptId(self.run, self.task, self.number)

    @property
    def command(self) -> CommandId:
        """The id, if the key is a command."""
        return CommandId(self.name)

    @property
    def backfill(self) -> BackfillId:
        """The id, if the key is a backfill."""
        return BackfillId(self.name)

    @property
    def pipeline(self) -> PipelineName:
        """The name, if the key is a pipeline."""
        return PipelineName(self.name)

    @property
    def dataset(self) -> DatasetName:
        """The name, if the key is a dataset."""
        return DatasetName(self.name)

    @property
    def owner(self) -> Key:
        """The key that is parked if a decision fails: the whole run, because its parts are linked.

        For a task that starts child runs, only the task: a child that cannot be built affects nothing else.
        """
        if self.kind == "child":
            return Key("children", self.name, self.task)
        return Key("run", self.name) if self.kind in PARTS_OF_RUNS else self


class Instant(NamedTuple):
    """One moment on two clocks: the wall clock, for people and cron, and a monotonic one for durations."""

    wall: datetime
    elapsed_s: float
    """Seconds on a clock that never steps and that counts suspend."""


Moment = TypeVar("Moment", datetime, float)


class Timers(Generic[Moment]):
    """At most one moment for each key. Setting and cancelling cost O(log n), the next one O(1)."""

    def __init__(self) -> None:
        self._moments: dict[Key, Moment] = {}
        self._heap: list[tuple[Moment, Key]] = []
        """May contain replaced or cancelled moments: only those in `_moments` are valid."""

    def __contains__(self, key: Key) -> bool:
        return key in self._moments

    def set(self, key: Key, moment: Moment) -> None:
        """Replace the key's moment."""
        if self._moments.get(key) == moment:
            return
        self._moments[key] = moment
        heappush(self._heap, (moment, key))
        if len(self._heap) > 2 * len(self._moments) + 64:
            self._heap = [(moment, key) for key, moment in self._moments.items()]
            heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Forget the key's moment."""
        self._moments.pop(key, None)

    def next(self) -> Moment | None:
        """The earliest moment."""
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: Moment) -> Iterator[Key]:
        """Remove and yield every key whose moment has come."""
        while (moment := self.next()) is not None and moment <= now:
            key = heappop(self._heap)[1]
            del self._moments[key]
            yield key


class WorkQueue:
    """Keys to decide now, oldest first within a kind, and keys with a timer."""

    def __init__(self) -> None:
        self.parked: dict[Key, str] = {}
        """Keys that are left out for a while because a decision failed, with the error."""
        self._queues: defaultdict[Kind, OrderedDict[Key, None]] = defaultdict(OrderedDict)
        """Queues by kind. Empty ones are removed, so that `first` is cheap when there is little."""
        self._at: Timers[datetime] = Timers()
        self._after: Timers[float] = Timers()

    def add(self, key: Key, *, urgent: bool = False) -> None:
        """Add a key behind the others of its kind; an urgent one before them.

        A key that is in the work queue already keeps its place.
        """
        queue = self._queues[key.kind]
        if urgent and key not in queue:
            queue[key] = None
            queue.move_to_end(key, last=False)
        queue.setdefault(key)

    def first(self, *kinds: Kind) -> Key | None:
        """The oldest key of the first of these kinds that has one."""
        if self._queues:
            for kind in kinds:
                if kind in self._queues:
                    return next(iter(self._queues[kind]))
        return None

    def now(self, kind: Kind) -> Collection[Key]:
        """The keys of a kind that are due now."""
        return self._queues[kind].keys() if kind in self._queues else ()

    def done(self, key: Key) -> None:
        """Remove a key from the queues; its timers stay."""
        queue = self._queues.get(key.kind)
        if queue is not None:
            queue.pop(key, None)
            if not queue:
                del self._queues[key.kind]

    def forget(self, key: Key) -> None:
        """Remove a key and its timers."""
        self.done(key)
        self._at.cancel(key)
        self._after.cancel(key)

    def add_at(self, key: Key, moment: datetime) -> None:
        """Set a timer on the wall clock: for fire times, deadlines, retries."""
        self._at.set(key, moment)

    def add_after(self, key: Key, elapsed_s: float) -> None:
        """Set a timer on the clock that counts suspend: for silences."""
        self._after.set(key, elapsed_s)

    def pop_due(self, now: Instant) -> Iterator[Key]:
        """Remove the due timers and yield their keys."""
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
