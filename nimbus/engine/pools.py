"""What open attempts take of each pool. Counted from the attempts, so that nothing can leak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nimbus.domain.ids import AttemptId


class PoolUse:
    """Changed with each attempt that opens or closes."""

    def __init__(self) -> None:
        self._taken: dict[AttemptId, Mapping[str, int]] = {}
        """By those attempts that take something."""
        self._used: Counter[str] = Counter()

    def used(self, pool: str) -> int:
        """What open attempts take of a pool."""
        return self._used[pool]

    def opened(self, attempt: AttemptId, pools: Mapping[str, int]) -> None:
        """An attempt takes something."""
        if pools:
            self._taken[attempt] = pools
            self._used.update(pools)

    def closed(self, attempt: AttemptId) -> Iterable[str]:
        """An attempt gives back what it took. Of which pools."""
        pools = self._taken.pop(attempt, None)
        if pools is None:
            return ()
        self._used.subtract(pools)
        return pools
