"""The requests of a latch to ZooKeeper, one by one, with answers from the test."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from leader.core.latch.steps import LatchSteps, PlainClaimant
from leader.core.lease import SessionLiveness
from leader.errors import ZooKeeperUnavailableError
from leader.protocol.requests import Create, Delete, Exists, GetChildren, Request, Stat


def _steps() -> LatchSteps:
    liveness = SessionLiveness()
    liveness.attached(5, timedelta(0), timedelta(seconds=10))
    session: Any = SimpleNamespace(liveness=liveness)
    return LatchSteps(session, "/q", b"me", PlainClaimant("/q"))


def test_a_node_of_a_lost_reply_is_found_again_even_after_the_sequence_has_overflown() -> None:
    steps = _steps()
    joining = steps.join()
    create = next(joining)
    assert isinstance(create, Create)
    made = f"{create.path.removeprefix('/q/')}-2147483634"
    with contextlib.suppress(ZooKeeperUnavailableError):
        joining.throw(ZooKeeperUnavailableError("reply lost"))

    again = steps.join()
    assert next(again) == GetChildren("/q")
    assert again.send(["stranger", made]) == Exists(f"/q/{made}")
    try:
        again.send(Stat(0, owner=5))
    except StopIteration as stop:
        assert stop.value.node.name == made
        assert not stop.value.made
    else:
        raise AssertionError("it should have been adopted")


def test_a_node_of_an_older_session_is_deleted_and_another_made() -> None:
    steps = _steps()
    joining = steps.join()
    create = next(joining)
    assert isinstance(create, Create)
    made = f"{create.path.removeprefix('/q/')}0000000001"
    with contextlib.suppress(ZooKeeperUnavailableError):
        joining.throw(ZooKeeperUnavailableError("reply lost"))

    again = steps.join()
    asked: list[Request] = [next(again), again.send([made]), again.send(Stat(0, owner=4)), again.send(None)]

    assert asked[2] == Delete(f"/q/{made}")
    assert isinstance(asked[3], Create)
