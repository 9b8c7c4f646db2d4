"""Names, contents and transaction answers, as they are in ZooKeeper."""

from __future__ import annotations

import pytest
from kazoo.exceptions import BadVersionError, NoNodeError, RolledBackError, RuntimeInconsistency

from leader import LeaderInfo, Participant, RecordError
from leader.fencing import first_failure
from leader.protocol import records as r
from leader.protocol.paths import ElectionPaths, in_queue_order

WHO = Participant("a", "host", 8_080, "boot-1")
A, B, C = "a" * 32, "b" * 32, "c" * 32


def test_the_queue_is_ordered_by_number_not_by_name_and_strangers_are_left_out() -> None:
    children = [f"{A}-latch-0000000012", f"{C}-latch-0000000002", "somebody-else", f"{B}-latch-0000000007"]

    assert [(latch.guid, latch.sequence) for latch in in_queue_order(children)] == [(C, 2), (B, 7), (A, 12)]


def test_paths_are_below_the_root() -> None:
    paths = ElectionPaths("/prod/nimbus")

    assert paths.new_latch(A) == f"/prod/nimbus/leader-lock/{A}-latch-"
    assert (paths.epoch, paths.leader) == ("/prod/nimbus/epoch", "/prod/nimbus/leader")


def test_what_is_written_is_read_back() -> None:
    info = LeaderInfo(WHO, 9, 1 << 60)

    assert r.decode_leader(r.encode_leader(info), "/l") == info
    assert r.decode_participant(r.encode_participant(WHO, 5), "/p") == WHO
    assert r.decode_epoch(r.encode_epoch(41), "/e") == 41


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "/e holds no JSON"),
        (b"\xff", "/e holds no JSON"),
        (b"[]", "/e has schema None"),
        (b'{"schema": 2, "epoch": 3}', "schema 2, this release reads 1"),
        (b'{"schema": 1, "epoch": "3"}', "field 'epoch' is '3', wanted int"),
        (b'{"schema": 1, "epoch": true}', "field 'epoch' is True, wanted int"),
        (b'{"schema": 1}', "field 'epoch' is None"),
    ],
)
def test_what_is_not_ours_is_refused_with_its_path(data: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        r.decode_epoch(data, "/e")


def test_the_culprit_of_a_transaction_is_neither_who_was_rolled_back_nor_who_came_after() -> None:
    culprit = BadVersionError()

    assert first_failure([RolledBackError(), culprit, RuntimeInconsistency()]) == (1, culprit)
    assert first_failure(["/path", True]) is None


def test_a_failed_fence_is_the_first_of_the_failures() -> None:
    fence = NoNodeError()

    assert first_failure([fence, RuntimeInconsistency()]) == (0, fence)
