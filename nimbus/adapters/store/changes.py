"""The topics of changed nodes, for the feeds of changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from leader import ElectionPaths
from nimbus.adapters.store.paths import HEARTBEAT, Paths
from nimbus.domain.cluster import topics
from nimbus.domain.ids import AttemptId, InvalidNameError, PipelineName, RunId
from nimbus.ports import Enqueue


class Topics:
    """Maps nodes to topics."""

    def __init__(self, root: str) -> None:
        paths, election = Paths(root), ElectionPaths(root)
        self._root = root
        self._general = {
            paths.schedulers: (topics.CLUSTER, topics.ELECTION),
            paths.settings: (topics.CLUSTER, topics.WORKERS),
            paths.alerts: (topics.CLUSTER,),
            paths.workers: (topics.WORKERS,),
            paths.commands: (topics.COMMANDS,),
            paths.outcomes: (topics.COMMANDS,),
            paths.abdication: (topics.ELECTION,),
            paths.terms: (topics.ELECTION,),
            paths.backfills: (topics.PIPELINES,),
            paths.datasets: (topics.PIPELINES,),
            election.leader: (topics.CLUSTER, topics.ELECTION),
            election.epoch: (topics.CLUSTER, topics.ELECTION),
            election.queue: (topics.ELECTION,),
            election.members: (topics.ELECTION,),
            election.control: (topics.ELECTION,),
        }
        self._special: dict[str, Callable[[str], tuple[str, ...]]] = {
            paths.pipelines: _of_listed_pipeline,
            paths.schedules: _of_listed_pipeline,
            paths.intervals: _of_pipeline,
            paths.health: _of_pipeline,
            paths.due: _of_pipeline,
            paths.runs: _of_run,
            paths.attempts: _of_attempt,
        }
        self._alive = (f"{paths.schedulers}/", f"{paths.workers}/", f"{paths.terms}/", f"{election.members}/")

    @property
    def parents(self) -> tuple[str, ...]:
        """The nodes whose children have topics."""
        return (*self._general, *self._special)

    def of(self, path: str) -> tuple[str, ...]:
        """The topics of a node; none if no page shows it."""
        first, _, below = path.removeprefix(f"{self._root}/").partition("/")
        parent = f"{self._root}/{first}"
        if parent in self._general:
            return self._general[parent]
        special = self._special.get(parent)
        return () if special is None or not below else special(below.partition("/")[0])

    def is_beat(self, path: str) -> bool:
        """True if a change of a node's data is only a beat or progress."""
        return path.endswith(f"/{HEARTBEAT}") or path.startswith(self._alive)


def _of_listed_pipeline(name: str) -> tuple[str, ...]:
    return topics.PIPELINES, topics.of_pipeline(PipelineName(name))


def _of_pipeline(name: str) -> tuple[str, ...]:
    return (topics.of_pipeline(PipelineName(name)),)


def _of_run(run: str) -> tuple[str, ...]:
    return topics.RUNS, topics.of_run(RunId(run))


def _of_attempt(attempt: str) -> tuple[str, ...]:
    with suppress(InvalidNameError):
        return (topics.of_run(AttemptId.parse(attempt).run),)
    return ()


class Gathered:
    """Collects changed nodes until they are taken. One thread adds, another takes."""

    def __init__(self, topics: Topics, notify: Enqueue) -> None:
        self._topics, self._notify = topics, notify
        self._changed: deque[str] = deque()
        self._beats: deque[str] = deque()
        self._has_notified = False

    def add(self, path: str, *, is_change: bool) -> None:
        """Add a node; `is_change`: its data changed, it was not created or removed."""
        if is_change and self._topics.is_beat(path):
            self._beats.append(path)
            return
        self._changed.append(path)
        if not self._has_notified:
            self._has_notified = True
            self._notify()

    def take(self, *, beats: bool) -> frozenset[str]:
        """Return the topics of the added nodes, and clear them."""
        self._has_notified = False  # first, so that later changes are reported again
        topics = set(_drained(self._changed))
        if beats:
            topics.update(_drained(self._beats))
        return frozenset(topic for path in topics for topic in self._topics.of(path))


def _drained(paths: deque[str]) -> Iterator[str]:
    while paths:
        yield paths.popleft()
