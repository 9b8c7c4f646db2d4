"""The node of one component, against a ZooKeeper in memory: what is written, and what is left alone."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from leader import ElectionPaths, FencingToken, LeaderError, RecordError
from leader.memory.zookeeper import MemoryConnection, MemoryZooKeeper
from leader.protocol import requests as rq
from leader.protocol.component import ComponentInfo, decode_component, encode_component
from leader.publication import ComponentNode, watched

PATHS = ElectionPaths("/e")
PATH = PATHS.component("rest")
HOUR = timedelta(hours=1)


class Stage:
    """An epoch, two sessions with a latch each; the first leads."""

    def __init__(self) -> None:
        self.fired: list[tuple[str, bool]] = []
        self.zookeeper = MemoryZooKeeper(lambda: HOUR)
        self.zookeeper.write(rq.EnsurePath(PATHS.queue))
        self.zookeeper.write(rq.Create(PATHS.epoch))
        self.first, self.second = self.connect(), self.connect()

    def connect(self) -> MemoryConnection:
        connection = self.zookeeper.connect(HOUR, lambda path, gone: self.fired.append((path, gone)))
        connection.run(rq.create(PATHS.latch(f"latch-{connection.session_id}"), b"", ephemeral=True))
        return connection

    def lead(self, connection: MemoryConnection) -> FencingToken:
        """Begin a term."""
        stat = connection.run(rq.set_data(PATHS.epoch, b""))
        latch = PATHS.latch(f"latch-{connection.session_id}")
        return FencingToken(PATHS.epoch, stat.version, stat.version, latch)

    def read(self) -> tuple[bytes, int] | None:
        """Content and owner."""
        node = self.zookeeper.tree.get(PATH)
        return None if node is None else (node.data, node.owner)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def _keep(node: ComponentNode, on: MemoryConnection, token: FencingToken, data: bytes) -> bool:
    return on.run(node.keep(token, data, on.session_id))


def test_it_is_written_as_an_ephemeral_node_and_its_parent_made_where_missing(stage: Stage) -> None:
    node, token = ComponentNode(PATHS, "rest"), stage.lead(stage.first)

    assert _keep(node, stage.first, token, b"one")
    assert stage.read() == (b"one", stage.first.session_id)
    assert _keep(node, stage.first, token, b"two")
    assert stage.read() == (b"two", stage.first.session_id)


def test_what_is_as_it_should_be_is_watched_and_not_written(stage: Stage) -> None:
    node, token = ComponentNode(PATHS, "rest"), stage.lead(stage.first)
    _keep(node, stage.first, token, b"one")
    before = stage.zookeeper.zxid
    stage.fired.clear()

    assert _keep(node, stage.first, token, b"one")

    assert stage.zookeeper.zxid == before
    stage.zookeeper.write(rq.Delete(PATH))
    assert stage.fired == [(PATH, True)]


def test_our_own_writing_fires_the_watch_so_that_another_look_sets_the_next(stage: Stage) -> None:
    node, token = ComponentNode(PATHS, "rest"), stage.lead(stage.first)
    stage.zookeeper.write(rq.EnsurePath(PATHS.components))

    _keep(node, stage.first, token, b"one")

    assert stage.fired == [(PATH, False)]


@pytest.mark.parametrize("end", ["epoch", "latch"])
def test_nothing_is_written_in_a_term_that_is_over(stage: Stage, end: str) -> None:
    node, token = ComponentNode(PATHS, "rest"), stage.lead(stage.first)
    if end == "epoch":
        stage.lead(stage.second)
    else:
        stage.zookeeper.write(rq.Delete(token.latch or ""))

    assert not _keep(node, stage.first, token, b"zombie")
    assert stage.read() is None


def test_a_zombie_does_not_overwrite_the_next_leader(stage: Stage) -> None:
    old, new = ComponentNode(PATHS, "rest"), ComponentNode(PATHS, "rest")
    zombie = stage.lead(stage.first)
    _keep(old, stage.first, zombie, b"old")
    token = stage.lead(stage.second)
    _keep(new, stage.second, token, b"new")

    assert not _keep(old, stage.first, zombie, b"old")
    assert stage.read() == (b"new", stage.second.session_id)


def test_a_node_of_another_session_is_replaced_not_written_on(stage: Stage) -> None:
    old, new = ComponentNode(PATHS, "rest"), ComponentNode(PATHS, "rest")
    _keep(old, stage.first, stage.lead(stage.first), b"same")

    assert _keep(new, stage.second, stage.lead(stage.second), b"same")

    assert stage.read() == (b"same", stage.second.session_id)
    stage.first.close()
    assert stage.read() == (b"same", stage.second.session_id), "it outlives the old session"


def test_what_was_written_is_withdrawn_in_the_term_and_after_it(stage: Stage) -> None:
    node = ComponentNode(PATHS, "rest")
    for over in (False, True):
        _keep(node, stage.first, stage.lead(stage.first), b"one")
        if over:
            stage.lead(stage.second)
        assert node.may_be_ours

        stage.first.run(node.withdraw(stage.first.session_id))

        assert stage.read() is None
        assert not node.may_be_ours


def test_withdrawing_leaves_alone_what_the_next_leader_wrote(stage: Stage) -> None:
    old, new = ComponentNode(PATHS, "rest"), ComponentNode(PATHS, "rest")
    _keep(old, stage.first, stage.lead(stage.first), b"old")
    _keep(new, stage.second, stage.lead(stage.second), b"new")

    stage.first.run(old.withdraw(stage.first.session_id))

    assert stage.read() == (b"new", stage.second.session_id)
    assert not old.may_be_ours


def test_withdrawing_with_another_session_asks_nothing(stage: Stage) -> None:
    node = ComponentNode(PATHS, "rest")
    _keep(node, stage.first, stage.lead(stage.first), b"one")

    assert list(node.withdraw(stage.second.session_id)) == []
    assert not node.may_be_ours


def test_what_was_never_written_is_not_withdrawn() -> None:
    assert list(ComponentNode(PATHS, "rest").withdraw(1)) == []


def test_a_node_that_is_changed_as_fast_as_it_is_written_is_an_error_in_bounded_time(stage: Stage) -> None:
    node, token = ComponentNode(PATHS, "rest"), stage.lead(stage.first)
    stage.zookeeper.write(rq.EnsurePath(PATHS.components))
    steps = node.keep(token, b"one", stage.first.session_id)
    asked = 0

    def play() -> None:
        nonlocal asked
        answer = None
        error: Exception | None = None
        while True:
            request = steps.send(answer) if error is None else steps.throw(error)
            asked += 1
            answer, error = None, None
            if isinstance(request, rq.Transaction):
                there = stage.read() is not None
                stage.zookeeper.write(rq.Delete(PATH) if there else rq.Create(PATH, b"mine"))
            try:
                answer = stage.first.answer(request)
            except LeaderError as exc:
                error = exc

    with pytest.raises(RecordError, match="somebody keeps changing /e/components/rest"):
        play()
    assert asked < 20


def test_a_node_that_comes_between_two_questions_is_read_after_all(stage: Stage) -> None:
    stage.zookeeper.write(rq.EnsurePath(PATHS.components))
    steps = watched(PATH)
    request = next(steps)
    assert isinstance(request, rq.Get)
    request = steps.throw(rq.NodeMissingError(PATH))
    assert isinstance(request, rq.Exists)
    stage.zookeeper.write(rq.Create(PATH, b"now"))
    request = steps.send(stage.first.answer(request))
    assert isinstance(request, rq.Get)
    with pytest.raises(StopIteration) as stop:
        steps.send(stage.first.answer(request))

    assert stop.value.value[0] == b"now"


def test_what_is_written_is_read_back() -> None:
    info = ComponentInfo("a", 7, UUID(int=9), "http://a:1/é")

    assert decode_component(encode_component(info), PATH) == info


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"schema": 1', b'"schema": 2'),
        (b'"epoch": 7', b'"epoch": "7"'),
        (b'"epoch": 7', b'"epoch": true'),
        (b"00000000-", b"nonsense-"),
        (b'"address"', b'"addres"'),
        (b"{", b""),
    ],
)
def test_what_is_no_component_record_is_refused_and_the_node_named(old: bytes, new: bytes) -> None:
    data = encode_component(ComponentInfo("a", 7, UUID(int=9), "h:1"))
    assert old in data

    with pytest.raises(RecordError, match=PATH):
        decode_component(data.replace(old, new, 1), PATH)
