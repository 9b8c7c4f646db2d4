"""All nodes below a cluster's root, for commands that remove, move or create a cluster.

Not for daemons: each call reads or writes the whole tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from kazoo.exceptions import NodeExistsError, NoNodeError, NotEmptyError

from leader import ElectionPaths
from nimbus.adapters.store.calls import StoreSession, StoreTransaction, batched, calls_on
from nimbus.adapters.store.paths import PROBE, Paths
from nimbus.domain.errors import NimbusError

DESTROY, IMPORT = "destroy", "import"
TOGETHER = 500
"""Most nodes that one transaction removes."""
ROUNDS = 10
"""How often a removal starts again because a node was created or removed in the meantime."""


class ClusterUnfinishedError(NimbusError):
    """The creation or removal of the cluster has begun and not ended."""

    code = "cluster_unfinished"
    exit_code = 4

    def __init__(self, root: str, what: str) -> None:
        super().__init__(f"`nimbus cluster {what}` has begun with {root} and has not ended: repeat it.")


class ClusterInUseError(NimbusError):
    """Processes of the cluster run, its state changes, or a node below its root does not belong to Nimbus."""

    code = "cluster_in_use"
    exit_code = 4


class ClusterTree:
    """The nodes of one cluster, in ZooKeeper or SQLite. All calls raise StoreUnavailableError."""

    def __init__(self, session: StoreSession, root: str) -> None:
        self._calls, self._root, self._paths = calls_on(session), root, Paths(root)
        self._election = ElectionPaths(root)

    def members(self) -> tuple[str, ...]:
        """Running schedulers and workers, such as `workers/w1`."""
        paths = self._paths
        parents = (paths.schedulers, paths.workers, self._election.queue, self._election.members)
        children = [path for parent in parents for path in self._children(parent)]
        return tuple(path.removeprefix(f"{self._root}/") for path in children)

    def foreign(self) -> tuple[str, ...]:
        """Names of nodes directly below the root that do not belong to a cluster."""
        election = self._election
        known = {
            *self._paths.always(),
            self._paths.data,
            self._paths.attempt_key,
            self._paths.session_key,
            self._paths.unfinished,
            f"{self._root}/{PROBE}",
            *(election.queue, election.epoch, election.leader, election.members),
            *(election.control, election.components),
        }
        return tuple(path for path in self._children(self._root) if path not in known)

    def exists(self) -> bool:
        return self._calls.exists(self._root)

    def counts(self) -> Mapping[str, int]:
        """Number of nodes, by the first name below the root."""
        below = len(self._root) + 1
        return Counter(path[below:].partition("/")[0] for path in self.below([self._root]))

    def unfinished(self) -> str | None:
        """The unfinished command, `destroy` or `import`; None if there is none."""
        data = self._calls.get(self._paths.unfinished)
        return None if data is None else data.decode()

    def check_finished(self) -> None:
        """Raise ClusterUnfinishedError for a partly created or removed cluster."""
        if (what := self.unfinished()) is not None:
            raise ClusterUnfinishedError(self._root, what)

    def prove_access(self) -> datetime | None:
        """Create and delete a node where a daemon creates nodes: below the root, or, without one, above it.

        Returns:
            The server's time of the creation; None: another process did the same at this moment.

        Raises:
            StoreDeniedError: an access list forbids it.
        """
        self._calls.ensure_above(self._root)
        there = self._root if self.exists() else self._root.rpartition("/")[0]
        probe = f"{there}/{PROBE}"
        at = None
        with suppress(NodeExistsError):  # that of another process; the access list was checked before
            self._calls.create(probe, b"", ephemeral=True)
            stat = self._calls.stat(probe)
            at = None if stat is None else stat.written_at
        self._calls.delete(probe)
        return at

    def begin(self, what: str) -> None:
        """Mark the cluster as being created or removed, so that no daemon starts. Safe to repeat.

        Raises:
            ClusterInUseError: a scheduler or worker runs.
            ClusterUnfinishedError: a cluster cannot be created here, because another is partly removed.
        """
        self.refuse_members()
        self._calls.ensure_above(self._root)
        self._calls.ensure(self._root)
        try:
            self._calls.create(self._paths.unfinished, what.encode())
        except NodeExistsError:
            if what == DESTROY:  # also a partly created cluster
                self._calls.set(self._paths.unfinished, what.encode())
            elif self.unfinished() != what:
                self.check_finished()
            return
        try:
            self.refuse_members()  # one may have started before it could read the mark
        except ClusterInUseError:
            self._calls.delete(self._paths.unfinished)
            raise

    def remove(self) -> None:
        """Remove all nodes below the root, except the mark. ClusterInUseError: others create nodes."""
        for _round in range(ROUNDS):
            doomed = [path for path in reversed(self.below([self._root])) if path != self._paths.unfinished]
            if not doomed:
                return
            for some in batched(doomed, TOGETHER):
                if not self._deleted(some):
                    break
        raise ClusterInUseError(f"something makes nodes below {self._root} while they are removed.")

    def end(self) -> None:
        """Remove the mark, so that daemons can start."""
        self._calls.delete(self._paths.unfinished)

    def remove_root(self) -> None:
        """Remove the mark and the empty root, at last. ClusterInUseError: others have created nodes again."""
        if not self._deleted((self._paths.unfinished, self._root)):
            raise ClusterInUseError(f"something has made nodes below {self._root} while it was removed.")

    def refuse_members(self) -> None:
        """Raise ClusterInUseError if a scheduler or worker runs."""
        if members := self.members():
            raise ClusterInUseError(
                f"schedulers or workers of {self._root} run: {', '.join(members[:5])}. Stop them; a process "
                "that was killed is gone after zookeeper.session_timeout."
            )

    def below(self, tops: Sequence[str], depth: int | None = None) -> list[str]:
        """All nodes below some, down to a depth, parents before their children."""
        paths, level, lists = list[str](), list(tops), 0
        while level and lists != depth:
            lists += 1
            names, _ = self._calls.list_and_read(level, [None] * len(level), ())
            level = [f"{path}/{name}" for path, some in zip(level, names, strict=True) for name in some or ()]
            paths += level
        return paths

    def _children(self, parent: str) -> list[str]:
        return [f"{parent}/{name}" for name in self._calls.children(parent) or ()]

    def _deleted(self, paths: Iterable[str]) -> bool:
        """Delete some nodes together; False if one is missing, or has a new child."""

        def build(transaction: StoreTransaction) -> None:
            for path in paths:
                transaction.delete(path)

        try:
            self._calls.transact(f"remove nodes of {self._root}", build)
        except (NoNodeError, NotEmptyError):
            return False
        return True
