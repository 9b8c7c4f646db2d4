"""The code that keeps an ephemeral node as it must be, on a real ZooKeeper and on the one in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from kazoo.security import make_acl

from leader import FencingToken, LeaderError, RecordError, ZooKeeperConfig, ZooKeeperSession
from leader.protocol import requests as rq
from leader.protocol.ephemeral import EphemeralNode
from leader.zookeeper.executor import SessionExecutor
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.leader.zookeeper_bench import Bench, Client

LONG = timedelta(seconds=60)


class Stage:
    """An epoch, two clients with a latch each, and the path of a node whose parent does not exist yet."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.path = bench, f"{bench.root}/kept/node"
        self.first, self.second = bench.client(), bench.client()
        self.first.run(rq.ensure_path(bench.root))
        self.epoch = self.first.run(rq.create(f"{bench.root}/epoch", b""))
        for client in (self.first, self.second):
            client.run(rq.create(self._latch(client), b"", ephemeral=True))
        self.asked: list[rq.Request] = []

    def _latch(self, client: Client) -> str:
        return f"{self.bench.root}/latch-{client.session_id}"

    def lead(self, client: Client) -> FencingToken:
        """Begin a term."""
        stat = client.run(rq.set_data(self.epoch, b""))
        return FencingToken(self.epoch, stat.version, stat.version, self._latch(client))

    def keep(
        self,
        node: EphemeralNode,
        data: bytes,
        *,
        by: Client | None = None,
        token: FencingToken | None = None,
        watch: bool = True,
        before: Callable[[rq.Request], None] = lambda _request: None,
        after: Callable[[rq.Request], None] = lambda _request: None,
    ) -> rq.RequestRefusedError | None:
        """Keep `node`; `before` and `after` are called around each request. `asked` holds the requests."""
        client = by or self.first
        fences = () if token is None else token.checks()
        self.asked = []

        def steps() -> rq.Steps[rq.RequestRefusedError | None]:
            keeping = node.keep(data, client.session_id, fences, watch=watch)
            answer, error = None, None
            while True:
                try:
                    request = keeping.send(answer) if error is None else keeping.throw(error)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                self.asked.append(request)
                before(request)
                answer, error = None, None
                try:
                    answer = yield request
                except LeaderError as exc:
                    error = exc
                after(request)

        return client.run(steps())

    def read(self) -> tuple[bytes, int] | None:
        """Content and owner of a node."""
        try:
            data, stat = self.second.run(rq.get(self.path))
        except rq.NodeMissingError:
            return None
        return data, stat.owner

    def ours(self, data: bytes) -> tuple[bytes, int]:
        return data, self.first.session_id

    @property
    def writes(self) -> int:
        return sum(isinstance(request, rq.Transaction) for request in self.asked)


@pytest.fixture
def stage(zookeeper_bench: Bench) -> Stage:
    return Stage(zookeeper_bench)


@pytest.fixture
def node(stage: Stage) -> EphemeralNode:
    return EphemeralNode(stage.path)


def test_it_is_written_as_an_ephemeral_node_and_its_parent_made_where_missing(
    stage: Stage, node: EphemeralNode
) -> None:
    for data in (b"one", b"two"):
        assert stage.keep(node, data) is None
        assert stage.read() == stage.ours(data)


@pytest.mark.parametrize(("watch", "first", "changed"), [(True, 2, 3), (False, 1, 2)])
def test_it_costs_one_write_and_a_read_to_see_what_is_there_or_to_watch(
    stage: Stage, node: EphemeralNode, watch: bool, first: int, changed: int
) -> None:
    stage.first.run(rq.ensure_path(f"{stage.bench.root}/kept"))

    counts = []
    for data in (b"one", b"two", b"two"):
        stage.keep(node, data, watch=watch)
        counts.append((len(stage.asked), stage.writes))

    assert counts == [(first, 1), (changed, 1), (1, 0)]


def test_what_is_as_it_should_be_is_watched(
    stage: Stage, node: EphemeralNode, eventually: Callable[..., None]
) -> None:
    stage.keep(node, b"one")
    stage.keep(node, b"one")
    assert stage.first.fired == [], "its own writes fire none of its watches"

    stage.second.run(rq.delete(stage.path))

    eventually(lambda: stage.first.fired == [(stage.path, True)], what="the watch fires")


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("intruder", ["deletes", "overwrites", "makes it persistent", "makes it its own"])
def test_what_somebody_did_to_it_is_put_right(
    stage: Stage, node: EphemeralNode, intruder: str, watch: bool
) -> None:
    stage.keep(node, b"one", watch=watch)
    if intruder == "overwrites":
        stage.second.run(rq.set_data(stage.path, b"scribble"))
    else:
        stage.second.run(rq.delete(stage.path))
    if intruder.startswith("makes"):
        stage.second.run(rq.create(stage.path, b"one", ephemeral=intruder == "makes it its own"))

    assert stage.keep(node, b"one", watch=watch) is None

    assert stage.read() == stage.ours(b"one")


def test_what_is_in_the_way_the_first_time_is_replaced(stage: Stage, node: EphemeralNode) -> None:
    stage.second.run(rq.ensure_path(stage.path))

    assert stage.keep(node, b"one") is None

    assert stage.read() == stage.ours(b"one")


def test_a_node_with_children_in_the_way_is_an_error_and_stays(stage: Stage, node: EphemeralNode) -> None:
    stage.second.run(rq.ensure_path(f"{stage.path}/child"))

    with pytest.raises(rq.NotEmptyError, match="the node has children"):
        stage.keep(node, b"one")
    assert stage.read() == (b"", 0)
    assert not node.may_be_ours


def test_what_an_older_session_left_is_replaced_and_outlives_it(stage: Stage, node: EphemeralNode) -> None:
    stage.keep(node, b"same")

    assert stage.keep(node, b"same", by=stage.second) is None

    stage.first.end()
    assert stage.read() == (b"same", stage.second.session_id)


def test_a_node_that_must_not_be_replaced_stays(stage: Stage) -> None:
    def objects(data: bytes) -> None:
        if data == b"another's":
            raise RecordError("it is another's")

    node = EphemeralNode(stage.path, objects)
    stage.second.run(rq.ensure_path(f"{stage.bench.root}/kept"))
    stage.second.run(rq.create(stage.path, b"another's", ephemeral=True))
    for _ in range(2):
        with pytest.raises(RecordError, match="it is another's"):
            stage.keep(node, b"one")
        assert not node.may_be_ours
    assert stage.read() == (b"another's", stage.second.session_id)

    stage.second.run(rq.set_data(stage.path, b"nobody's"))
    assert stage.keep(node, b"one") is None
    stage.second.run(rq.set_data(stage.path, b"another's"))
    assert stage.keep(node, b"one") is None, "the node is its own with any content"
    assert stage.read() == stage.ours(b"one")


def test_what_is_deleted_as_soon_as_it_was_written_is_written_again(
    stage: Stage, node: EphemeralNode
) -> None:
    left = [1]

    def delete(request: rq.Request) -> None:
        if isinstance(request, rq.Transaction) and stage.read() is not None and left:
            left.pop()
            stage.second.run(rq.delete(stage.path))

    assert stage.keep(node, b"one", after=delete) is None

    assert not left
    assert stage.read() == stage.ours(b"one")


def test_a_node_that_is_changed_as_fast_as_it_is_written_is_an_error_in_bounded_time(
    stage: Stage, node: EphemeralNode
) -> None:
    def meddle(request: rq.Request) -> None:
        if isinstance(request, rq.Transaction):
            there = stage.read() is not None
            stage.second.run(rq.delete(stage.path) if there else rq.create(stage.path, b"mine"))

    stage.second.run(rq.ensure_path(f"{stage.bench.root}/kept"))
    with pytest.raises(RecordError, match=f"another client keeps changing {stage.path}"):
        stage.keep(node, b"one", before=meddle)
    assert len(stage.asked) < 10


# --- fences -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["epoch", "latch"])
def test_nothing_is_written_in_a_term_that_is_over(stage: Stage, node: EphemeralNode, end: str) -> None:
    token = stage.lead(stage.first)
    if end == "epoch":
        stage.lead(stage.second)
    else:
        stage.second.run(rq.delete(token.latch or ""))

    assert stage.keep(node, b"zombie", token=token) is not None
    assert stage.read() is None
    assert not node.may_be_ours


def test_a_zombie_does_not_overwrite_the_next_leader(stage: Stage, node: EphemeralNode) -> None:
    zombie = stage.lead(stage.first)
    stage.keep(node, b"old", token=zombie)
    stage.keep(EphemeralNode(stage.path), b"new", by=stage.second, token=stage.lead(stage.second))

    assert stage.keep(node, b"old", token=zombie) is not None
    assert stage.read() == (b"new", stage.second.session_id)


# --- withdrawing --------------------------------------------------------------------------------


def test_what_was_written_is_withdrawn_in_the_term_and_after_it(stage: Stage, node: EphemeralNode) -> None:
    for over in (False, True):
        stage.keep(node, b"one", token=stage.lead(stage.first))
        if over:
            stage.lead(stage.second)
        assert node.may_be_ours

        stage.first.run(node.withdraw(stage.first.session_id))

        assert stage.read() is None
        assert not node.may_be_ours


def test_withdrawing_leaves_alone_what_another_has_written(stage: Stage, node: EphemeralNode) -> None:
    stage.keep(node, b"old")
    stage.keep(EphemeralNode(stage.path), b"new", by=stage.second)

    stage.first.run(node.withdraw(stage.first.session_id))

    assert stage.read() == (b"new", stage.second.session_id)
    assert not node.may_be_ours


def test_withdrawing_what_is_gone_already_is_no_error(stage: Stage, node: EphemeralNode) -> None:
    stage.keep(node, b"one")
    stage.second.run(rq.delete(stage.path))

    stage.first.run(node.withdraw(stage.first.session_id))

    assert not node.may_be_ours


def test_withdrawing_with_another_session_or_before_anything_was_written_asks_nothing(
    stage: Stage, node: EphemeralNode
) -> None:
    assert list(node.withdraw(stage.first.session_id)) == []
    stage.keep(node, b"one")

    assert list(node.withdraw(stage.second.session_id)) == []
    assert not node.may_be_ours


def test_a_node_whose_reply_was_lost_is_withdrawn_or_found_again(stage: Stage, node: EphemeralNode) -> None:
    def lose(request: rq.Request) -> None:
        if isinstance(request, rq.Transaction) and stage.read() is not None:
            raise TimeoutError

    for again in (True, False):
        with pytest.raises(TimeoutError):
            stage.keep(node, b"one", after=lose)
        assert node.may_be_ours
        if again:
            stage.keep(node, b"one")
            assert stage.writes == 0
        stage.first.run(node.withdraw(stage.first.session_id))
        assert stage.read() is None


# --- access lists, which the ZooKeeper in memory does not have ----------------------------------


@pytest.mark.parametrize("there", [False, True], ids=["create", "replace"])
def test_an_access_list_that_forbids_it_is_an_error(
    zookeeper: ZooKeeperServer, zk_root: str, there: bool
) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    session.start(LONG)
    try:
        kept = f"{zk_root}/kept"
        session.call(session.client.ensure_path_async, f"{kept}/node" if there else kept)
        closed = [make_acl("world", "anyone", read=True, admin=True)]
        session.call(session.client.set_acls_async, kept, closed)
        node, executor = EphemeralNode(f"{kept}/node"), SessionExecutor(session, lambda _path, _gone: None)

        with pytest.raises(rq.NotPermittedError, match="the node's access list forbids this request"):
            executor.run(node.keep(b"one", session.session_id or 0, watch=True))

        assert not node.may_be_ours
        open_again = [make_acl("world", "anyone", all=True)]
        session.call(session.client.set_acls_async, kept, open_again)
        assert executor.run(node.keep(b"one", session.session_id or 0, watch=True)) is None
    finally:
        session.close(LONG)
