"""Holds every node of an election against the access list it should have.

Nodes made with a credential are closed to others, but those made before there was one, or by hand, or by
another program are not, and one open node is enough: whoever can delete a latch node can depose the leader.
So the whole subtree is looked over at the start, and mended if wanted. Source: Storm's `AclEnforcement`.
"""

from __future__ import annotations

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
from leader.zookeeper.access import Access, Permission, wanted_access
from leader.zookeeper.session import ZooKeeperSession

_TRIES = 5
"""How often one node is mended while somebody else changes its list too."""


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
    """Checks and mends one subtree. Any thread but kazoo's; each walk sends two requests for each node.

    Args:
        session: Connected. Mending needs its credential to administer the nodes as they are.
        root: Top of the subtree. Need not be there.
        wanted: Entries that each node should have; what the session's configuration makes, if not given.
        most_nodes: A larger subtree is refused: it is none of an election.
        timeout: Longest time for one walk.

    Raises:
        ElectionConfigError: `root` is no path, or nobody knows what is wanted with the session's credential.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        root: str,
        *,
        wanted: Sequence[Access] | None = None,
        most_nodes: int = 10_000,
        timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        self._session, self._root = session, checked_root(root)
        self.wanted = tuple(wanted_access(session.config) if wanted is None else wanted)
        self._most_nodes, self._timeout = most_nodes, timeout

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
        while waiting:
            path = waiting.pop()
            seen += 1
            if seen > self._most_nodes:
                raise AclError(
                    f"{self._root} has more than {self._most_nodes} nodes; is it the root of an election? "
                    f"Give another root, or raise most_nodes"
                )
            try:
                difference = self._mended(path, left) if mend else self._difference(path, left)[0]
                waiting.extend(f"{path}/{name}" for name in self._children(path, left))
            except NoNodeError:
                continue  # it has gone since its parent was read
            except NoAuthError as exc:
                raise NotPermittedError(path) from exc
            if difference is not None:
                yield difference

    def _mended(self, path: str, left: Countdown) -> AclDifference | None:
        first: AclDifference | None = None
        for _ in range(_TRIES):
            difference, version = self._difference(path, left)
            first = first or difference
            if difference is None:
                return first
            try:
                self._ask(left, "set_acls_async", path, [_theirs(one) for one in self.wanted], version)
            except BadVersionError:
                continue  # somebody else has changed it since
            except InvalidACLError as exc:
                raise AclError(
                    f"ZooKeeper takes no access list {_words(self.wanted)} for {path}; check that it knows "
                    f"these schemes"
                ) from exc
            return first
        raise AclError(f"{path}: somebody else keeps changing its access list; find out who, then try again")

    def _difference(self, path: str, left: Countdown) -> tuple[AclDifference | None, int]:
        entries, stat = self._ask(left, "get_acls_async", path)
        found = tuple(Access(one.id.scheme, one.id.id, Permission(one.perms)) for one in entries)
        if sorted(found) == sorted(self.wanted):
            return None, stat.aversion
        return AclDifference(path, found, self.wanted), stat.aversion

    def _children(self, path: str, left: Countdown) -> list[str]:
        names: list[str] = self._ask(left, "get_children_async", path)
        return sorted(names, reverse=True)

    def _ask(self, left: Countdown, method: str, *args: Any) -> Any:
        remaining = min(left.remaining(), self._session.config.call_timeout)
        if not remaining:
            raise ZooKeeperUnavailableError(
                f"the access lists below {self._root} were not all looked at within {self._timeout}; "
                f"try again, or allow more time"
            )
        return self._session.call(getattr(self._session.client, method), *args, timeout=remaining)


def _theirs(entry: Access) -> ACL:
    return ACL(int(entry.permissions), Id(entry.scheme, entry.id))


def _words(entries: Sequence[Access]) -> str:
    return ", ".join(map(str, entries)) or "nothing"
