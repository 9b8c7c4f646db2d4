"""Access lists of an election's nodes: checked, repaired, and refused with the path."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl, make_digest_acl_credential

from leader import (
    ElectionConfig,
    ElectionConfigError,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnavailableError,
)
from leader.errors import AclError
from leader.protocol.requests import NotPermittedError
from leader.zookeeper.acl import AclDifference, AclEnforcement
from leader.zookeeper.config import OPEN, Access, Permission, wanted_access
from nimbus.localstack.zookeeper import ZooKeeperServer

LONG = timedelta(seconds=20)
OURS = ("digest", "nimbus:secret")
CLOSED = (Access("digest", make_digest_acl_credential("nimbus", "secret"), Permission.ALL),)
READABLE = (*CLOSED, Access("world", "anyone", Permission.READ))
Eventually = Callable[..., None]
Connect = Callable[..., ZooKeeperSession]


class Electable:
    def elected(self, leadership: Leadership) -> None: ...

    def revoked(self, leadership: Leadership, reason: str) -> None: ...


@pytest.fixture
def connect(zookeeper: ZooKeeperServer) -> Iterator[Connect]:
    made: list[ZooKeeperSession] = []

    def start(**settings: Any) -> ZooKeeperSession:
        made.append(ZooKeeperSession(ZooKeeperConfig(**{"hosts": zookeeper.hosts, "auth": OURS, **settings})))
        made[-1].start(LONG)
        return made[-1]

    yield start
    for session in made:
        session.close(LONG)


@pytest.fixture
def anybody(connect: Connect) -> ZooKeeperSession:
    return connect(auth=None)


def _create(session: ZooKeeperSession, path: str, **settings: Any) -> None:
    session.call(session.client.create_async, path, b"", **settings)


def _paths(differences: list[AclDifference]) -> list[str]:
    return [one.path for one in differences]


def test_nodes_made_by_an_election_with_a_credential_are_all_closed_to_others(
    connect: Connect, anybody: ZooKeeperSession, zk_root: str, eventually: Eventually
) -> None:
    session = connect()
    with _running_queue(session, zk_root) as queue:
        eventually(queue.is_leader)

        assert AclEnforcement(session, zk_root).check() == []
        with pytest.raises(NoAuthError):
            anybody.call(anybody.client.get_async, f"{zk_root}/epoch")


def test_nodes_may_be_readable_by_all_and_changed_by_none(
    connect: Connect, anybody: ZooKeeperSession, zk_root: str, eventually: Eventually
) -> None:
    session = connect(readable_by_all=True)
    with _running_queue(session, zk_root) as queue:
        eventually(queue.is_leader)

        assert AclEnforcement(session, zk_root).wanted == READABLE
        assert AclEnforcement(session, zk_root).check() == []
        assert anybody.call(anybody.client.get_async, f"{zk_root}/epoch")
        with pytest.raises(NoAuthError):
            anybody.call(anybody.client.set_async, f"{zk_root}/epoch", b"")


@contextmanager
def _running_queue(
    session: ZooKeeperSession, root: str, close_within: timedelta = LONG
) -> Iterator[LeaderLockQueue]:
    queue = LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=root),
        participant=Participant("a", "127.0.0.1", 1, "boot"),
        guard=lambda: Verdict(True),
        electable=Electable(),
    )
    try:
        queue.add_to_leader_lock_queue()
        yield queue
    finally:
        queue.close(close_within)


def test_open_nodes_of_a_living_election_are_found_and_mended_under_its_feet(
    connect: Connect, anybody: ZooKeeperSession, zk_root: str, eventually: Eventually
) -> None:
    # Without a credential: everything is open. In the end it may not even remove its own nodes.
    with _running_queue(anybody, zk_root, close_within=timedelta(seconds=2)) as queue:
        eventually(queue.is_leader)
        enforcement = AclEnforcement(connect(), zk_root)

        found = enforcement.check()
        assert {one.found for one in found} == {OPEN}
        assert {one.wanted for one in found} == {CLOSED}
        everything = {zk_root, f"{zk_root}/leader-lock", f"{zk_root}/epoch", f"{zk_root}/leader"}
        assert everything < set(_paths(found))
        assert any(path.startswith(f"{zk_root}/leader-lock/_c_") for path in _paths(found)), (
            "ephemeral ones too"
        )

        assert _paths(enforcement.fix()) == _paths(found)
        assert enforcement.check() == []
        assert enforcement.fix() == []
        with pytest.raises(NoAuthError):
            anybody.call(anybody.client.set_async, f"{zk_root}/epoch", b"")


def test_one_entry_too_many_is_a_difference_and_the_order_is_none(connect: Connect, zk_root: str) -> None:
    session = connect()
    ours = make_digest_acl("nimbus", "secret", all=True)
    _create(session, zk_root, acl=[*READ_ACL_UNSAFE, ours])

    (too_many,) = AclEnforcement(session, zk_root).check()

    assert set(too_many.found) == set(READABLE)
    assert str(too_many).startswith(f"{zk_root}: has world:anyone:READ, digest:nimbus:")
    assert make_digest_acl_credential("nimbus", "secret") not in str(too_many)
    assert AclEnforcement(session, zk_root, wanted=READABLE).check() == []


def test_node_that_is_somebody_elses_is_an_error_with_its_path(
    connect: Connect, anybody: ZooKeeperSession, zk_root: str
) -> None:
    session = connect()
    _create(session, zk_root)
    _create(session, f"{zk_root}/a", acl=[make_digest_acl("somebody", "else", all=True)])

    for attempt in (AclEnforcement(session, zk_root).check, AclEnforcement(session, zk_root).fix):
        with pytest.raises(NotPermittedError, match=f"{zk_root}/a: .*access list") as refused:
            attempt()
        assert refused.value.path == f"{zk_root}/a"


def test_node_we_may_read_but_not_administer_can_be_checked_and_not_mended(
    connect: Connect, zk_root: str
) -> None:
    session = connect()
    _create(session, zk_root, acl=[make_digest_acl("somebody", "else", all=True), *READ_ACL_UNSAFE])
    enforcement = AclEnforcement(session, zk_root)

    assert _paths(enforcement.check()) == [zk_root]
    with pytest.raises(NotPermittedError) as refused:
        enforcement.fix()
    assert refused.value.path == zk_root


def test_root_that_is_not_there_has_no_differences(connect: Connect, zk_root: str) -> None:
    assert AclEnforcement(connect(), zk_root).check() == []
    assert AclEnforcement(connect(), zk_root).fix() == []


def test_nodes_that_vanish_while_they_are_looked_at_are_passed_over(
    connect: Connect, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    _create(session, zk_root)
    for name in "abc":
        _create(session, f"{zk_root}/{name}")
    look = session.client.get_acls_async

    def deletes_before_looking(path: str) -> Any:
        if path == f"{zk_root}/b":
            session.call(session.client.delete_async, path)
        return look(path)

    monkeypatch.setattr(session.client, "get_acls_async", deletes_before_looking)
    enforcement = AclEnforcement(session, zk_root, wanted=READABLE)

    assert _paths(enforcement.fix()) == [zk_root, f"{zk_root}/a", f"{zk_root}/c"]


def test_list_that_somebody_else_keeps_changing_is_an_error_in_the_end(
    connect: Connect, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, tries = connect(), []
    _create(session, zk_root)
    mend = session.client.set_acls_async

    def changes_it_before(path: str, *args: Any) -> Any:
        tries.append(path)
        session.call(mend, path, [make_digest_acl("nimbus", "secret", all=True)])
        return mend(path, *args)

    monkeypatch.setattr(session.client, "set_acls_async", changes_it_before)

    with pytest.raises(AclError, match=f"{zk_root}: another client keeps changing"):
        AclEnforcement(session, zk_root, wanted=READABLE).fix()
    assert len(tries) == 5


def test_subtree_that_is_too_large_is_refused(connect: Connect, zk_root: str) -> None:
    session = connect()
    for name in ("", "/a", "/b", "/c"):
        _create(session, zk_root + name)

    assert AclEnforcement(session, zk_root, most_nodes=4).check() == []
    with pytest.raises(AclError, match="more than 3 nodes"):
        AclEnforcement(session, zk_root, most_nodes=3).check()


def test_many_nodes_are_looked_at_and_mended_in_pages(
    connect: Connect, anybody: ZooKeeperSession, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(anybody, zk_root)
    batch = anybody.client.transaction()
    for number in range(1_000):
        batch.create(f"{zk_root}/{number}")
    anybody.call(batch.commit_async)
    session, waits = connect(), []
    call = session.call

    def counted(*args: Any, **kw: Any) -> Any:
        waits.append(args)
        return call(*args, **kw)

    monkeypatch.setattr(session, "call", counted)
    enforcement = AclEnforcement(session, zk_root)

    assert len(enforcement.fix()) == 1_001
    assert len(waits) <= 30
    assert enforcement.check() == []


def test_walk_ends_after_its_page_when_it_is_told_to_stop(connect: Connect, zk_root: str) -> None:
    session, stopping = connect(), threading.Event()
    _create(session, zk_root)
    stopping.set()

    assert AclEnforcement(session, zk_root, wanted=READABLE, stopping=stopping).fix() == []
    assert _paths(AclEnforcement(session, zk_root, wanted=READABLE).check()) == [zk_root]


def test_walk_that_takes_too_long_is_given_up(connect: Connect, zk_root: str) -> None:
    with pytest.raises(ZooKeeperUnavailableError, match="not all checked"):
        AclEnforcement(connect(), zk_root, timeout=timedelta(0)).check()


def test_list_of_a_scheme_that_the_server_does_not_know_is_an_error(connect: Connect, zk_root: str) -> None:
    session = connect()
    _create(session, zk_root)

    with pytest.raises(AclError, match="refuses the access list nosuch:a:READ"):
        AclEnforcement(session, zk_root, wanted=[Access("nosuch", "a", Permission.READ)]).fix()


def test_without_a_credential_everything_should_be_open() -> None:
    assert wanted_access(ZooKeeperConfig(hosts="one:1")) == OPEN


def test_access_of_a_sasl_user_is_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leader.zookeeper.config.find_spec", lambda _name: object())

    wanted = wanted_access(ZooKeeperConfig(hosts="one:1", auth=("sasl", "nimbus:secret")))

    assert wanted == (Access("sasl", "nimbus", Permission.ALL),)


def test_access_of_a_scheme_nobody_knows_must_be_given() -> None:
    with pytest.raises(ElectionConfigError, match="give the wanted list"):
        wanted_access(ZooKeeperConfig(hosts="one:1", auth=("kerberos", "a:b")))


def test_reading_for_all_needs_somebody_who_may_do_more() -> None:
    with pytest.raises(ElectionConfigError, match="readable_by_all needs auth"):
        ZooKeeperConfig(hosts="one:1", readable_by_all=True)
