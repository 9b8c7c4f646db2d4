"""Links to pages of Spark's history servers, for ended applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryServers:
    """Base URLs of Spark's history servers, from the configuration."""

    general: str | None = None
    of_targets: Mapping[str, str] = field(default_factory=dict)
    """Servers of targets that have their own, by the target's name."""

    def page(self, target: str | None, application: str) -> str | None:
        """The page of an application; None: no server is known. `target`: that of the task, if it has one."""
        server = self.of_targets.get(target or "", self.general)
        return None if server is None else f"{server}/history/{application}/"
