"""The use of each pool. It is counted from open attempts, so that nothing can leak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nimbus.domain.ids import AttemptId


class PoolUse:
    """The use of all pools, updated when an attempt opens or closes."""

    def __init__(self) -> None:
        self._taken: dict[AttemptId, Mapping[str, int]] = {}
        """The amounts of each attempt that uses a pool."""
        self._used: Counter[str] = Counter()

    def used(self, pool: str) -> int:
        """How much of a pool open attempts take."""
        return self._used[pool]

    def opened(self, attempt: AttemptId, pools: Mapping[str, int]) -> None:
        """Add the use of an attempt."""
        if pools:
            self._taken[attempt] = pools
            self._used.update(pools)

    def closed(self, attempt: AttemptId) -> Iterable[str]:
        """Remove the use of an attempt. Return its pools."""
        pools = self._taken.pop(attempt, None)
        if pools is None:
            return ()
        self._used.subtract(pools)
        return pools
