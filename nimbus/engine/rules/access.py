"""Whether who asked for a command may still have it done: checked in the turn that decides it."""

from __future__ import annotations

from datetime import datetime

from nimbus.access.rules import as_of_now, check_owner, check_role, needed_role, needs_owner
from nimbus.domain.commands import QueuedCommand
from nimbus.engine.state import State


def check_access(state: State, queued: QueuedCommand, now: datetime) -> None:
    """Raise AccessDeniedError if the principal of a command may not ask for it (any more)."""
    if queued.asked_by is None:
        return
    principal, command = as_of_now(queued.asked_by, state.settings.tokens, now), queued.command
    check_role(principal, needed_role(command), command.type)
    if needs_owner(command, principal):
        record = state.pipelines.get(command.pipeline)
        if record is not None:
            check_owner(principal, record.name, record.owner)
