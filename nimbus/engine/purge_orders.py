"""Purge commands: the leader stores the order in object storage before it answers the command.

So the order survives the leader, and the next one carries it out (`nimbus.scheduler.purge`). If a leader dies
before the answer, its successor stores the order again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import CommandId
from nimbus.domain.purge import Kept, PurgeOrder, fate_of
from nimbus.domain.purge_parts import Part
from nimbus.engine.refusal import Refusal
from nimbus.ports import History


class PurgeOrders:
    """Commands whose orders are being stored, or are stored."""

    def __init__(self) -> None:
        self.storing: set[CommandId] = set()
        self.answers: dict[CommandId, Refusal | None] = {}
        """Results of storing; None: the order is stored."""

    def stored(self, command: CommandId, answer: Refusal | None) -> bool:
        """Record that an order is stored or refused. False: this leader does not wait for it."""
        if command not in self.storing:
            return False
        self.storing.discard(command)
        self.answers[command] = answer
        return True

    def forget(self, command: CommandId) -> None:
        """Remove a command that is answered."""
        self.storing.discard(command)
        self.answers.pop(command, None)

    def only(self, waiting: Collection[CommandId]) -> PurgeOrders:
        """A copy with only the commands in `waiting`."""
        kept = PurgeOrders()
        kept.storing = {command for command in self.storing if command in waiting}
        kept.answers = {key: answer for key, answer in self.answers.items() if key in waiting}
        return kept


def store_order(history: History, command: CommandId, order: PurgeOrder) -> None:
    """Store an order in object storage.

    Raises:
        RefusedError: its run is not in history, or the run's outputs or history must be kept.
        NimbusError: storage is not available now.
    """
    if (run_id := order.what.run_id) is not None:
        if history.read(run_id) is None:
            raise RefusedError("unknown_run", f"run {run_id} {fate_of(history.purged(run_id))}.")
        by = history.reusers(run_id)
        if by and set(order.what.parts) != {Part.LOGS}:
            raise RefusedError("run_reused", f"run {run_id} keeps its outputs: {Kept.REUSED} ({by[0]}).")
    history.order_purge(command, order)
