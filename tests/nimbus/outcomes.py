"""Waiting for a leader's decision, for tests that have no event loop."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from nimbus.domain.commands import CommandOutcome
from nimbus.domain.ids import CommandId
from nimbus.ports import CommandQueue


def await_outcome(queue: CommandQueue, command: CommandId, timeout: timedelta) -> CommandOutcome | None:
    """The outcome, or None if there is none in time."""
    until = time.monotonic() + timeout.total_seconds()
    while True:
        changed = threading.Event()
        outcome = queue.outcome(command, changed.set)
        if outcome is not None or not changed.wait(until - time.monotonic()):
            return outcome or queue.outcome(command)
