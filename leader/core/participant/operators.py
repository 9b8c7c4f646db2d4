"""What a leader does about the wishes of operators."""

from __future__ import annotations

from contextlib import suppress

from leader.core.participant.control import read_queued
from leader.protocol.control import Control, Switchover, encode_control
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Check, SetData, Steps, TransactionFailedError, transaction
from leader.protocol.terms import Leadership


def see_to(
    paths: ElectionPaths, control: Control, version: int | None, leadership: Leadership
) -> Steps[Switchover | None]:
    """Look whether an operator wants us to step down; remove the wish if it is fulfilled or void.

    `version` is that of the control node when `control` was read and its watch was set.

    Returns:
        The wish that we shall fulfil now; None if we go on.
    """
    wish = control.switchover
    if wish is None or version is None:
        return None
    ours_to_fulfil = wish.to != leadership.participant.id and wish.epoch == leadership.epoch
    if ours_to_fulfil and (not wish.to or wish.to in (yield from read_queued(paths)).values()):
        return wish
    token = leadership.token
    without = SetData(paths.control, encode_control(Control(pause=control.pause)), version)
    # Refused: another leads, or the node has changed since, and its watch makes us look again.
    with suppress(TransactionFailedError):
        yield from transaction(Check(token.path, token.version), without)
    return None
