"""The feed of changes of the live state, by topic, for event streams.

There may be thousands of changes per second, so they arrive over a separate session: the session of the
leader's writes is not delayed, and its watches are not affected (see `watch_below_async` in
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
    """Collects changed nodes until they are taken. One thread adds, another takes."""

    def __init__(self, topics: Topics, told: Enqueue) -> None:
        self._topics, self._told = topics, told
        self._changed: deque[str] = deque()
        self._beats: deque[str] = deque()
        self._has_told = False

    def add(self, path: str, *, is_change: bool) -> None:
        """Add a node; `is_change`: its data changed, it was not created or removed."""
        if is_change and self._topics.is_beat(path):
            self._beats.append(path)
            return
        self._changed.append(path)
        if not self._has_told:
            self._has_told = True
            self._told()

    def take(self, *, beats: bool) -> frozenset[str]:
        """Return the topics of the added nodes, and clear them."""
        self._has_told = False  # first, so that later changes are reported again
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
        connect: Opens a separate session. Raises LeaderError.
        root: The cluster's root.
        version: See the port.
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
        """The changes since the last call."""
        session = self._session
        if session is None:
            raise StoreUnavailableError("changes are not followed.")
        with in_our_words("follow changes"):
            generation, armed = session.generation, self._armed
            self._armed = None  # if one of these fails, the next call starts again
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
        """The server's last transaction. All earlier changes have been delivered."""
        session.call(session.client.exists_async, self._root)
        return session.last_zxid

    def _on_event(self, event: WatchedEvent) -> None:
        """Called on kazoo's connection thread."""
        self._gathered.add(event.path, is_change=event.type == EventType.CHANGED)
