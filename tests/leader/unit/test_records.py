"""Names, contents and transaction answers, as they are in ZooKeeper."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from kazoo.exceptions import BadVersionError, NoNodeError, RolledBackError, RuntimeInconsistency

from leader import ElectionConfigError, LeaderInfo, MemberNode, Participant, Rank, RecordError
from leader.protocol.control import (
    Control,
    Pause,
    Switchover,
    asked_to_step_down,
    decode_control,
    encode_control,
)
from leader.protocol.participant import decode_id, decode_member, encode_id, encode_member
from leader.protocol.paths import ElectionPaths, checked_root, in_queue_order, new_latch_prefix
from leader.protocol.terms import (
    ComponentInfo,
    EpochRecord,
    decode_component,
    decode_epoch,
    decode_leader,
    encode_component,
    encode_epoch,
    encode_leader,
)
from leader.zookeeper.fencing import first_failure

COMPONENT = ElectionPaths("/e").component("rest")
WHO = Participant("a", "host", 8_080, "boot-1")
A, B, C = (f"_c_{letter * 8}-0000-0000-0000-000000000000-latch-" for letter in "abc")


def test_the_queue_is_ordered_by_number_not_by_name_and_strangers_are_left_out() -> None:
    children = [f"{A}0000000012", f"{C}0000000002", "somebody-else", f"{B}0000000007"]

    assert in_queue_order(children) == [f"{C}0000000002", f"{B}0000000007", f"{A}0000000012"]


def test_after_the_largest_sequence_comes_the_smallest() -> None:
    children = [f"{A}-2147483648", f"{B}2147483647", f"{C}-2147483647"]

    assert in_queue_order(children) == [f"{B}2147483647", f"{A}-2147483648", f"{C}-2147483647"]


def test_a_new_latch_has_curators_form_and_is_like_no_other() -> None:
    first, second = new_latch_prefix(), new_latch_prefix()

    assert first != second
    assert first.startswith("_c_")
    assert first.endswith("-latch-")
    assert len(first) == len("_c_") + 36 + len("-latch-")


def test_paths_are_below_the_root() -> None:
    paths = ElectionPaths("/prod/nimbus")

    assert paths.latch("x") == "/prod/nimbus/leader-lock/x"
    assert (paths.epoch, paths.leader) == ("/prod/nimbus/epoch", "/prod/nimbus/leader")
    assert (paths.member("a"), paths.component("c")) == (
        "/prod/nimbus/members/a",
        "/prod/nimbus/components/c",
    )


@pytest.mark.parametrize(
    "root", ["", "/", "x", "/x/", "//x", "/x//y", "/x/../y", "/./x", "/x\0", "/zookeeper/x", "/zookeeper"]
)
def test_a_root_that_zookeeper_would_not_take_is_refused(root: str) -> None:
    with pytest.raises(ElectionConfigError, match="must be an absolute ZooKeeper path"):
        checked_root(root)


@pytest.mark.parametrize("bad", ["", "a/b", ".", "..", "a\nb", "x" * 201])
def test_an_id_that_cannot_name_a_node_is_refused(bad: str) -> None:
    with pytest.raises(ElectionConfigError, match="participant id"):
        Participant(bad)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ElectionConfigError, match="70000"):
        Participant("a", "h", 70_000)


def test_what_is_written_is_read_back() -> None:
    info = LeaderInfo(WHO, 9, 1 << 60)
    member = MemberNode(WHO, 5, Rank(2, 3, 4, 1, "a"), nofailover=True, reasons=("x", "y"), declined=True)
    control = Control(Pause("a", "upgrade"), Switchover("b", 7, "rack 4"))

    assert decode_leader(encode_leader(info), "/l") == info
    assert decode_id(encode_id(WHO), "/p") == "a"
    assert decode_epoch(encode_epoch(EpochRecord(41, "l", 2)), "/e") == EpochRecord(41, "l", 2)
    assert decode_epoch(b'{"schema": 1, "epoch": 3}', "/e") == EpochRecord(3)
    assert decode_member(encode_member(member), "/m/a") == member
    assert decode_control(encode_control(control), "/c") == control
    assert decode_control(encode_control(Control()), "/c") == Control()


@pytest.mark.parametrize("to", ["", "scheduler-2"])
def test_wish_is_read_back_from_the_reason_that_the_electable_is_told(to: str) -> None:
    wish = Switchover(to, 7, "rack 4: goes\ndown")

    assert asked_to_step_down(wish.in_words()) == (to, "rack 4: goes\ndown")
    assert asked_to_step_down("the session was lost") is None


def test_the_data_of_a_latch_is_the_id_and_nothing_else_as_with_curator() -> None:
    assert encode_id(WHO) == b"a"
    with pytest.raises(RecordError, match="/p contains no participant id"):
        decode_id(b"\xff", "/p")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "/e contains no JSON"),
        (b"\xff", "/e contains no JSON"),
        (b"[" * 100_000, "/e contains no JSON"),
        (b"[]", "/e has schema None"),
        (b'{"schema": "2", "epoch": 3}', "field 'schema' is '2', expected int"),
        (b'{"schema": 1, "epoch": "3"}', "field 'epoch' is '3', expected int"),
        (b'{"schema": 1, "epoch": true}', "field 'epoch' is True, expected int"),
        (b'{"schema": 1}', "field 'epoch' is None"),
    ],
)
def test_what_is_not_ours_is_refused_with_its_path(data: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words) as refused:
        decode_epoch(data, "/e")
    assert "delete" not in str(refused.value), "without the node, epochs would begin again at 1"
    assert "above every epoch ever used" in str(refused.value)


@pytest.mark.parametrize("wrong", [{"port": 99_999}, {"id": "a/b"}, {"id": ""}])
def test_a_participant_that_cannot_be_is_a_record_that_is_not_ours(wrong: dict[str, object]) -> None:
    member = MemberNode(Participant("a", "h", 1, "b"), 7, Rank(id="a"))
    data = json.dumps(json.loads(encode_member(member)) | wrong).encode()

    with pytest.raises(RecordError, match="/m/a contains no valid participant"):
        decode_member(data, "/m/a")


def test_ranks_have_a_best_one_and_ready_beats_all_else() -> None:
    ready_reserve = Rank(unready=0, reserve=5, id="z")
    unknown = Rank(unready=1, id="a")
    lacking_little = Rank(unready=2, missing=1, missing_bytes=10, id="b")
    lacking_much = Rank(unready=2, missing=1, missing_bytes=11, id="a")

    assert sorted([lacking_much, unknown, lacking_little, ready_reserve]) == [
        ready_reserve,
        unknown,
        lacking_little,
        lacking_much,
    ]


def test_the_culprit_of_a_transaction_is_neither_who_was_rolled_back_nor_who_came_after() -> None:
    culprit = BadVersionError()

    assert first_failure([RolledBackError(), culprit, RuntimeInconsistency()]) == (1, culprit)
    assert first_failure(["/path", True]) is None


def test_a_failed_fence_is_the_first_of_the_failures() -> None:
    fence = NoNodeError()

    assert first_failure([fence, RuntimeInconsistency()]) == (0, fence)


def test_a_component_is_read_back_as_it_was_written() -> None:
    info = ComponentInfo("a", 7, UUID(int=9), "http://a:1/é")

    assert decode_component(encode_component(info), COMPONENT) == info


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

    with pytest.raises(RecordError, match=COMPONENT):
        decode_component(data.replace(old, new, 1), COMPONENT)
