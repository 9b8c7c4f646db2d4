"""One suite for all servers of an election: a real ZooKeeper, and the one in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from leader.errors import ZooKeeperUnavailableError
from leader.protocol import requests as rq
from tests.leader.zookeeper_bench import Bench, Client

T = TypeVar("T")
Eventually = Callable[..., None]


@pytest.fixture
def bench(zookeeper_bench: Bench) -> Bench:
    return zookeeper_bench


@pytest.fixture
def client(bench: Bench) -> Client:
    made = bench.client()
    made.run(rq.ensure_path(bench.root))
    return made


@pytest.fixture
def root(bench: Bench) -> str:
    return bench.root


def test_many_nodes_are_read_at_once_and_what_is_gone_is_left_out(client: Client, root: str) -> None:
    paths = [f"{root}/n{number}" for number in range(250)]
    for path in paths[::2]:
        client.run(rq.create(path, path.encode(), ephemeral=True))

    found = client.run(rq.get_each(paths))

    assert list(found) == paths[::2]
    assert all(data == path.encode() for path, (data, _) in found.items())
    assert {stat.owner for _, stat in found.values()} == {client.session_id}


def test_a_node_that_comes_between_two_questions_is_read_and_watched_after_all(
    client: Client, root: str, eventually: Eventually
) -> None:
    steps = rq.watched(f"{root}/late")
    assert isinstance(next(steps), rq.Get)
    assert isinstance(steps.throw(rq.NodeMissingError(f"{root}/late")), rq.Exists)
    client.run(rq.create(f"{root}/late", b"now"))

    def asks_on() -> rq.Steps[tuple[bytes, rq.Stat] | None]:
        request = steps.send(client.run(rq.exists(f"{root}/late")))
        while True:
            try:
                request = steps.send((yield request))
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]

    found = client.run(asks_on())

    assert found is not None
    assert found[0] == b"now"
    client.run(rq.delete(f"{root}/late"))
    eventually(lambda: (f"{root}/late", True) in client.fired, what="the watch fires")


# --- nodes --------------------------------------------------------------------------------------


def test_created_node_is_read_back_with_its_stat(client: Client, root: str) -> None:
    assert client.run(rq.create(f"{root}/a", b"one")) == f"{root}/a"
    data, stat = client.run(rq.get(f"{root}/a"))

    assert (data, stat.version, stat.owner) == (b"one", 0, 0)
    assert stat.created_zxid == stat.modified_zxid > 0
    assert client.run(rq.exists(f"{root}/a")) == stat


def test_creating_below_nothing_is_refused(client: Client, root: str) -> None:
    with pytest.raises(rq.NodeMissingError) as refused:
        client.run(rq.create(f"{root}/no/a", b""))
    assert refused.value.path == f"{root}/no/a"


def test_creating_twice_is_refused(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/a", b""))

    with pytest.raises(rq.NodeExistsError):
        client.run(rq.create(f"{root}/a", b""))


def test_ephemeral_node_has_an_owner_and_no_children(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/a", b"", ephemeral=True))
    stat = client.run(rq.exists(f"{root}/a"))

    assert stat is not None
    assert stat.owner == client.session_id
    with pytest.raises(rq.NotPermittedError):
        client.run(rq.create(f"{root}/a/b", b""))


def test_sequence_numbers_count_every_child_ever_made(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/plain", b""))
    first = client.run(rq.create(f"{root}/x-", b"", sequential=True))
    client.run(rq.delete(first))
    second = client.run(rq.create(f"{root}/y-", b"", ephemeral=True, sequential=True))

    assert (first, second) == (f"{root}/x-0000000001", f"{root}/y-0000000002")


def test_writing_raises_the_version_and_keeps_the_birth(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/a", b"one"))
    born = client.run(rq.exists(f"{root}/a"))
    stat = client.run(rq.set_data(f"{root}/a", b"two", 0))

    assert born is not None
    assert (stat.version, stat.created_zxid) == (1, born.created_zxid)
    assert stat.modified_zxid > stat.created_zxid
    assert client.run(rq.get(f"{root}/a"))[0] == b"two"


def test_writing_another_version_is_refused_but_any_is_taken(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.set_data(f"{root}/a", b""))

    with pytest.raises(rq.VersionMismatchError):
        client.run(rq.set_data(f"{root}/a", b"", 0))
    assert client.run(rq.set_data(f"{root}/a", b"", -1)).version == 2


def test_writing_and_deleting_what_is_not_there_is_refused(client: Client, root: str) -> None:
    with pytest.raises(rq.NodeMissingError):
        client.run(rq.set_data(f"{root}/no", b""))
    with pytest.raises(rq.NodeMissingError):
        client.run(rq.delete(f"{root}/no"))
    with pytest.raises(rq.NodeMissingError):
        client.run(rq.get(f"{root}/no"))
    client.run(rq.delete_if_there(f"{root}/no"))


def test_deleting_another_version_or_a_parent_is_refused(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.create(f"{root}/a/b", b""))

    with pytest.raises(rq.VersionMismatchError):
        client.run(rq.delete(f"{root}/a", 7))
    with pytest.raises(rq.NotEmptyError):
        client.run(rq.delete(f"{root}/a"))
    client.run(rq.delete(f"{root}/a/b"))
    client.run(rq.delete(f"{root}/a", 0))
    assert client.run(rq.exists(f"{root}/a")) is None


def test_children_are_names_of_the_next_level_only(client: Client, root: str) -> None:
    client.run(rq.ensure_path(f"{root}/a/b"))
    client.run(rq.create(f"{root}/c", b""))

    assert sorted(client.run(rq.get_children(root))) == ["a", "c"]
    assert client.run(rq.get_children(f"{root}/a/b")) == []
    with pytest.raises(rq.NodeMissingError):
        client.run(rq.get_children(f"{root}/no"))


def test_ensuring_a_path_twice_changes_nothing(client: Client, root: str) -> None:
    client.run(rq.ensure_path(f"{root}/a/b"))
    client.run(rq.set_data(f"{root}/a/b", b"kept"))
    client.run(rq.ensure_path(f"{root}/a/b"))

    assert client.run(rq.get(f"{root}/a/b"))[0] == b"kept"


# --- transactions -------------------------------------------------------------------------------


def test_transaction_answers_for_each_operation(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/a", b""))
    checked, made, stat, gone = client.run(
        rq.transaction(
            rq.Check(f"{root}/a", 0),
            rq.Create(f"{root}/b-", b"", ephemeral=True, sequential=True),
            rq.SetData(f"{root}/a", b"new", 0),
            rq.Delete(f"{root}/b-0000000001"),
        )
    )

    assert checked is True
    assert made == f"{root}/b-0000000001"
    assert stat.version == 1
    assert gone is True or gone is None
    assert client.run(rq.get_children(root)) == ["a"]


def test_transaction_that_fails_changes_nothing_and_names_the_culprit(client: Client, root: str) -> None:
    client.run(rq.create(f"{root}/a", b"old"))
    with pytest.raises(rq.TransactionFailedError) as failed:
        client.run(
            rq.transaction(
                rq.SetData(f"{root}/a", b"new"),
                rq.Check(f"{root}/no"),
                rq.Create(f"{root}/b", b""),
            )
        )

    assert failed.value.index == 1
    assert isinstance(failed.value.cause, rq.NodeMissingError)
    assert client.run(rq.get(f"{root}/a"))[0] == b"old"
    assert client.run(rq.exists(f"{root}/b")) is None


@pytest.mark.parametrize(
    ("operation", "refusal"),
    [
        (rq.Check("/a", 7), rq.VersionMismatchError),
        (rq.Check("/no"), rq.NodeMissingError),
        (rq.Create("/a"), rq.NodeExistsError),
        (rq.Create("/no/a"), rq.NodeMissingError),
        (rq.SetData("/a", b"", 7), rq.VersionMismatchError),
        (rq.Delete("/a", 7), rq.VersionMismatchError),
        (rq.Delete("/a"), rq.NotEmptyError),
    ],
    ids=str,
)
def test_refusals_inside_a_transaction_are_those_outside(
    client: Client, root: str, operation: rq.Operation, refusal: type[rq.RequestRefusedError]
) -> None:
    client.run(rq.ensure_path(f"{root}/a/b"))
    moved = replace(operation, path=root + operation.path)

    with pytest.raises(rq.TransactionFailedError) as failed:
        client.run(rq.transaction(moved))
    assert type(failed.value.cause) is refusal


# --- watches ------------------------------------------------------------------------------------


def test_watch_on_a_node_fires_once_when_it_is_written(
    client: Client, root: str, eventually: Eventually
) -> None:
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.get(f"{root}/a", watch=True))
    client.run(rq.exists(f"{root}/a", watch=True))  # a second watch of the same kind is no additional one
    client.run(rq.set_data(f"{root}/a", b""))
    client.run(rq.set_data(f"{root}/a", b""))
    _wait_for_a_marker(client, root, eventually)

    assert client.fired == [(f"{root}/a", False), (f"{root}/marker", False)]


def test_watch_on_a_node_says_when_it_is_gone(client: Client, root: str, eventually: Eventually) -> None:
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.exists(f"{root}/a", watch=True))
    client.run(rq.delete(f"{root}/a"))
    _wait_for_a_marker(client, root, eventually)

    assert client.fired == [(f"{root}/a", True), (f"{root}/marker", False)]


def test_watch_on_nothing_fires_when_the_node_is_made(
    client: Client, root: str, eventually: Eventually
) -> None:
    assert client.run(rq.exists(f"{root}/a", watch=True)) is None
    client.run(rq.create(f"{root}/a", b""))
    _wait_for_a_marker(client, root, eventually)

    assert client.fired == [(f"{root}/a", False), (f"{root}/marker", False)]


def test_get_of_nothing_arms_no_watch(client: Client, root: str, eventually: Eventually) -> None:
    with pytest.raises(rq.NodeMissingError):
        client.run(rq.get(f"{root}/a", watch=True))
    with pytest.raises(rq.NodeMissingError):
        client.run(rq.get_children(f"{root}/a", watch=True))
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.create(f"{root}/a/b", b""))
    _wait_for_a_marker(client, root, eventually)

    assert client.fired == [(f"{root}/marker", False)]


def test_watch_on_children_fires_for_births_and_deaths_but_not_for_data(
    client: Client, root: str, eventually: Eventually
) -> None:
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.create(f"{root}/a/b", b""))
    client.run(rq.get_children(f"{root}/a", watch=True))
    client.run(rq.set_data(f"{root}/a/b", b""))
    client.run(rq.create(f"{root}/a/c", b""))
    client.run(rq.get_children(f"{root}/a", watch=True))
    client.run(rq.delete(f"{root}/a/c"))
    _wait_for_a_marker(client, root, eventually)

    assert client.fired == [(f"{root}/a", False), (f"{root}/a", False), (f"{root}/marker", False)]


def test_node_replaced_in_one_transaction_fires_as_gone(
    client: Client, root: str, eventually: Eventually
) -> None:
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.exists(f"{root}/a", watch=True))
    client.run(rq.transaction(rq.Delete(f"{root}/a"), rq.Create(f"{root}/a", b"")))
    _wait_for_a_marker(client, root, eventually)

    assert client.fired == [(f"{root}/a", True), (f"{root}/marker", False)]


def test_watch_on_nothing_fires_when_one_transaction_makes_and_deletes_the_node(
    client: Client, root: str, eventually: Eventually
) -> None:
    client.run(rq.create(f"{root}/latch", b""))
    client.run(rq.exists(f"{root}/latch", watch=True))
    client.run(rq.exists(f"{root}/notice", watch=True))

    notice, latch = f"{root}/notice", f"{root}/latch"
    client.run(rq.transaction(rq.Create(notice), rq.Delete(notice), rq.Delete(latch)))

    eventually(lambda: len(client.fired) == 2)
    assert client.fired == [(notice, False), (latch, True)], "in this order: a hand-over stands on it"


def test_transaction_that_only_checks_fires_nothing(
    client: Client, root: str, eventually: Eventually
) -> None:
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.get(f"{root}/a", watch=True))
    client.run(rq.transaction(rq.Check(f"{root}/a", 0)))
    _wait_for_a_marker(client, root, eventually)

    assert client.fired == [(f"{root}/marker", False)]


def _wait_for_a_marker(client: Client, root: str, eventually: Eventually) -> None:
    """Wait for an event. Events arrive in order, so all earlier ones have arrived then."""
    client.run(rq.exists(f"{root}/marker", watch=True))
    client.run(rq.create(f"{root}/marker", b""))
    eventually(lambda: (f"{root}/marker", False) in client.fired, what="the marker's event is here")


# --- sessions -----------------------------------------------------------------------------------


def test_end_of_a_session_takes_its_ephemeral_nodes_and_no_others(
    bench: Bench, client: Client, root: str, eventually: Eventually
) -> None:
    other = bench.client()
    other.run(rq.create(f"{root}/stays", b""))
    other.run(rq.create(f"{root}/goes", b"", ephemeral=True))
    client.run(rq.exists(f"{root}/goes", watch=True))
    client.run(rq.create(f"{root}/mine", b"", ephemeral=True))
    other.end()
    eventually(lambda: client.fired == [(f"{root}/goes", True)], what="the watch fires for the deletion")

    assert sorted(client.run(rq.get_children(root))) == ["mine", "stays"]


def test_closed_session_gives_no_answers(bench: Bench, client: Client, root: str) -> None:
    other = bench.client()
    other.end()

    with pytest.raises(ZooKeeperUnavailableError):
        other.run(rq.exists(root))


def test_watches_of_two_clients_are_their_own(
    bench: Bench, client: Client, root: str, eventually: Eventually
) -> None:
    other = bench.client()
    client.run(rq.create(f"{root}/a", b""))
    client.run(rq.exists(f"{root}/a", watch=True))
    other.run(rq.exists(f"{root}/a", watch=True))
    other.run(rq.set_data(f"{root}/a", b""))
    eventually(lambda: client.fired and other.fired, what="both watches fired")

    assert client.fired == other.fired == [(f"{root}/a", False)]
