"""A transaction that was spelled out before it is wanted, against a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from kazoo.client import KazooClient

from leader.protocol import requests as rq
from leader.zookeeper.config import ZooKeeperConfig
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession
from nimbus.localstack.zookeeper import ZooKeeperServer

WITHIN = timedelta(seconds=10)


@pytest.fixture
def session(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    made = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts, session_timeout=WITHIN))
    made.start(WITHIN)
    yield made
    made.close(WITHIN)


@pytest.fixture
def executor(session: ZooKeeperSession, zk_root: str) -> SessionExecutor:
    made = SessionExecutor(session)
    made.run(rq.ensure_path(zk_root))
    return made


def _some(root: str) -> tuple[rq.Operation, ...]:
    own, kept = f"{root}/own", f"{root}/kept"
    return (
        rq.Create(own, b"mine", ephemeral=True),
        rq.Create(kept, b"\x00\xff"),
        rq.SetData(kept, "ü".encode(), 0),
        rq.Check(kept, 1),
        rq.Delete(own),
    )


def test_what_was_foreseen_does_the_same_as_what_was_not(
    executor: SessionExecutor, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = executor.run(rq.transaction(*_some(zk_root)))
    executor.run(rq.delete_if_there(f"{zk_root}/kept"))
    executor.foresee(_some(zk_root))

    with monkeypatch.context() as patch:
        patch.setattr(KazooClient, "transaction", lambda _self: pytest.fail("spelled a second time"))
        found = executor.run(rq.transaction(*_some(zk_root)))

    shape = [type(answer) for answer in expected]
    assert [type(answer) for answer in found] == shape == [str, str, rq.Stat, bool, bool]
    assert executor.run(rq.get(f"{zk_root}/kept"))[0] == "ü".encode()


def test_what_was_foreseen_is_refused_as_what_was_not_and_is_good_for_once(
    executor: SessionExecutor, zk_root: str
) -> None:
    executor.foresee(_some(zk_root))
    executor.run(rq.transaction(*_some(zk_root)))

    for _ in range(2):  # the second time it is spelled anew; the third it was foreseen again
        with pytest.raises(rq.TransactionFailedError) as refused:
            executor.run(rq.transaction(*_some(zk_root)))
        assert refused.value.index == 1
        executor.foresee(_some(zk_root))


def test_another_transaction_than_the_foreseen_is_sent_as_it_is(
    executor: SessionExecutor, zk_root: str
) -> None:
    executor.foresee(_some(zk_root))

    executor.run(rq.transaction(rq.Create(f"{zk_root}/other", b"")))

    assert executor.run(rq.get_children(zk_root)) == ["other"]
    executor.foresee(())
    executor.run(rq.transaction(*_some(zk_root)))
    assert sorted(executor.run(rq.get_children(zk_root))) == ["kept", "other"]
