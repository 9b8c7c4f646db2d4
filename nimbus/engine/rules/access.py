"""Checks the permission of a command's principal again, in the turn that decides the command."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.access.rules import as_of_now, check_owner, check_role, needed_role, needs_owner
from nimbus.domain.commands import QueuedCommand
from nimbus.engine.state import State


def check_access(state: State, queued: QueuedCommand, now: datetime) -> QueuedCommand:
    """The command, with the current role and teams of its principal.

    Raises:
        AccessDeniedError: the principal does not have the permission (any more).
    """
    if queued.asked_by is None:
        return queued
    principal = as_of_now(queued.asked_by, state.settings.tokens, state.policy.grants, now)
    command = queued.command
    check_role(principal, needed_role(command), command.type)
    if needs_owner(command, principal):
        record = state.catalog.pipelines.get(command.pipeline)
        if record is not None:
            check_owner(principal, record.name, record.owner)
    return replace(queued, asked_by=principal)
