"""The tasks of one run: an immutable mapping, in pages that its versions share.

A change copies one page and the tuple of pages, not the whole. So the pages that two versions do not share
are exactly the changed ones, which must be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress, count
from operator import is_not
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from nimbus.domain.ids import TaskName
from nimbus.domain.wording import natural

if TYPE_CHECKING:
    from nimbus.domain.runs.task_run import TaskRun, TaskState

PAGE = 64
"""Number of tasks in a page, the unit in which a run's progress is stored."""

Page = tuple["TaskRun", ...]


class Tasks(Mapping[TaskName, "TaskRun"]):
    """Tasks by name, in the order of the plan, which all versions share."""

    __slots__ = ("_counts", "_pages", "_plan")

    def __init__(self, tasks: Iterable[TaskRun] = ()) -> None:
        pages = tuple(tasks)
        self._plan = _Plan(pages)
        self._pages = tuple(pages[start : start + PAGE] for start in range(0, len(pages), PAGE))
        self._counts: dict[TaskState, int] = {}
        for task in pages:
            self._counts[task.state] = self._counts.get(task.state, 0) + 1

    def __getitem__(self, name: TaskName) -> TaskRun:
        page, place = divmod(self._plan.places[name], PAGE)
        return self._pages[page][place]

    def __iter__(self) -> Iterator[TaskName]:
        return iter(self._plan.places)

    def __len__(self) -> int:
        return len(self._plan.places)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Tasks) and self._plan is other._plan:
            return self._pages == other._pages
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # as every mapping

    def __repr__(self) -> str:
        return f"Tasks({dict(self)!r})"

    @property
    def plan(self) -> object:
        """The object that all versions of one run share, and runs that were read with equal plans."""
        return self._plan

    @property
    def may_wait(self) -> bool:
        """True when some tasks wait for something else than a worker: data, datasets, runs or people."""
        return self._plan.may_wait

    @property
    def publishes(self) -> bool:
        """True when some tasks publish datasets."""
        return self._plan.publishes

    @property
    def parents(self) -> int:
        """Number of tasks that start child runs."""
        return self._plan.parents

    @property
    def pages(self) -> tuple[Page, ...]:
        """All pages. An unchanged page is the same object in two versions."""
        return self._pages

    def in_order(self) -> Iterator[TaskRun]:
        """As `values()`, but without a look-up for each task."""
        return chain.from_iterable(self._pages)

    def by_depth(self) -> list[TaskRun]:
        """The tasks, each after its needs: by depth, then by name."""
        tasks = list(self.in_order())
        return [tasks[place] for place in self._plan.graph.by_depth()]

    @property
    def counts(self) -> Mapping[TaskState, int]:
        """Number of tasks in each state. It may include states with 0 tasks."""
        return self._counts

    def count(self, *states: TaskState) -> int:
        """Number of tasks in one of `states`."""
        return sum(self._counts.get(state, 0) for state in states)

    def dependents(self, name: TaskName) -> tuple[TaskName, ...]:
        """Tasks that need `name` directly."""
        return self._plan.graph.dependents.get(name, ())

    @property
    def needed(self) -> Mapping[TaskName, int]:
        """Number of tasks that each task needs directly, without tasks that need none."""
        return self._plan.graph.needed

    @property
    def unknown(self) -> tuple[TaskName, ...]:
        """Tasks that others need and the run does not have."""
        return self._plan.graph.unknown

    def downstream(self, name: TaskName) -> Iterator[TaskName]:
        """Tasks that need `name`, directly or through others; each once."""
        seen: set[TaskName] = set()
        edge = [name]
        while edge:
            for dependent in self.dependents(edge.pop()):
                if dependent not in seen:
                    seen.add(dependent)
                    edge.append(dependent)
                    yield dependent

    def replaced(self, tasks: Iterable[TaskRun]) -> Tasks:
        """A new version with `tasks` in place of those of the same names."""
        pages: dict[int, list[TaskRun]] = {}
        counts = dict(self._counts)
        for task in tasks:
            page, place = divmod(self._plan.places[task.spec.name], PAGE)
            if page not in pages:
                pages[page] = list(self._pages[page])
            counts[pages[page][place].state] -= 1
            counts[task.state] = counts.get(task.state, 0) + 1
            pages[page][place] = task
        changed = Tasks.__new__(Tasks)
        changed._plan, changed._counts = self._plan, counts
        whole = list(self._pages)
        for number, page_of in pages.items():
            whole[number] = tuple(page_of)
        changed._pages = tuple(whole)
        return changed

    def changes_since(self, before: Tasks | None) -> Iterator[tuple[TaskRun | None, TaskRun]]:
        """Changed tasks since an earlier version, as pairs of before and after."""
        if before is None or before._plan is not self._plan:
            for task in self.in_order():
                was = None if before is None else before.get(task.spec.name)
                if was is not task:
                    yield was, task
            return
        for number in self.changed_pages(before):
            old, new = before._pages[number], self._pages[number]
            yield from compress(zip(old, new, strict=True), map(is_not, old, new))

    def changed_pages(self, before: Tasks) -> Iterator[int]:
        """Places of the changed pages since an earlier version."""
        return compress(count(), map(is_not, before._pages, self._pages))


class _Plan:
    """The part of a run's tasks that never changes."""

    __slots__ = ("__weakref__", "graph", "may_wait", "parents", "places", "publishes")

    def __init__(self, tasks: tuple[TaskRun, ...]) -> None:
        self.publishes = any(task.spec.publishes for task in tasks)
        self.parents = sum(task.spec.children is not None for task in tasks)
        waits = (task.spec.uses or not task.spec.kind.uses_worker for task in tasks)
        self.may_wait = self.parents > 0 or any(waits)
        edges = tuple([(task.spec.name, task.spec.needs) for task in tasks])
        self.graph = _graphs.get(edges) or _graphs.setdefault(edges, _Graph(edges))
        self.places = self.graph.places


_Edges = tuple[tuple[TaskName, tuple[TaskName, ...]], ...]


class _Graph:
    """Names and needs of tasks. Runs with equal names and needs share it: for ten tasks it has 1 KiB."""

    __slots__ = ("__weakref__", "_by_depth", "dependents", "needed", "places", "unknown")

    def __init__(self, edges: _Edges) -> None:
        self._by_depth: list[int] = []
        self.places = {name: place for place, (name, _) in enumerate(edges)}
        dependents: dict[TaskName, list[TaskName]] = {}
        for name, needs in edges:
            for need in dict.fromkeys(needs):
                dependents.setdefault(need, []).append(name)
        self.dependents = {need: tuple(names) for need, names in dependents.items()}
        self.needed = {name: len(set(needs)) for name, needs in edges if needs}
        self.unknown = tuple(sorted(dependents.keys() - self.places.keys()))

    def by_depth(self) -> list[int]:
        """Places of the tasks, see `Tasks.by_depth`. Computed for the first who asks: only pages do."""
        if not self._by_depth:
            depth, left = dict.fromkeys(self.places, 0), dict(self.needed)
            done = [name for name in self.places if name not in left]
            for name in done:  # it grows
                for dependent in self.dependents.get(name, ()):
                    depth[dependent] = depth[name] + 1  # the last need is one of the deepest
                    left[dependent] -= 1
                    if not left[dependent]:
                        done.append(dependent)
            ordered = sorted(self.places, key=lambda name: (depth[name], natural(name)))
            self._by_depth = [self.places[name] for name in ordered]
        return self._by_depth


_graphs: WeakValueDictionary[_Edges, _Graph] = WeakValueDictionary()
