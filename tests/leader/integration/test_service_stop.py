"""The end of an election service or of one component: revoked, then no more calls, and no deadlock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from kazoo.client import KazooClient

from leader import (
    ElectionPaths,
    ElectionStateError,
)
from tests.leader.integration.service_nodes import LONG, Node, Published

Eventually = Callable[..., None]


def test_stop_revokes_and_after_it_nothing_is_told(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    """testGrantCallOnStop..., testErrorForwarding after stop, testOnLeadershipChangeAfterStop..."""
    node = nodes("a")
    contender = node.contend("c")
    node.service.start()
    eventually(lambda: published("c") is not None)
    session = contender.sessions[0]

    node.service.stop(LONG)
    node.service.stop(LONG)

    assert contender.told == ["grant", "revoke"]
    assert not node.service.has_leadership(session)
    assert operator.exists(ElectionPaths(node.root).component("c")) is None
    assert node.service.elector.get_all_participants() == []
    assert contender.election is not None
    contender.election.confirm_leadership(session, "late:1")
    operator.create(ElectionPaths(node.root).component("c"), b"somebody else's", makepath=True)
    contender.election.stop(LONG)
    assert contender.told == ["grant", "revoke"]
    assert contender.errors == []
    assert operator.get(ElectionPaths(node.root).component("c"))[0] == b"somebody else's"
    with pytest.raises(ElectionStateError, match="stopped"):
        contender.election.start(contender)
    with pytest.raises(ElectionStateError):
        node.service.start()


def test_one_component_stops_and_the_others_go_on(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    """testLeaderElectionsAreIndependent... / closing one registration."""
    node = nodes("a")
    staying, leaving = node.contend("staying"), node.contend("leaving")
    node.service.start()
    eventually(lambda: published("staying") is not None and published("leaving") is not None)
    assert leaving.election is not None

    leaving.election.stop(LONG)

    assert leaving.told == ["grant", "revoke"]
    assert not leaving.election.has_leadership(leaving.sessions[0])
    assert staying.told == ["grant"]
    assert node.service.has_leadership(staying.sessions[0])
    eventually(lambda: operator.exists(ElectionPaths(node.root).component("leaving")) is None)
    assert published("staying") is not None

    again = node.contend("leaving")
    eventually(lambda: again.sessions == staying.sessions, what="another contender may take its place")


def test_stop_within_a_callback_does_not_deadlock(nodes: Callable[..., Node], eventually: Eventually) -> None:
    node = nodes("a")
    contender, other = node.contend("c"), node.contend("other")
    returned = threading.Event()

    def stop(_session: UUID) -> None:
        node.service.stop(timedelta(minutes=5))
        returned.set()

    contender.on_grant = stop
    node.service.start()

    eventually(returned.is_set, what="stop returns within the callback, and not after its timeout")
    eventually(lambda: contender.told == ["grant", "revoke"], what="revoke follows the callback")
    assert other.told in ([], ["grant", "revoke"])
    eventually(lambda: node.service.elector.get_all_participants() == [], what="the election is left")


def test_stop_of_a_component_within_its_callback_does_not_deadlock(
    nodes: Callable[..., Node], eventually: Eventually
) -> None:
    node = nodes("a")
    contender, other = node.contend("c"), node.contend("other")
    returned = threading.Event()

    def stop(_session: UUID) -> None:
        assert contender.election is not None
        contender.election.stop(LONG)
        returned.set()

    contender.on_grant = stop
    node.service.start()

    eventually(returned.is_set)
    eventually(lambda: contender.told == ["grant", "revoke"])
    eventually(lambda: other.told == ["grant"])


def test_stop_with_a_lock_that_the_contender_wants_returns_in_bounded_time_and_revokes_afterwards(
    nodes: Callable[..., Node], eventually: Eventually
) -> None:
    """testNestedDeadlockInLeadershipConfirmation and its kin (FLINK-20008, 25847, 29234, 32311, 34672)."""
    node = nodes("a")
    contender = node.contend("c")
    lock, waiting = threading.Lock(), threading.Event()

    def revoke() -> None:
        waiting.set()
        with lock:
            contender.told.append("had the lock")

    contender.on_revoke = revoke
    node.service.start()
    eventually(lambda: contender.told == ["grant"])

    with lock:
        node.service.stop(timedelta(seconds=2))
        assert waiting.is_set()
        assert contender.told == ["grant", "revoke"]
        assert not node.service.has_leadership(contender.sessions[0])

    eventually(lambda: contender.told == ["grant", "revoke", "had the lock"])


def test_the_lock_is_not_let_go_before_the_contenders_were_revoked(
    nodes: Callable[..., Node], eventually: Eventually
) -> None:
    node = nodes("a", handover_timeout=timedelta(seconds=30))
    contender = node.contend("c")
    release, revoking = threading.Event(), threading.Event()

    def revoke() -> None:
        revoking.set()
        release.wait(60)

    contender.on_revoke = revoke
    node.service.start()
    eventually(lambda: contender.told == ["grant"])
    try:
        node.service.elector.remove_from_leader_lock_queue()
        eventually(revoking.is_set)
        eventually(lambda: not node.service.elector.is_leader())
        # Sent through the election's own session, so that it is answered after all its earlier requests.
        for _ in range(20):
            assert len(node.service.elector.get_all_participants()) == 1, "the lock is held meanwhile"
    finally:
        release.set()
    eventually(lambda: node.service.elector.get_all_participants() == [], what="it is let go afterwards")


def test_stop_makes_has_leadership_false_at_once_and_waits_for_revoke(
    nodes: Callable[..., Node], eventually: Eventually
) -> None:
    node = nodes("a")
    contender = node.contend("c")
    seen: list[bool] = []
    contender.on_revoke = lambda: seen.append(node.service.has_leadership(contender.sessions[0]))
    node.service.start()
    eventually(lambda: contender.told == ["grant"])

    node.service.stop(LONG)

    assert seen == [False]
    assert contender.told == ["grant", "revoke"]
