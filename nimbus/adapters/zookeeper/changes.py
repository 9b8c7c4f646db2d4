"""What changes in the live state, by topic, for streams of events.

A stream may tell thousands of changes a second, so they arrive over a session of its own: the one that the
leader writes over is not held up, and its watches are left alone (see `watch_below_async` in
`leader.zookeeper.kazoo_client`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta

from kazoo.protocol.states import EventType, WatchedEvent

from leader import ElectionPaths, ZooKeeperSession
from nimbus.adapters.zookeeper.calls import in_our_words
from nimbus.adapters.zookeeper.paths import BEAT, Paths
from nimbus.domain import topics
from nimbus.domain.ids import AttemptId, InvalidNameError, PipelineName, RunId
from nimbus.ports import Changed, Enqueue, StoreUnavailableError

_CLOSE = timedelta(seconds=1)


class Topics:
    """Which topics a node belongs to."""

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
            paths.runs: _of_run,
            paths.attempts: _of_attempt,
        }
        self._alive = (f"{paths.schedulers}/", f"{paths.workers}/", f"{paths.terms}/", f"{election.members}/")

    @property
    def parents(self) -> tuple[str, ...]:
        """The nodes below which something has a topic."""
        return (*self._general, *self._special)

    def of(self, path: str) -> tuple[str, ...]:
        """The topics of a node; none for one that no page shows."""
        first, _, below = path.removeprefix(f"{self._root}/").partition("/")
        parent = f"{self._root}/{first}"
        if parent in self._general:
            return self._general[parent]
        special = self._special.get(parent)
        return () if special is None or not below else special(below.partition("/")[0])

    def is_beat(self, path: str) -> bool:
        """Whether a change of a node's data only says that somebody is alive, or how far it is."""
        return path.endswith(f"/{BEAT}") or path.startswith(self._alive)


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
    """Nodes that have changed, until they are taken. One thread adds, another takes."""

    def __init__(self, topics: Topics, told: Enqueue) -> None:
        self._topics, self._told = topics, told
        self._changed: deque[str] = deque()
        self._beats: deque[str] = deque()
        self._has_told = False

    def add(self, path: str, *, is_change: bool) -> None:
        """Note a node; `is_change`: it was there before, and is still."""
        if is_change and self._topics.is_beat(path):
            self._beats.append(path)
            return
        self._changed.append(path)
        if not self._has_told:
            self._has_told = True
            self._told()

    def take(self, *, beats: bool) -> frozenset[str]:
        """Topics of what was noted."""
        self._has_told = False  # before: what comes from now on is told of again
        found = set(_drained(self._changed))
        if beats:
            found.update(_drained(self._beats))
        return frozenset(topic for path in found for topic in self._topics.of(path))


def _drained(paths: deque[str]) -> Iterator[str]:
    while paths:
        yield paths.popleft()


class ZooKeeperChanges:
    """See `nimbus.ports.ChangeFeed`.

    Args:
        connect: Begins a session of our own. Raises LeaderError.
        root: Of the cluster.
        version: As of the port.
    """

    def __init__(
        self, connect: Callable[[], ZooKeeperSession], root: str, version: Callable[[], int]
    ) -> None:
        self._connect, self._root, self.version = connect, root, version
        self._topics = Topics(root)
        self._session: ZooKeeperSession | None = None
        self._gathered = Gathered(self._topics, lambda: None)
        self._armed: int | None = None
        """The connection that has our watches."""

    def start(self, told: Enqueue) -> None:
        """Connect."""
        self._gathered, self._armed = Gathered(self._topics, told), None
        with in_our_words("follow changes"):
            self._session = self._connect()
        self._session.tell_below(self._on_event)
        self._session.add_listener(lambda _state: told())

    def take(self, *, beats: bool) -> Changed:
        """What has changed."""
        session = self._session
        if session is None:
            raise StoreUnavailableError("changes are not followed.")
        with in_our_words("follow changes"):
            generation, armed = session.generation, self._armed
            self._armed = None  # if one of these fails, the next look begins anew
            lost = generation != armed
            if lost:
                self._arm(session, self._topics.parents)
            version = self._look(session)
            found = self._gathered.take(beats=beats or lost)
            upto = self._look(session) if found else version
            self._armed = generation
        return Changed(found, version, upto, lost=lost)

    def stop(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close(_CLOSE)
            self._session = None

    def _arm(self, session: ZooKeeperSession, parents: Iterable[str]) -> None:
        for parent in parents:
            session.watch_below(parent)

    def _look(self, session: ZooKeeperSession) -> int:
        """How far the server is. It has told us of all changes before that."""
        session.call(session.client.exists_async, self._root)
        return session.last_zxid

    def _on_event(self, event: WatchedEvent) -> None:
        """Kazoo's connection thread."""
        self._gathered.add(event.path, is_change=event.type == EventType.CHANGED)
