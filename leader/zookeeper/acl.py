"""Holds every node of an election against the access list it should have.

Nodes made with a credential are closed to others, but those made before there was one, or by hand, or by
another program are not, and one open node is enough: whoever can delete a latch node can depose the leader.
So the whole subtree is looked over at the start, and mended if wanted. Source: Storm's `AclEnforcement`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kazoo.exceptions import BadVersionError, InvalidACLError, NoAuthError, NoNodeError
from kazoo.security import ACL, Id

from leader.clock import Countdown
from leader.errors import AclError, ZooKeeperUnavailableError
from leader.protocol.paths import checked_root
from leader.protocol.requests import NotPermittedError
from leader.zookeeper.config import Access, Permission, wanted_access
from leader.zookeeper.executor import Together
from leader.zookeeper.session import ZooKeeperSession

PAGE = 200
"""Nodes about which requests travel together: a proof of leadership waits behind no more."""
_TRIES = 5
"""How often one node is mended while somebody else changes its list too."""
_ANSWERS = (BadVersionError, InvalidACLError, NoAuthError, NoNodeError)
"""Failures that say something of one node, and nothing of the connection."""


@dataclass(frozen=True, slots=True)
class AclDifference:
    """A node whose access list is not what it should be.

    Args:
        path: Which node.
        found: Its entries. Without permission to administer the node, ZooKeeper hides hashes of passwords.
        wanted: Those it should have, and no others.
    """

    path: str
    found: tuple[Access, ...]
    wanted: tuple[Access, ...]

    def __str__(self) -> str:
        return f"{self.path}: has {_words(self.found)}, should have {_words(self.wanted)}"


class AclEnforcement:
    """Checks and mends one subtree, in pages: two requests for each node. Any thread but kazoo's.

    Args:
        session: Connected. Mending needs its credential to administer the nodes as they are.
        root: Top of the subtree. Need not be there.
        wanted: Entries that each node should have; what the session's configuration makes, if not given.
        most_nodes: A larger subtree is refused.
        timeout: Longest time for one walk.
        stopping: Set by another thread: the walk ends after its page, with what was found until then.

    Raises:
        ElectionConfigError: `root` is no path, or nobody knows what is wanted with the session's credential.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        root: str,
        *,
        wanted: Sequence[Access] | None = None,
        most_nodes: int = 1_000_000,
        timeout: timedelta = timedelta(minutes=10),
        stopping: threading.Event | None = None,
    ) -> None:
        self._session, self._root = session, checked_root(root)
        self.wanted = tuple(wanted_access(session.config) if wanted is None else wanted)
        self._most_nodes, self._timeout = most_nodes, timeout
        self._stopping = stopping or threading.Event()

    def check(self) -> list[AclDifference]:
        """Look at every node; report those that differ. Nodes that vanish meanwhile are passed over.

        Raises:
            NotPermittedError: We may not read a node or its access list. Holds the path.
            AclError: There are too many nodes.
            ZooKeeperUnavailableError: No answer, or not all within the time.
        """
        return list(self._walk(mend=False))

    def fix(self) -> list[AclDifference]:
        """Check, and give each node that differs the wanted list. Returns what was mended.

        From the top down: once a node is closed, nobody else can make another below it. Ephemeral nodes of
        living participants are mended like others; their owners notice nothing. Safe to repeat.

        Raises:
            NotPermittedError: We may not administer a node. Holds the path; nodes before it are mended.
            AclError: There are too many nodes, ZooKeeper takes no such list, or others keep changing it.
            ZooKeeperUnavailableError: No answer, or not all within the time.
        """
        return list(self._walk(mend=True))

    def _walk(self, *, mend: bool) -> Iterator[AclDifference]:
        left = Countdown(self._timeout)
        seen, waiting = 0, [self._root]
        while waiting and not self._stopping.is_set():
            page = [waiting.pop() for _ in range(min(PAGE, len(waiting)))]
            seen += len(page)
            differences = self._differences(page, left)
            if mend and differences:
                self._mend(list(differences.values()), left)
            yield from (found for found, _ in differences.values())
            for path, names in self._each(left, "get_children_async", [(path,) for path in page]):
                waiting.extend(f"{path}/{name}" for name in sorted(names, reverse=True))
            if seen + len(waiting) > self._most_nodes:
                raise AclError(
                    f"{self._root} has more than {self._most_nodes} nodes; is it the root of an election? "
                    f"Give another root, or raise most_nodes"
                )

    def _differences(self, paths: Sequence[str], left: Countdown) -> dict[str, tuple[AclDifference, int]]:
        """The nodes whose list is not the wanted one, each with the version of its list."""
        differences = {}
        for path, (entries, stat) in self._each(left, "get_acls_async", [(path,) for path in paths]):
            found = tuple(Access(one.id.scheme, one.id.id, Permission(one.perms)) for one in entries)
            if sorted(found) != sorted(self.wanted):
                differences[path] = AclDifference(path, found, self.wanted), stat.aversion
        return differences

    def _mend(self, differences: Sequence[tuple[AclDifference, int]], left: Countdown) -> None:
        entries = [_theirs(one) for one in self.wanted]
        for _ in range(_TRIES):
            changes = [(found.path, entries, version) for found, version in differences]
            changed = {path for path, _ in self._each(left, "set_acls_async", changes)}
            others = [found.path for found, _ in differences if found.path not in changed]
            differences = list(self._differences(others, left).values()) if others else []
            if not differences:
                return
        path = differences[0][0].path
        raise AclError(f"{path}: somebody else keeps changing its access list; find out who, then try again")

    def _each(
        self, left: Countdown, method: str, calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[str, Any]]:
        """Send requests together. Leaves out nodes that are gone or that somebody else has just changed."""
        remaining = min(left.remaining(), self._session.config.call_timeout)
        if not remaining:
            raise ZooKeeperUnavailableError(
                f"the access lists below {self._root} were not all looked at within {self._timeout}; "
                f"try again, or allow more time"
            )
        ask = getattr(self._session.client, method)

        def access_lists_async() -> Together:
            return Together([ask(*call) for call in calls], _ANSWERS)

        answers = self._session.call(access_lists_async, timeout=remaining)
        for (path, *_), answer in zip(calls, answers, strict=True):
            match answer:
                case NoNodeError() | BadVersionError():
                    continue
                case NoAuthError():
                    raise NotPermittedError(path) from answer
                case InvalidACLError():
                    raise AclError(
                        f"ZooKeeper takes no access list {_words(self.wanted)} for {path}; check that it "
                        f"knows these schemes"
                    ) from answer
                case _:
                    yield path, answer


def _theirs(entry: Access) -> ACL:
    return ACL(int(entry.permissions), Id(entry.scheme, entry.id))


def _words(entries: Sequence[Access]) -> str:
    return ", ".join(map(str, entries)) or "nothing"
