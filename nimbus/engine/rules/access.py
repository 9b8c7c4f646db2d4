"""Whether who asked for a command may still have it done: checked in the turn that decides it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.access.rules import as_of_now, check_owner, check_role, needed_role, needs_owner
from nimbus.domain.commands import QueuedCommand
from nimbus.engine.state import State


def check_access(state: State, queued: QueuedCommand, now: datetime) -> QueuedCommand:
    """The command with its principal's role and teams of now.

    Raises:
        AccessDeniedError: the principal may not ask for it (any more).
    """
    if queued.asked_by is None:
        return queued
    principal = as_of_now(queued.asked_by, state.settings.tokens, state.policy.grants, now)
    command = queued.command
    check_role(principal, needed_role(command), command.type)
    if needs_owner(command, principal):
        record = state.pipelines.get(command.pipeline)
        if record is not None:
            check_owner(principal, record.name, record.owner)
    return replace(queued, asked_by=principal)
