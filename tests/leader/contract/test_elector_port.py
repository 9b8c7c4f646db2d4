"""One suite for every Elector: the lock queue on a real ZooKeeper, the single node, the one in memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType

import pytest

from leader import (
    ElectionStateError,
    FencedOutError,
    Leadership,
    Phase,
    Verdict,
)
from leader.elector import Elector
from tests.leader.elector_bench import ALL, LONG, SHARED, Bench, Member

NO = Verdict(False, ("not synced",))
Eventually = Callable[..., None]

every_kind = pytest.mark.parametrize("bench", ALL, indirect=True)
shared_kinds = pytest.mark.parametrize("bench", SHARED, indirect=True)


def _queue_up(bench: Bench, eventually: Eventually, *names: str) -> list[Member]:
    """Start members one after the other, so that they queue in this order."""
    joined: list[Member] = []
    for name in names:
        joined.append(bench.member(name))
        joined[-1].elector.add_to_leader_lock_queue()
        eventually(
            lambda: len(joined[0].elector.get_all_participants()) == len(joined), what=f"{name} queues"
        )
    return joined


def _wait(go_on: threading.Event) -> None:
    go_on.wait(LONG.total_seconds())


def _terms_in_turn(told: list[tuple[str, int]]) -> bool:
    """True if each `elected` is followed by `revoked` with the same epoch, and epochs rise."""
    epochs = [epoch for word, epoch in told if word == "elected"]
    expected = [(word, epoch) for epoch in epochs for word in ("elected", "revoked")]
    return told in (expected, expected[:-1]) and epochs == sorted(set(epochs))


@every_kind
def test_an_elector_leads_tells_once_and_on_close_is_deposed_once(
    bench: Bench, eventually: Eventually
) -> None:
    member = bench.member("a")
    asked_before: list[int] = []
    member.on_elected = lambda _leadership: asked_before.append(member.asked)
    assert isinstance(member.elector, Elector)
    assert not member.elector.is_leader()
    assert member.elector.get_leader() is None

    member.elector.add_to_leader_lock_queue()
    member.elector.add_to_leader_lock_queue()

    eventually(lambda: member.told == [("elected", 1)], what="it is told")
    assert member.elector.leadership() == member.terms[0]
    assert member.elector.status().phase is Phase.LEADING
    assert asked_before[0] > 0, "no participant leads before the guard was called"
    eventually(lambda: member.elector.get_leader() is not None, what="it is published")
    leader = member.elector.get_leader()
    assert leader is not None
    assert (leader.participant.id, leader.epoch) == ("a", 1)

    member.elector.close(LONG)
    member.elector.close(LONG)

    assert member.told == [("elected", 1), ("revoked", 1)]
    assert not member.elector.is_leader()
    assert member.elector.status().phase is Phase.CLOSED
    assert member.elector.get_leader() is None
    with pytest.raises(ElectionStateError, match="closed"):
        member.elector.add_to_leader_lock_queue()


@every_kind
def test_is_leader_runs_through_at_most_five_files_of_the_package(
    bench: Bench, eventually: Eventually
) -> None:
    member = bench.member("a")
    member.elector.add_to_leader_lock_queue()
    eventually(member.elector.is_leader, what="it leads")
    files: set[str] = set()

    def note(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and "/leader/" in frame.f_code.co_filename:
            files.add(Path(frame.f_code.co_filename).name)

    before = sys.gettrace()
    sys.settrace(note)
    try:
        leads = member.elector.is_leader()
    finally:
        sys.settrace(before)

    assert leads
    assert 1 < len(files) <= 5, sorted(files)


@every_kind
def test_an_elector_closed_before_it_queued_tells_nothing(bench: Bench) -> None:
    member = bench.member("a")

    member.elector.close(LONG)

    assert member.told == []
    with pytest.raises(ElectionStateError):
        member.elector.add_to_leader_lock_queue()


@every_kind
def test_each_change_is_told_exactly_once_with_rising_epochs_through_many_abdications(
    bench: Bench, eventually: Eventually
) -> None:
    member = bench.member("a", requeue_backoff_max=timedelta(milliseconds=100))
    member.elector.add_to_leader_lock_queue()

    for count in range(1, 6):
        eventually(lambda count=count: len(member.terms) == count, what=f"term {count}")
        member.elector.abdicate(f"reason {count}")
        eventually(lambda count=count: len(member.reasons) == count, what=f"term {count} ends")
        leads = member.elector.leadership()  # it may lead again before it is told
        assert leads is None or leads.epoch > member.terms[count - 1].epoch
    member.elector.close(LONG)

    assert _terms_in_turn(member.told), member.told
    assert member.reasons[:5] == [f"reason {count}" for count in range(1, 6)]
    assert len(member.terms) - len(member.reasons) == 0


@every_kind
def test_who_takes_its_time_to_be_told_is_published_and_goes_on_leading_meanwhile(
    bench: Bench, eventually: Eventually
) -> None:
    member, go_on = bench.member("a"), threading.Event()
    member.on_elected = lambda _leadership: _wait(go_on)
    try:
        member.elector.add_to_leader_lock_queue()

        eventually(lambda: member.elector.get_leader() is not None, what="it is published")
        assert member.elector.is_leader()
        assert member.told == []
        member.elector.abdicate("enough")
        eventually(lambda: not member.elector.is_leader(), what="it steps down")
        assert member.told == []
    finally:
        go_on.set()
    eventually(lambda: member.reasons[:1] == ["enough"], what="both calls came, in order")
    assert member.told[:2] == [("elected", 1), ("revoked", 1)]


@every_kind
def test_who_the_guard_refuses_is_asked_again_until_it_may_lead(bench: Bench, eventually: Eventually) -> None:
    member = bench.member("a")
    member.guard = lambda: NO
    member.elector.add_to_leader_lock_queue()

    eventually(lambda: member.asked >= 3, what="the guard is called repeatedly")
    assert member.told == []
    assert not member.elector.is_leader()
    assert member.elector.get_leader() is None
    assert member.elector.status().last_verdict == NO

    member.guard = lambda: Verdict(True)
    eventually(lambda: len(member.told) == 1, what="it leads without being poked")
    assert member.elector.is_leader()


@every_kind
def test_a_guard_that_raises_or_hangs_means_no(bench: Bench, eventually: Eventually) -> None:
    member = bench.member("a", guard_timeout=timedelta(milliseconds=200))
    release = threading.Event()

    def hang() -> Verdict:
        release.wait(60)
        return Verdict(True)

    def broken() -> Verdict:
        raise LookupError("no such pipeline")

    member.guard = broken
    try:
        member.elector.add_to_leader_lock_queue()
        eventually(
            lambda: "LookupError: no such pipeline" in (member.elector.status().last_abdication or ""),
            what="its status shows the error of the guard",
        )
        member.guard = hang
        eventually(
            lambda: any(
                words in (member.elector.status().last_abdication or "")
                for words in ("no answer in time", "the guard hangs")
            ),
            what="silence means no",
        )
        eventually(
            lambda: "the guard hangs" in (member.elector.status().trouble or ""),
            what="it says what it waits for",
        )
        assert member.told == []
        assert not member.elector.is_leader()
        member.guard = lambda: Verdict(True)
    finally:
        release.set()
    eventually(
        lambda: [word for word, _ in member.told] == ["elected"], what="it leads once the guard agrees"
    )


@every_kind
def test_a_poke_ends_a_back_off(bench: Bench, eventually: Eventually) -> None:
    member = bench.member("a", requeue_backoff_min=timedelta(hours=1), requeue_backoff_max=timedelta(hours=1))
    member.guard = lambda: NO
    member.elector.add_to_leader_lock_queue()
    eventually(lambda: member.elector.status().phase is Phase.BACKING_OFF)

    member.guard = lambda: Verdict(True)
    member.elector.poke()

    eventually(lambda: [word for word, _ in member.told] == ["elected"], what="it leads")


@every_kind
def test_who_cannot_take_the_lead_does_not_keep_it(bench: Bench, eventually: Eventually) -> None:
    member = bench.member("a")

    def refuse(leadership: Leadership) -> None:
        if leadership.epoch == 1:
            raise OSError("disk full")

    member.on_elected = refuse
    member.elector.add_to_leader_lock_queue()

    eventually(lambda: len(member.told) == 2, what="revoked, then elected again")
    assert member.told == [("revoked", 1), ("elected", 2)]
    assert "disk full" in member.reasons[0]


@every_kind
def test_who_was_removed_stays_out_until_added_again(bench: Bench, eventually: Eventually) -> None:
    member = bench.member("a")
    member.elector.add_to_leader_lock_queue()
    eventually(lambda: member.told == [("elected", 1)])

    member.elector.remove_from_leader_lock_queue()

    eventually(lambda: member.told == [("elected", 1), ("revoked", 1)])
    eventually(lambda: member.elector.status().phase is Phase.LATENT)
    assert member.elector.get_all_participants() == []
    member.elector.add_to_leader_lock_queue()
    eventually(lambda: member.told[2:] == [("elected", 2)], what="it leads again, in a higher epoch")


@every_kind
def test_a_slow_electable_does_not_make_is_leader_wait(bench: Bench, eventually: Eventually) -> None:
    member = bench.member(
        "a", handover_timeout=timedelta(milliseconds=200), guard_timeout=timedelta(milliseconds=500)
    )
    release = threading.Event()

    def slow(_leadership: Leadership) -> None:
        release.wait(60)

    member.on_elected = slow
    try:
        member.elector.add_to_leader_lock_queue()
        eventually(member.elector.is_leader)

        member.elector.remove_from_leader_lock_queue()

        eventually(lambda: not member.elector.is_leader())
        eventually(lambda: member.elector.status().phase is Phase.LATENT, what="the lock is released")
        assert member.told == []
        eventually(
            lambda: "elected() or revoked() of epoch 1" in (member.elector.status().trouble or ""),
            what="its status names the call that hangs",
        )
    finally:
        release.set()
    eventually(lambda: member.told == [("elected", 1), ("revoked", 1)], what="both calls came, in order")
    eventually(lambda: member.elector.status().trouble is None, what="nothing hangs any more")


@shared_kinds
def test_of_several_one_leads_and_on_its_close_the_next_in_a_higher_epoch(
    bench: Bench, eventually: Eventually
) -> None:
    first, second, third = members = _queue_up(bench, eventually, "a", "b", "c")
    eventually(lambda: first.told == [("elected", 1)])
    eventually(lambda: first.elector.get_leader() is not None, what="it is published")
    assert [member.elector.is_leader() for member in members] == [True, False, False]
    assert [
        (view.participant.id, view.position, view.is_leader) for view in second.elector.get_all_participants()
    ] == [("a", 0, True), ("b", 1, False), ("c", 2, False)]

    first.elector.close(LONG)

    eventually(lambda: len(second.terms) == 1, what="the second leads")
    assert second.terms[0].epoch > 1
    assert first.told == [("elected", 1), ("revoked", 1)]
    assert third.told == []
    eventually(lambda: third.elector.status().position == 1, what="the third moves up")


@shared_kinds
def test_a_token_of_an_older_term_is_refused(bench: Bench, eventually: Eventually) -> None:
    first, second = _queue_up(bench, eventually, "a", "b")
    eventually(lambda: len(first.terms) == 1)
    old = first.terms[0].token
    bench.write(first, old)

    first.elector.abdicate("test")
    eventually(lambda: len(second.terms) == 1, what="the second leads")

    with pytest.raises(FencedOutError, match="epoch 1"):
        bench.write(first, old)
    bench.write(second, second.terms[0].token)


@shared_kinds
def test_never_two_lead_while_leadership_goes_round(bench: Bench, eventually: Eventually) -> None:
    members = _queue_up(bench, eventually, "a", "b", "c")
    stop, doubled = threading.Event(), []

    def watch() -> None:
        while not stop.wait(0.001):  # without the pause it would keep the electors' threads from running
            # A member that led before and after another one led, in one term, led at the same time.
            before = [member.elector.leadership() for member in members]
            after = [member.elector.leadership() for member in members]
            steady = [one for one, two in zip(before, after, strict=True) if one is not None and one == two]
            if len(steady) > 1:
                doubled.append(steady)

    watcher = threading.Thread(target=watch, name="watch-leaders")
    watcher.start()
    try:
        for count in range(1, 10):
            eventually(lambda count=count: sum(len(member.terms) for member in members) >= count)
            leader = next((member for member in members if member.elector.is_leader()), members[0])
            leader.elector.abdicate("round and round")
    finally:
        stop.set()
        watcher.join()
    for member in members:
        member.elector.close(LONG)

    assert doubled == []
    assert all(_terms_in_turn(member.told) for member in members), [member.told for member in members]
    epochs = [leadership.epoch for member in members for leadership in member.terms]
    assert len(epochs) == len(set(epochs)), "an epoch was led twice"


@shared_kinds
def test_an_unready_head_of_the_queue_yields_to_a_ready_one(bench: Bench, eventually: Eventually) -> None:
    leader, unready, ready = _queue_up(bench, eventually, "a", "b", "c")
    eventually(lambda: leader.told == [("elected", 1)])
    unready.elector.publish_readiness(False, missing=1, reasons=("file 7",))
    ready.elector.publish_readiness(True)

    def known() -> bool:
        views = leader.elector.get_all_participants()
        return [view.member is not None and view.member.rank.unready for view in views] == [1, 2, 0]

    eventually(known, what="all know how ready the others are")
    leader.elector.close(LONG)

    eventually(lambda: len(ready.told) == 1, what="the ready one leads")
    assert unready.told == []


@shared_kinds
def test_an_id_in_use_is_refused_until_it_is_free(bench: Bench, eventually: Eventually) -> None:
    first = _queue_up(bench, eventually, "a")[0]
    eventually(lambda: first.told == [("elected", 1)])
    twin = bench.member("a")
    twin.elector.add_to_leader_lock_queue()
    eventually(lambda: "belongs to a participant" in (twin.elector.status().last_abdication or ""))

    first.elector.close(LONG)

    eventually(lambda: len(twin.told) == 1, what="it leads once the id is free")


@every_kind
def test_a_guard_is_overruled_after_the_configured_time_if_so_wanted(
    bench: Bench, eventually: Eventually
) -> None:
    member = bench.member(
        "a",
        guard_timeout=timedelta(milliseconds=200),
        forced_takeover_after=timedelta(milliseconds=600),
    )
    member.guard = lambda: NO
    member.elector.add_to_leader_lock_queue()

    eventually(lambda: len(member.told) == 1, what="a participant leads in the end")
    assert member.asked >= 2


@pytest.mark.parametrize("bench", ["memory"], indirect=True)
def test_who_loses_its_session_in_memory_is_deposed_at_once_and_queues_again(
    bench: Bench, eventually: Eventually
) -> None:
    first, second = _queue_up(bench, eventually, "a", "b")
    eventually(lambda: first.told == [("elected", 1)])
    old = first.terms[0].token

    first.elector.lose_session()  # type: ignore[attr-defined]  # MemoryElector's

    assert not first.elector.is_leader()
    eventually(lambda: len(second.terms) == 1, what="the second leads")
    eventually(lambda: first.told == [("elected", 1), ("revoked", 1)])
    with pytest.raises(FencedOutError):
        bench.write(first, old)
    eventually(lambda: [v.participant.id for v in second.elector.get_all_participants()] == ["b", "a"])


@pytest.mark.parametrize("bench", ["memory"], indirect=True)
def test_a_guard_that_hung_when_the_session_was_lost_delays_no_revoked_of_the_term_that_follows(
    bench: Bench, eventually: Eventually
) -> None:
    member, go_on = bench.member("a", guard_timeout=LONG), threading.Event()

    def hang() -> Verdict:
        _wait(go_on)
        return Verdict(True)

    member.guard = hang
    member.elector.add_to_leader_lock_queue()
    eventually(lambda: member.asked == 1, what="its guard hangs")
    member.elector.lose_session()  # type: ignore[attr-defined]  # MemoryElector's
    eventually(lambda: member.elector.status().epoch == 2, what="it holds the lock again")
    assert member.told == []
    go_on.set()
    eventually(lambda: member.told == [("elected", 2)], what="it leads on the answer about this epoch")

    member.elector.abdicate("enough")

    eventually(lambda: member.told[:2] == [("elected", 2), ("revoked", 2)], what="revoked is called at once")


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Callable[[str], Member]]:
    """Makes single nodes with one epoch file, and ends them all."""
    made: list[Member] = []

    def make(name: str) -> Member:
        settings = {"root": "/alone", "requeue_backoff_max": timedelta(seconds=1)}
        made.append(Member("single", name, {"epoch_file": tmp_path / "epoch"}, settings))
        return made[-1]

    yield make
    for member in made:
        member.elector.close(LONG)


def test_a_single_node_with_an_epoch_file_goes_on_above_the_epochs_of_its_earlier_life(
    single: Callable[[str], Member], tmp_path: Path, eventually: Eventually
) -> None:
    epochs: list[int] = []
    for _ in range(3):
        member = single("a")
        on_disk: list[str] = []
        member.on_elected = lambda _leadership, seen=on_disk: seen.append((tmp_path / "epoch").read_text())  # type: ignore[misc]
        member.elector.add_to_leader_lock_queue()
        eventually(lambda member=member: len(member.terms) == 1)
        epochs.append(member.terms[0].epoch)
        assert on_disk == [f"{epochs[-1]}\n"], "on disk before elected is called"
        member.elector.close(LONG)

    assert epochs == sorted(set(epochs))


def test_a_second_single_node_on_the_same_epoch_file_is_refused_until_the_first_ends(
    single: Callable[[str], Member], eventually: Eventually
) -> None:
    first, second = single("a"), single("b")
    first.elector.add_to_leader_lock_queue()
    eventually(lambda: len(first.terms) == 1)

    with pytest.raises(ElectionStateError, match="another process uses"):
        second.elector.add_to_leader_lock_queue()

    first.elector.close(LONG)
    second.elector.add_to_leader_lock_queue()
    eventually(lambda: len(second.terms) == 1, what="the second leads")
    assert second.terms[0].epoch > first.terms[0].epoch
