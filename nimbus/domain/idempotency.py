"""Records of idempotency keys, for requests that may be sent again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nimbus.domain.commands import CommandKey, CommandOutcome
from nimbus.domain.errors import NimbusError


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCommand:
    """The command that a key belongs to."""

    request: str
    """As of `CommandKey.request`."""
    outcome: CommandOutcome | None = None
    """None: the command waits."""

    def may_be_forgotten(self, before: datetime) -> bool:
        """True when the command was decided before `before`. The key of a waiting command is always kept."""
        return self.outcome is not None and self.outcome.decided_at < before


class KeyUsedError(NimbusError):
    """A command with this key was queued before. Nothing was queued."""

    code = "key_used"

    def __init__(self, key: CommandKey) -> None:
        super().__init__(f"a command with key {key.hash} was queued before.")
