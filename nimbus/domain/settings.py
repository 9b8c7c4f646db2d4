"""What operators set for the whole cluster, by commands: pools, variables, cordons, tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nimbus.domain.access import Token
from nimbus.domain.ids import WorkerId
from nimbus.domain.workers import WorkerInfo

MOST_POOLS = 1000
MOST_CORDONED = 1000
LONGEST_VARIABLE = 1024
"""Characters of a value."""
MOST_VARIABLE_BYTES = 32 * 1024
"""Of all names and values, as JSON. The record stays far below what one node holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One record, so that it is read and written in one call."""

    pools: Mapping[str, int] = field(default_factory=dict)
    """The size of each. What is taken is counted from open attempts, and stands nowhere."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What templates take as `vars.NAME`. No secrets: anybody can read them."""
    cordoned: Mapping[WorkerId, str] = field(default_factory=dict)
    """Workers that are given nothing new, with the reason; also while they are not registered."""
    tokens: Mapping[str, Token] = field(default_factory=dict)
    """By id. None of a secret, only its SHA-256."""

    def applied_to(self, workers: Iterable[WorkerInfo]) -> tuple[WorkerInfo, ...]:
        """The workers; one that is cordoned drains."""
        return tuple(replace(w, draining=True) if w.id in self.cordoned else w for w in workers)
