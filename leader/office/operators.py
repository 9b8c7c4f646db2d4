"""What a leader does about the wishes of operators."""

from __future__ import annotations

from leader.errors import RecordError
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.records import Control, Leadership, Switchover, decode_id, encode_control
from leader.protocol.requests import (
    Check,
    NodeMissingError,
    SetData,
    Steps,
    TransactionFailedError,
    get,
    get_children,
    transaction,
)


def see_to(paths: ElectionPaths, control: Control, leadership: Leadership) -> Steps[Switchover | None]:
    """Look whether an operator wants us to step down; strike the wish off if it is fulfilled or void.

    Returns:
        The wish that we shall fulfil now; None if we go on.
    """
    wish = control.switchover
    if wish is None:
        return None
    ours_to_fulfil = wish.to != leadership.participant.id and wish.epoch == leadership.epoch
    if ours_to_fulfil and (not wish.to or (yield from _is_queued(paths, wish.to))):
        return wish
    token = leadership.token
    struck = SetData(paths.control, encode_control(Control(pause=control.pause)))
    try:
        yield from transaction(Check(token.path, token.version), struck)
    except TransactionFailedError:
        return None  # we lead no more, or the node is gone: nothing to strike off
    return None


def _is_queued(paths: ElectionPaths, wanted: str) -> Steps[bool]:
    try:
        children = yield from get_children(paths.queue)
    except NodeMissingError:
        return False
    for entry in in_queue_order(children):
        path = paths.latch(entry.name)
        try:
            data, _ = yield from get(path)
            if decode_id(data, path) == wanted:
                return True
        except (NodeMissingError, RecordError):
            continue  # it left, or is a stranger
    return False
