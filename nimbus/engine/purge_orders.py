"""Purge commands: the leader stores the order in object storage before it answers the command.

So the order survives the leader, and the next one carries it out (`nimbus.scheduler.purge`). If a leader dies
before the answer, its successor stores the order again, which changes nothing.
"""

from __future__ import annotations

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import CommandId
from nimbus.domain.purge import KeptReason, PurgeOrder, RunNote, fate_of
from nimbus.domain.run import RunPart
from nimbus.ports import History


def store_order(history: History, command: CommandId, order: PurgeOrder | RunNote) -> None:
    """Store an order, or a note, in object storage.

    Raises:
        RefusedError: its run is not in history, or the run's outputs or history must be kept.
        NimbusError: storage is not available now.
    """
    if isinstance(order, RunNote):
        history.put_note(order)
        return
    if (run_id := order.what.run_id) is not None:
        run = history.read(run_id)
        if run is None:
            raise RefusedError("unknown_run", f"run {run_id} {fate_of(history.purged(run_id))}.")
        by = history.reusers(run_id)
        if by and set(order.what.parts) != {RunPart.LOGS}:
            raise RefusedError(
                "run_reused", f"run {run_id} keeps its outputs: {KeptReason.REUSED} ({by[0]})."
            )
        kept = history.kept_version(run, order.at) if set(order.what.parts) != {RunPart.LOGS} else None
        if kept is not None:
            raise RefusedError("run_published", f"run {run_id} keeps its outputs: {kept}.")
    history.order_purge(command, order)
