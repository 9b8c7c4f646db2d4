"""The election service on a real ZooKeeper: contenders, session ids, published leader information.

The tests follow Flink's DefaultLeaderElectionServiceTest. Each names its case.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from leader import (
    ElectionConfig,
    ElectionConfigError,
    ElectionPaths,
    ElectionStateError,
    Elector,
    Participant,
    Verdict,
)
from leader.elector import Electable
from leader.factory import ElectorSetup, make_elector
from leader.flink.service import LeaderElectionService
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.leader.integration.service_nodes import LONG, Contender, Node, Published

Eventually = Callable[..., None]


def test_all_components_are_granted_one_session_id_and_publish_their_addresses(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    """testOnGrantAndRevokeLeadership, the granting half; FLINK-30462."""
    node = nodes("a")
    contenders = {name: node.contend(name) for name in ("dispatcher", "rest", "resources")}
    node.service.start()

    eventually(lambda: all(published(name) for name in contenders), what="all are published")

    sessions = {contender.sessions[0] for contender in contenders.values()}
    assert len(sessions) == 1, "all see the same session id"
    session = sessions.pop()
    for name, contender in contenders.items():
        assert contender.told == ["grant"]
        assert contender.election is not None
        assert contender.election.has_leadership(session)
        assert published(name) == ("a", 1, session, f"a-{name}:1")
        assert operator.exists(ElectionPaths(node.root).component(name)).ephemeralOwner == (
            node.session.session_id
        )
        assert contender.threads == {"leader-service"}
    assert not node.service.has_leadership(uuid.uuid4())


def test_a_contender_registered_while_leading_is_granted_at_once_with_the_same_session_id(
    nodes: Callable[..., Node], eventually: Eventually, published: Published
) -> None:
    """testMultipleLeaderElectionRegistrations / lazy registration."""
    node = nodes("a")
    first = node.contend("first")
    node.service.start()
    eventually(lambda: first.told == ["grant"])

    second = node.contend("second")

    eventually(lambda: published("second") is not None)
    assert second.sessions == first.sessions


def test_who_steps_down_is_revoked_and_granted_a_new_session_id_with_the_next_term(
    nodes: Callable[..., Node], eventually: Eventually, published: Published
) -> None:
    """testOnGrantAndRevokeLeadership, the whole."""
    node = nodes("a")
    contender = node.contend("c")
    node.service.start()
    eventually(lambda: published("c") is not None)
    old = contender.sessions[0]
    withdrawn_at_revoke: list[bool] = []
    contender.on_revoke = lambda: withdrawn_at_revoke.append(node.service.has_leadership(old))
    assert node.service.has_leadership(old)

    node.service.elector.abdicate("test")

    eventually(lambda: contender.told == ["grant", "revoke", "grant"], what="revoked, then granted anew")
    assert withdrawn_at_revoke == [False], "has_leadership is false before the contender hears of it"
    assert contender.sessions[1] != old
    assert not node.service.has_leadership(old)
    assert node.service.has_leadership(contender.sessions[1])
    eventually(lambda: (published("c") or ("", 0))[1] > 1, what="published in the new epoch")


def test_the_next_leader_publishes_its_own_and_takes_over_nothing(
    nodes: Callable[..., Node], eventually: Eventually, published: Published
) -> None:
    first, second = nodes("a"), nodes("b")
    a, b = first.contend("c"), second.contend("c")
    first.service.start()
    eventually(lambda: published("c") is not None)
    second.service.start()
    eventually(lambda: len(first.service.elector.get_all_participants()) == 2)

    first.service.stop(LONG)

    assert a.told == ["grant", "revoke"]
    eventually(lambda: (published("c") or ("",))[0] == "b", what="the second is published")
    assert b.told == ["grant"]
    assert not first.service.has_leadership(a.sessions[0])


def test_what_was_published_is_gone_when_leadership_ends_though_the_session_lives(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    node = nodes("a", requeue_backoff_min=timedelta(hours=1), requeue_backoff_max=timedelta(hours=1))
    contender = node.contend("c")
    node.service.start()
    eventually(lambda: published("c") is not None)

    node.service.elector.abdicate("test")

    eventually(lambda: contender.told == ["grant", "revoke"])
    eventually(lambda: operator.exists(ElectionPaths(node.root).component("c")) is None)
    assert node.session.is_connected


def test_a_stale_confirmation_changes_nothing(
    nodes: Callable[..., Node], eventually: Eventually, published: Published
) -> None:
    """testOldConfirmLeaderInformationWhileHavingNewLeadership, ...WhenLostLeadership; FLINK-11524, 11855."""
    node = nodes("a")
    contender, marker = node.contend("c"), node.contend("marker")
    marker.address = None
    node.service.start()
    eventually(lambda: contender.told == ["grant"])
    old = contender.sessions[0]
    node.service.elector.abdicate("test")
    eventually(lambda: len(contender.sessions) == 2 and len(marker.sessions) == 2)
    eventually(lambda: (published("c") or ("", 0))[1] > 1)
    before = published("c")
    assert contender.election is not None
    assert marker.election is not None

    contender.election.confirm_leadership(old, "zombie:1")
    contender.election.confirm_leadership(uuid.uuid4(), "stranger:1")
    marker.election.confirm_leadership(marker.sessions[-1], "marker:1")  # executed after all earlier ones

    eventually(lambda: published("marker") is not None)
    assert published("c") == before


@pytest.mark.parametrize("vandalism", ["overwritten", "deleted", "replaced"])
def test_the_leader_corrects_what_somebody_changed(
    nodes: Callable[..., Node],
    eventually: Eventually,
    published: Published,
    operator: KazooClient,
    vandalism: str,
) -> None:
    """testLeaderInformationChangedWithHavingLeadership..., testLeaderInformationChangedIfNotBeingLeader."""
    node = nodes("a")
    contender = node.contend("c")
    node.service.start()
    eventually(lambda: published("c") is not None)
    right = published("c")
    path = ElectionPaths(node.root).component("c")
    before = operator.exists(path)

    if vandalism == "overwritten":
        operator.set(path, b"mine now")
    elif vandalism == "deleted":
        operator.delete(path)
    else:
        transaction = operator.transaction()
        transaction.delete(path)
        transaction.create(path, b"mine now")
        transaction.commit()

    def corrected() -> bool:
        stat = operator.exists(path)
        return stat is not None and stat.mzxid > before.mzxid and published("c") == right

    eventually(corrected)
    assert operator.exists(path).ephemeralOwner == node.session.session_id
    assert contender.told == ["grant"]
    assert contender.errors == []


def test_a_correction_follows_each_change_however_many(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    node = nodes("a")
    node.contend("c")
    node.service.start()
    eventually(lambda: published("c") is not None)
    right = published("c")

    for _ in range(5):
        operator.set(ElectionPaths(node.root).component("c"), b"mine now")
        eventually(lambda: published("c") == right)


def test_who_does_not_lead_leaves_alone_what_is_published(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    """testLeaderInformationChangedWithNoLeadership... : a non-leader corrects nothing."""
    node = nodes("a", requeue_backoff_min=timedelta(hours=1), requeue_backoff_max=timedelta(hours=1))
    contender, other = node.contend("c"), node.contend("other")
    node.service.start()
    eventually(lambda: published("c") is not None and published("other") is not None)
    node.service.elector.abdicate("test")
    eventually(lambda: contender.told == ["grant", "revoke"] == other.told)
    path = ElectionPaths(node.root).component("c")
    eventually(lambda: operator.exists(path) is None)

    operator.create(path, b"somebody else's")
    operator.set(path, b"somebody else's still")
    # It would act in a callback after the watch, and this one runs even later.
    node.session.reconnect()
    eventually(lambda: node.session.is_connected)
    assert contender.election is not None
    contender.election.stop(LONG)

    assert operator.get(path)[0] == b"somebody else's still"


def test_leader_information_of_an_older_leader_is_replaced_though_its_session_lives(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    path = ElectionPaths(nodes("unused").root).component("c")
    operator.create(path, b"left by somebody whose session lives", ephemeral=True, makepath=True)
    node = nodes("a")
    node.contend("c")

    node.service.start()

    eventually(lambda: published("c") is not None)
    assert operator.exists(path).ephemeralOwner == node.session.session_id


def test_has_leadership_does_not_wait_for_a_contender_that_blocks(
    nodes: Callable[..., Node], eventually: Eventually
) -> None:
    node = nodes("a", handover_timeout=timedelta(milliseconds=200))
    contender = node.contend("c")
    release = threading.Event()
    contender.on_grant = lambda _session: (release.wait(60), None)[1]
    try:
        node.service.start()
        eventually(lambda: contender.told == ["grant"])
        session = contender.sessions[0]
        assert node.service.has_leadership(session)

        node.service.elector.remove_from_leader_lock_queue()

        eventually(lambda: not node.service.has_leadership(session))
        eventually(lambda: node.service.elector.get_all_participants() == [], what="the lock is let go")
        assert contender.told == ["grant"]
    finally:
        release.set()
    eventually(lambda: contender.told == ["grant", "revoke"])


def test_a_contender_that_cannot_take_the_lead_makes_the_whole_election_abdicate(
    nodes: Callable[..., Node], eventually: Eventually
) -> None:
    node = nodes("a")
    broken, other = node.contend("broken"), node.contend("other")

    def fail_once(_session: UUID) -> None:
        if len(broken.sessions) == 1:
            raise OSError("port in use")

    broken.on_grant = fail_once
    node.service.start()

    eventually(lambda: broken.told == ["grant", "revoke", "grant"])
    eventually(lambda: other.told[-1:] == ["grant"] and other.sessions[-1] == broken.sessions[-1])
    assert other.told in (["grant"], ["grant", "revoke", "grant"])


def test_a_broken_connection_revokes_and_the_next_term_is_published_on_the_same_session(
    nodes: Callable[..., Node], eventually: Eventually, published: Published
) -> None:
    node = nodes("a")
    contender = node.contend("c")
    node.service.start()
    eventually(lambda: published("c") is not None)
    session_id = node.session.session_id

    node.session.reconnect()

    eventually(lambda: contender.told == ["grant", "revoke", "grant"])
    assert node.session.session_id == session_id
    eventually(lambda: (published("c") or ("", 0, None))[2] == contender.sessions[1])


def test_an_error_of_zookeeper_is_told_to_the_contender_once_and_publication_goes_on_trying(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, operator: KazooClient
) -> None:
    """testErrorForwarding."""
    node = nodes("a")
    parent = ElectionPaths(node.root).components
    read_only = [make_acl("world", "anyone", read=True, admin=True)]
    operator.ensure_path(node.root)
    operator.create(parent, b"", acl=read_only)
    contender = node.contend("c")
    node.service.start()

    eventually(lambda: len(contender.errors) == 1, what="the contender is told")
    assert "access list" in str(contender.errors[0])
    eventually(lambda: node.service.election("c")._component._failures >= 3, what="it is tried again")
    assert contender.told == ["grant"]
    assert published("c") is None
    assert len(contender.errors) == 1, "told once for the whole row"

    operator.set_acls(parent, [make_acl("world", "anyone", all=True)])
    eventually(lambda: published("c") is not None, what="it is published once it is allowed")
    assert len(contender.errors) == 1


def test_a_participant_whose_session_is_taken_is_deposed_and_publishes_with_its_next_one(
    nodes: Callable[..., Node], eventually: Eventually, published: Published, zookeeper: ZooKeeperServer
) -> None:
    first, second = nodes("a"), nodes("b")
    a, b = first.contend("c"), second.contend("c")
    first.service.start()
    eventually(lambda: published("c") is not None)
    second.service.start()
    eventually(lambda: len(first.service.elector.get_all_participants()) == 2)

    thief = KazooClient(hosts=zookeeper.hosts, client_id=first.session.client.client_id)
    thief.start(timeout=60)
    thief.stop()
    thief.close()

    eventually(lambda: (published("c") or ("",))[0] == "b")
    eventually(lambda: a.told == ["grant", "revoke"])
    assert b.told == ["grant"]
    second.service.stop(LONG)
    eventually(lambda: (published("c") or ("",))[0] == "a", what="the first leads again")


@pytest.mark.parametrize("name", ["", "a/b", ".", "a\nb"])
def test_a_component_that_cannot_name_a_node_is_refused(nodes: Callable[..., Node], name: str) -> None:
    with pytest.raises(ElectionConfigError, match="component"):
        nodes("a").service.election(name)


def test_a_second_contender_of_one_component_and_an_empty_address_are_refused(
    nodes: Callable[..., Node],
) -> None:
    node = nodes("a")
    contender = node.contend("c")
    assert node.service.election("c") is contender.election

    with pytest.raises(ElectionStateError, match="a-c"):
        node.service.election("c").start(Contender())
    with pytest.raises(ElectionConfigError, match="empty"):
        node.service.election("c").confirm_leadership(uuid.uuid4(), "")


def test_the_service_works_without_zookeeper_and_then_publishes_nothing(eventually: Eventually) -> None:
    def elect(electable: Electable) -> Elector:
        setup = ElectorSetup(
            config=ElectionConfig(root="/alone", requeue_backoff_max=timedelta(seconds=1)),
            participant=Participant("a"),
            guard=lambda: Verdict(True),
            electable=electable,
        )
        return make_elector("single", setup)

    service = LeaderElectionService(elect=elect, root="/alone")
    contender = Contender()
    contender.election = service.election("c")
    contender.election.start(contender)
    service.start()
    try:
        eventually(lambda: contender.told == ["grant"])
        assert contender.election.has_leadership(contender.sessions[0])
        service.elector.abdicate("test")
        eventually(lambda: contender.told == ["grant", "revoke", "grant"])
        assert contender.sessions[0] != contender.sessions[1]
    finally:
        service.stop(LONG)
    assert contender.told == ["grant", "revoke", "grant", "revoke"]
