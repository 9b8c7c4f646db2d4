"""What a leader does about the wishes of operators."""

from __future__ import annotations

from leader.office.control import read_cards
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.records import Control, Leadership, decode_id, encode_control
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


def see_to(paths: ElectionPaths, control: Control, leadership: Leadership) -> Steps[str | None]:
    """Hand over to whom an operator named, or strike the wish off: fulfilled, void or impossible.

    Returns:
        The id of a participant that is in the queue and shall lead; None if we go on.
    """
    wish = control.switchover
    if wish is None:
        return None
    if wish.to != leadership.participant.id and wish.epoch == leadership.epoch:
        able = [card for card in (yield from read_cards(paths, [wish.to])) if not card.nofailover]
        if able and (yield from _is_queued(paths, wish.to)):
            return wish.to
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
        except NodeMissingError:
            continue
        if decode_id(data, path) == wanted:
            return True
    return False
