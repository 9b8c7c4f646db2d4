"""Checks and repairs the access list of every node of an election.

Nodes created with a credential are closed to other clients. Nodes created before there was a credential, by
hand or by another program are open, and one open node is enough: a client that can delete a latch node can
depose the leader. So the whole subtree is checked at the start, and repaired if that is configured.
Source: Storm's `AclEnforcement`.
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
"""Number of nodes whose requests are sent together. A proof of leadership waits behind at most one page."""
_TRIES = 5
"""Number of attempts to repair a node while another client changes its list, too."""
_ANSWERS = (BadVersionError, InvalidACLError, NoAuthError, NoNodeError)
"""Errors that concern one node, not the connection."""


@dataclass(frozen=True, slots=True)
class AclDifference:
    """A node whose access list is not what it should be.

    Args:
        found: Its entries. Without the permission ADMIN for the node, ZooKeeper hides hashes of passwords.
        wanted: The entries it should have, and no others.
    """

    path: str
    found: tuple[Access, ...]
    wanted: tuple[Access, ...]

    def __str__(self) -> str:
        return f"{self.path}: has {_words(self.found)}, should have {_words(self.wanted)}"


class AclEnforcement:
    """Checks and repairs one subtree, in pages, with two requests for each node. Any thread but kazoo's.

    Args:
        session: Connected. To repair a node, its credential needs the permission ADMIN in the present list.
        root: Top of the subtree. It need not exist.
        wanted: Entries that each node should have. By default, those of nodes created with this session.
        most_nodes: Limit of the size of the subtree. A larger one is refused.
        timeout: Limit of the time for one walk.
        stopping: Set by another thread to end the walk after the present page. The result then holds what was
            found so far.

    Raises:
        ElectionConfigError: `root` is not a valid path, or `wanted` is not given and `wanted_access` raises.
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
        """Check every node; return those that differ. A node that is deleted meanwhile is left out.

        Raises:
            NotPermittedError: The credential may not read a node or its access list. Has the path.
            AclError: There are too many nodes.
            ZooKeeperUnavailableError: No answer, or not all answers within `timeout`.
        """
        return list(self._walk(mend=False))

    def fix(self) -> list[AclDifference]:
        """Check every node, and set the wanted list of those that differ. Returns the repaired ones.

        The walk goes from the top down: once a node is closed, no other client can create a node below it.
        Ephemeral nodes of live participants are repaired, too; their owners notice nothing. Safe to repeat.

        Raises:
            NotPermittedError: The credential may not change a node's list. Has the path; nodes before it are
                repaired.
            AclError: There are too many nodes, ZooKeeper refuses the list, or other clients keep changing it.
            ZooKeeperUnavailableError: No answer, or not all answers within `timeout`.
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
            yield from (acl for acl, _ in differences.values())
            for path, names in self._each(left, "get_children_async", [(path,) for path in page]):
                waiting.extend(f"{path}/{name}" for name in sorted(names, reverse=True))
            if seen + len(waiting) > self._most_nodes:
                raise AclError(
                    f"{self._root} has more than {self._most_nodes} nodes; is it the root of an election? "
                    f"Give another root, or raise most_nodes"
                )

    def _differences(self, paths: Sequence[str], left: Countdown) -> dict[str, tuple[AclDifference, int]]:
        """Find the nodes whose list is not the wanted one, each with the version of its list."""
        differences = {}
        for path, (entries, stat) in self._each(left, "get_acls_async", [(path,) for path in paths]):
            actual = tuple(Access(entry.id.scheme, entry.id.id, Permission(entry.perms)) for entry in entries)
            if sorted(actual) != sorted(self.wanted):
                differences[path] = AclDifference(path, actual, self.wanted), stat.aversion
        return differences

    def _mend(self, differences: Sequence[tuple[AclDifference, int]], left: Countdown) -> None:
        entries = [_kazoo_acl(access) for access in self.wanted]
        for _ in range(_TRIES):
            changes = [(difference.path, entries, version) for difference, version in differences]
            changed = {path for path, _ in self._each(left, "set_acls_async", changes)}
            others = [difference.path for difference, _ in differences if difference.path not in changed]
            differences = list(self._differences(others, left).values()) if others else []
            if not differences:
                return
        path = differences[0][0].path
        raise AclError(f"{path}: another client keeps changing its access list; find it, then try again")

    def _each(
        self, left: Countdown, method: str, calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[str, Any]]:
        """Send requests together. Leaves out nodes that are gone or that another client has just changed."""
        remaining = min(left.remaining(), self._session.config.call_timeout)
        if not remaining:
            raise ZooKeeperUnavailableError(
                f"the access lists below {self._root} were not all checked within {self._timeout}; "
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
                        f"ZooKeeper refuses the access list {_words(self.wanted)} for {path}; check that it "
                        f"knows these schemes"
                    ) from answer
                case _:
                    yield path, answer


def _kazoo_acl(entry: Access) -> ACL:
    return ACL(int(entry.permissions), Id(entry.scheme, entry.id))


def _words(entries: Sequence[Access]) -> str:
    return ", ".join(map(str, entries)) or "nothing"
