"""What is known of a leader, and how that changes. Pure: no clock, no thread, no ZooKeeper.

The invariants; tests/property holds them against random histories:

1. Epochs of views that name a leader never fall; within one epoch, the node that is shown never becomes an
   older one.
2. A view is CURRENT only by a reading, and no longer than the link lasts on which it was made.
3. UNKNOWN names no leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum


class ViewState(Enum):
    """How much a view is worth.

    CURRENT: read, and watched since. STALE: the connection broke, or a reading failed; the view is the last
    one known. UNKNOWN: the session is over, or may be; or the node holds what cannot be right.
    """

    CURRENT = "current"
    STALE = "stale"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LeaderView:
    """Who leads, as far as it is known.

    Args:
        state: How much the view is worth.
        as_of: When ZooKeeper was asked, by the clock of the retrieval.
        id: Of the leading participant; None for no leader (CURRENT, STALE) or for not known (UNKNOWN).
        address: `host:port` of the participant, or what the component confirmed; None if it gave none.
        epoch: Of its term.
        session: ZooKeeper session of the leader, in hexadecimal; of a component, the session id of its term.
        reason: Why it is not current.
    """

    state: ViewState
    as_of: timedelta
    id: str | None = None
    address: str | None = None
    epoch: int | None = None
    session: str | None = None
    reason: str = ""

    def says_the_same(self, other: LeaderView) -> bool:
        """Whether the two differ in nothing but `as_of`."""
        return replace(self, as_of=other.as_of) == other


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The present view, and the newest node that was ever seen.

    Args:
        view: The present view.
        highest: Epoch of that node, and the transaction that made it.
    """

    view: LeaderView
    highest: tuple[int, int] = (-1, -1)

    @classmethod
    def none(cls, at: timedelta) -> Knowledge:
        """Before anything was read."""
        return cls(_unknown(at, "nothing was read yet"))

    def read(self, view: LeaderView, created_zxid: int = 0) -> Knowledge:
        """The node was read and says `view`; transaction `created_zxid` made the node."""
        if view.epoch is None:
            return replace(self, view=view)
        order = (view.epoch, created_zxid)
        if order < self.highest:
            return replace(self, view=_unknown(view.as_of, self._backwards(order)))
        return Knowledge(view, order)

    def doubted(self, reason: str) -> Knowledge:
        """The connection broke, or a reading failed."""
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
            f"new retrieval once the election is in order"
        )


def _unknown(at: timedelta, reason: str) -> LeaderView:
    return LeaderView(ViewState.UNKNOWN, at, reason=reason)
