"""Commands that ask for a purge: storage keeps what they ask for before they are answered.

So the order outlives the leader: the next one carries it out (`nimbus.scheduler.purge`). A leader that dies
between the two stores it a second time, which changes nothing.
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
        """None: storage has the order."""

    def stored(self, command: CommandId, answer: Refusal | None) -> bool:
        """Storage has it, or it is refused. Whether this leader waits for that."""
        if command not in self.storing:
            return False
        self.storing.discard(command)
        self.answers[command] = answer
        return True

    def forget(self, command: CommandId) -> None:
        """The command is answered."""
        self.storing.discard(command)
        self.answers.pop(command, None)

    def only(self, waiting: Collection[CommandId]) -> PurgeOrders:
        """The same for commands that wait."""
        kept = PurgeOrders()
        kept.storing = {command for command in self.storing if command in waiting}
        kept.answers = {key: answer for key, answer in self.answers.items() if key in waiting}
        return kept


def store_order(history: History, command: CommandId, order: PurgeOrder) -> None:
    """Let storage keep an order.

    Raises:
        RefusedError: it names a run that is not in history, or whose outputs or history must stay.
        NimbusError: storage cannot do it now.
    """
    if (run_id := order.what.run_id) is not None:
        if history.read(run_id) is None:
            raise RefusedError("unknown_run", f"run {run_id} {fate_of(history.purged(run_id))}.")
        by = history.reusers(run_id)
        if by and set(order.what.parts) != {Part.LOGS}:
            raise RefusedError("run_reused", f"run {run_id} keeps its outputs: {Kept.REUSED} ({by[0]}).")
    history.order_purge(command, order)
