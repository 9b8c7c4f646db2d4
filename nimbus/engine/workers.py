"""Registered workers, their open attempts, and which of them may get more, best first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from nimbus.domain.attempts.workers import Refusals, WorkerInfo, refusals, with_last
from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.starts.admission import Capacity, Need, Rank, Want, rank, rank_to_submit, target_slots


class FreeWorkers:
    """Workers in the order of their ranks. A change costs O(log n) comparisons, the first worker O(1)."""

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._found: dict[WorkerId, tuple[Rank, WorkerInfo]] = {}

    def __iter__(self) -> Iterator[WorkerInfo]:
        return (self._found[worker][1] for *_, worker in self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)

    def put(self, worker: WorkerInfo, rank: Rank | None) -> None:
        """Set a worker's rank; None: it gets no more attempts."""
        self.discard(worker.id)
        if rank is not None:
            insort(self._ranks, rank)
            self._found[worker.id] = rank, worker

    def discard(self, worker: WorkerId) -> None:
        """Remove a worker, if it is in the list."""
        entry = self._found.pop(worker, None)
        if entry is not None:
            del self._ranks[bisect_left(self._ranks, entry[0])]


class Group(NamedTuple):
    """Slots of a target, or slots of the workers that have some labels."""

    target: str | None = None
    labels: tuple[str, ...] = ()


ALL_SLOTS = Group()
"""All slots of workers."""


class _Slots(NamedTuple):
    """The number of slots of a group, and how many of them open attempts of each team take."""

    total: int
    held: Counter[str]


def _shared(workers: Mapping[WorkerId, WorkerInfo]) -> dict[WorkerId, object]:
    return {name: (worker.slots, worker.labels, worker.targets) for name, worker in workers.items()}


class Workers:
    """The workers. Each change computes the ranks of the affected workers."""

    def __init__(self) -> None:
        self.registered: dict[WorkerId, WorkerInfo] = {}
        self.free = FreeWorkers()
        self.submitting = FreeWorkers()
        """Registered workers that may get drivers to submit to clusters."""
        self.refusals: Mapping[WorkerId, Refusals] = {}
        self._open_on: defaultdict[WorkerId, set[AttemptId]] = defaultdict(set)
        self._target_slots: Mapping[str, int] = {}
        self._jvm_releases: Collection[str] = frozenset()
        self._open_at: defaultdict[str, set[AttemptId]] = defaultdict(set)
        self._open: dict[AttemptId, tuple[WorkerId, Need, str]] = {}
        """Where each open attempt is, its need and its team."""
        self._groups: dict[Group, _Slots] = {}
        """Slots that tasks with the same target or labels share. Computed when needed, then kept."""
        self._slots_for: dict[Want, tuple[_Slots, ...]] = {}
        self._in_cluster: defaultdict[WorkerId, int] = defaultdict(int)
        """Number of open attempts of each worker whose driver runs in a cluster."""

    def open_on(self, worker: WorkerId) -> Collection[AttemptId]:
        """Open attempts whose order a worker has, including those of runs that are parked."""
        return self._open_on.get(worker, ())

    def open_at_targets(self) -> dict[str, int]:
        """Number of open attempts whose Spark runs at each target, without targets that have none."""
        return {target: len(attempts) for target, attempts in self._open_at.items() if attempts}

    def capacity(self, pools: Mapping[str, int], used: Callable[[str], int]) -> Capacity:
        """The capacity of workers and pools."""
        return Capacity(
            workers=self.registered.values(),
            free=self.free,
            submitting=self.submitting,
            refusals=self.refusals,
            target_slots=self._target_slots,
            open_at=lambda target: len(self._open_at.get(target, ())),
            pools=pools,
            used=used,
            busy=self._busy,
            jvm_releases=self._jvm_releases,
        )

    def register(self, workers: Iterable[WorkerInfo]) -> list[WorkerId]:
        """Replace the registered workers. Return those that are new or gone, sorted."""
        before, self.registered = self.registered, {worker.id: worker for worker in workers}
        if _shared(before) != _shared(self.registered):
            self._groups.clear()
            self._slots_for.clear()
        self._target_slots = target_slots(self.registered.values())
        self._jvm_releases = {name for worker in self.registered.values() for name in worker.jvm_releases}
        for name in before.keys() | self.registered.keys():
            self._rank(name)
        return sorted(before.keys() ^ self.registered.keys())

    def opened(self, attempt: AttemptId, worker: WorkerId, need: Need, team: str = "") -> None:
        """Add an open attempt, or move it to the worker that has its order now. Safe to repeat."""
        self.closed(attempt)
        self._open[attempt] = worker, need, team
        for group, slots in self._groups.items():
            slots.held[team] += self._takes_of(group, worker, need)
        self._open_on[worker].add(attempt)
        self._in_cluster[worker] += need.in_cluster
        if need.target is not None:
            self._open_at[need.target].add(attempt)
        self._rank(worker)

    def closed(self, attempt: AttemptId) -> None:
        """Remove an attempt that is not open any more."""
        if attempt not in self._open:
            return
        worker, need, team = self._open.pop(attempt)
        for group, slots in self._groups.items():
            slots.held[team] -= self._takes_of(group, worker, need)
        self._open_on[worker].discard(attempt)
        self._in_cluster[worker] -= need.in_cluster
        if need.target is not None:
            self._open_at[need.target].discard(attempt)
        self._rank(worker)

    def part(self, want: Want) -> float:
        """The part of the slots that a team wants which it has: of the target or of workers."""
        held = self._slots_for.get(want)
        if held is None:
            need = want.need
            groups = () if need.target not in self._target_slots else (Group(need.target),)
            groups = groups if need.in_cluster else (*groups, Group(None, need.labels))
            held = self._slots_for[want] = tuple(self.held(group) for group in groups)
        return max([slots.held[want.team] / slots.total for slots in held], default=0.0)

    def held(self, group: Group) -> _Slots:
        """The slots of a group, and how many of them each team has."""
        if group not in self._groups:
            on = (worker for worker in self.registered.values() if set(group.labels) <= set(worker.labels))
            total = sum(worker.slots for worker in on)
            total = total if group.target is None else self._target_slots[group.target]
            slots = _Slots(max(total, 1), Counter())
            for worker, need, team in self._open.values():
                slots.held[team] += self._takes_of(group, worker, need)
            self._groups[group] = slots
        return self._groups[group]

    def _takes_of(self, group: Group, worker: WorkerId, need: Need) -> bool:
        if group.target is not None or need.in_cluster:
            return group.target is not None and group.target == need.target
        known = self.registered.get(worker)
        return not group.labels or (known is not None and set(group.labels) <= set(known.labels))

    def count_refusals(self, runs: Iterable[Run]) -> None:
        """Compute the refusals of workers from the attempts of all runs."""
        self.refusals = refusals(runs)
        for worker in self.registered:
            self._rank(worker)

    def note_ended(self, task: TaskRun) -> bool:
        """Apply the end of a task's last attempt to the refusals of its worker. True: they changed."""
        known, self.refusals = self.refusals, with_last(self.refusals, task)
        if self.refusals is known:
            return False
        self._rank(task.attempts[-1].worker)  # `closed` ranks the one that has the order, perhaps a reaper
        return True

    def _rank(self, name: WorkerId) -> None:
        worker = self.registered.get(name)
        if worker is None:
            self.free.discard(name)
            self.submitting.discard(name)
            return
        refused = self.refusals.get(name)
        self.free.put(worker, rank(worker, self._busy(name), refused))
        self.submitting.put(worker, rank_to_submit(worker, self._in_cluster[name], refused))

    def _busy(self, name: WorkerId) -> int:
        return len(self.open_on(name)) - self._in_cluster.get(name, 0)
