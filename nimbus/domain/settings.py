"""Settings of the whole cluster that commands change: pools, variables, cordons, tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nimbus.domain.access import Token
from nimbus.domain.ids import WorkerId
from nimbus.domain.workers import WorkerInfo

MOST_POOLS = 1000
MOST_CORDONED = 1000
LONGEST_VARIABLE = 1024
"""Limit of a value, in characters."""
MOST_VARIABLE_BYTES = 32 * 1024
"""Limit of all names and values, in bytes of JSON. It keeps the record far below the limit of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings, in one record, which is read and written in one call."""

    pools: Mapping[str, int] = field(default_factory=dict)
    """The size of each pool. The use is counted from open attempts, and is not stored."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values that templates read as `vars.NAME`. No secrets: everybody can read them."""
    cordoned: Mapping[WorkerId, str] = field(default_factory=dict)
    """Workers that get no new attempts, with the reason. An entry stays while the worker is offline."""
    drained: tuple[WorkerId, ...] = ()
    """Those of them that tasks which are kept running leave."""
    tokens: Mapping[str, Token] = field(default_factory=dict)
    """Tokens by id. They contain only the SHA-256 of the secret."""

    def applied_to(self, workers: Iterable[WorkerInfo]) -> tuple[WorkerInfo, ...]:
        """The workers, with cordoned ones marked as draining."""
        return tuple(
            replace(w, draining=True, evicts=w.id in self.drained) if w.id in self.cordoned else w
            for w in workers
        )
