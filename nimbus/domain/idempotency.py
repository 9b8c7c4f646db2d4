"""Requests that may be sent again: what is known of one by its key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nimbus.domain.command_key import CommandKey
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.errors import NimbusError


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCommand:
    """What a key stands for."""

    request: str
    """As of `CommandKey.request`."""
    outcome: CommandOutcome | None = None
    """None: the command waits."""

    def may_be_forgotten(self, before: datetime) -> bool:
        """Whether it was decided before some time. One that waits is never forgotten."""
        return self.outcome is not None and self.outcome.decided_at < before


class KeyUsedError(NimbusError):
    """A command with this key was queued before. Nothing was queued."""

    code = "key_used"

    def __init__(self, key: CommandKey) -> None:
        super().__init__(f"a command with key {key.hash} was queued before.")
