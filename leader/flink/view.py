"""What is known of a leader, and how that changes. Pure: no clock, no thread, no ZooKeeper.

The invariants. tests/leader/property checks them with random histories:

1. The epoch of views that name a leader never falls. Within one epoch, the view of an older node never
   follows the view of a newer one.
2. A view becomes CURRENT only by a read, and stays so no longer than the connection of that read lasts.
3. UNKNOWN names no leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum


class ViewState(Enum):
    """How reliable a view is.

    CURRENT: read, and watched since. STALE: the connection broke, or a read failed; the view is the last one
    known. UNKNOWN: the session is over, or may be; or the content of the node is invalid.
    """

    CURRENT = "current"
    STALE = "stale"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader, as far as it is known.

    Args:
        state: How reliable the view is.
        as_of: When the read was sent to ZooKeeper, by the clock of the retrieval.
        id: Id of the leader; None for no leader (CURRENT, STALE) or for not known (UNKNOWN).
        address: `host:port` of the participant, or the address that the component confirmed; None if unset.
        epoch: Epoch of the leader's term.
        session: ZooKeeper session of the leader, in hexadecimal. For a component, the session id of its term.
        reason: Why the view is not CURRENT.
    """

    state: ViewState
    as_of: timedelta
    id: str | None = None
    address: str | None = None
    epoch: int | None = None
    session: str | None = None
    reason: str = ""

    def says_the_same(self, other: LeaderView) -> bool:
        """True when the two views differ only in `as_of`."""
        return replace(self, as_of=other.as_of) == other


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The present view, and the newest node that was ever read.

    `highest`: its epoch, and the transaction that created it.
    """

    view: LeaderView
    highest: tuple[int, int] = (-1, -1)

    @classmethod
    def none(cls, at: timedelta) -> Knowledge:
        """Make the knowledge before the first read."""
        return cls(_unknown(at, "nothing was read yet"))

    def read(self, view: LeaderView, created_zxid: int = 0) -> Knowledge:
        """The node was read and contains `view`; transaction `created_zxid` created the node."""
        if view.epoch is None:
            return replace(self, view=view)
        order = (view.epoch, created_zxid)
        if order < self.highest:
            return replace(self, view=_unknown(view.as_of, self._backwards(order)))
        return Knowledge(view, order)

    def doubted(self, reason: str) -> Knowledge:
        """The connection broke, or a read failed."""
        if self.view.state is not ViewState.CURRENT:
            return self
        return replace(self, view=replace(self.view, state=ViewState.STALE, reason=reason))

    def forgot(self, reason: str, at: timedelta) -> Knowledge:
        """The leader is not known any more."""
        return replace(self, view=_unknown(at, reason))

    def _backwards(self, order: tuple[int, int]) -> str:
        return (
            f"a leader of epoch {order[0]} was read (zxid {order[1]:#x}) after one of epoch "
            f"{self.highest[0]} (zxid {self.highest[1]:#x}): ZooKeeper's data was wiped or restored. Make a "
            f"new retrieval when the election is repaired"
        )


def _unknown(at: timedelta, reason: str) -> LeaderView:
    return LeaderView(ViewState.UNKNOWN, at, reason=reason)
