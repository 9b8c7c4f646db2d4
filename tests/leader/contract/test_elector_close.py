"""Closing every Elector: slow closes, and several calls of close at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from leader import ElectionConfig, ElectionStateError, Leadership, LogJournal, Participant, Phase, Verdict
from leader.journal import Entry, Granted
from leader.local.single import SingleElector
from tests.leader.elector_bench import ALL, LONG, Bench, Member

Eventually = Callable[..., None]
A_WHILE_S = 0.3

every_kind = pytest.mark.parametrize("bench", ALL, indirect=True)


def _closing(member: Member) -> threading.Thread:
    thread = threading.Thread(target=member.elector.close, args=(LONG,), name="closes")
    thread.start()
    return thread


class Hanging(LogJournal):
    """Blocks the election's thread after a grant."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.go_on = threading.Event(), threading.Event()

    def record(self, entry: Entry) -> None:
        if isinstance(entry, Granted):
            self.hangs.set()
            self.go_on.wait(LONG.total_seconds())


@every_kind
def test_who_closes_leads_no_more_at_once_even_if_the_elections_thread_hangs(
    bench: Bench, eventually: Eventually
) -> None:
    journal = Hanging()
    member = bench.member("a", journal=journal)
    member.elector.add_to_leader_lock_queue()
    eventually(member.elector.is_leader, what="it leads")
    eventually(journal.hangs.is_set, what="the election's thread hangs")

    closing = _closing(member)
    try:
        eventually(lambda: not member.elector.is_leader(), within_s=60, what="it denies")
        assert member.elector.leadership() is None
        assert not journal.go_on.is_set()
    finally:
        journal.go_on.set()
        closing.join(LONG.total_seconds())


@every_kind
def test_a_second_close_waits_for_the_first_within_its_own_time(bench: Bench, eventually: Eventually) -> None:
    member = bench.member("a", handover_timeout=timedelta(seconds=8))
    member.elector.add_to_leader_lock_queue()
    eventually(lambda: bool(member.told), what="it leads")
    stops, stopped = threading.Event(), threading.Event()

    def stop_slowly(_leadership: Leadership) -> None:
        stops.set()
        stopped.wait(LONG.total_seconds())

    member.on_revoked = stop_slowly
    first = _closing(member)
    eventually(stops.is_set, what="its electable stops")
    second = _closing(member)

    member.elector.close(timedelta(seconds=A_WHILE_S))
    assert first.is_alive(), "a third one gives up when its own time is over"
    second.join(A_WHILE_S)
    assert second.is_alive(), "the first has not ended"
    stopped.set()
    for thread in (first, second):
        thread.join(LONG.total_seconds())
        assert not thread.is_alive()

    assert [word for word, _ in member.told] == ["elected", "revoked"]


@every_kind
def test_an_electable_that_closes_while_it_is_being_closed_does_not_wait_for_itself(
    bench: Bench, eventually: Eventually
) -> None:
    member = bench.member("a", handover_timeout=timedelta(seconds=8))
    member.elector.add_to_leader_lock_queue()
    eventually(lambda: bool(member.told), what="it leads")
    returned = threading.Event()

    def close_too(_leadership: Leadership) -> None:
        member.elector.close(LONG * 10)
        returned.set()

    member.on_revoked = close_too
    closing = _closing(member)

    eventually(returned.is_set, within_s=LONG.total_seconds(), what="its own call returns")
    closing.join(LONG.total_seconds())
    assert not closing.is_alive()


class Closing(LogJournal):
    """Closes its elector as soon as it leads, on the callback's thread."""

    def __init__(self) -> None:
        super().__init__()
        self.close: Callable[[], None] = lambda: None

    def record(self, entry: Entry) -> None:
        if isinstance(entry, Granted):
            self.close()


@every_kind
def test_who_closes_within_its_journal_comes_to_its_end_soon(bench: Bench, eventually: Eventually) -> None:
    journal = Closing()
    member = bench.member("a", journal=journal)
    journal.close = lambda: member.elector.close(LONG)

    member.elector.add_to_leader_lock_queue()

    eventually(lambda: member.told == [("elected", 1), ("revoked", 1)], what="it led, and leads no more")
    eventually(lambda: member.elector.status().phase is Phase.CLOSED, what="it has ended")


@every_kind
@pytest.mark.parametrize("call", ["guard", "elected", "revoked"])
def test_who_closes_within_a_callback_comes_back_and_is_told_of_the_end_once(
    bench: Bench, eventually: Eventually, call: str
) -> None:
    member = bench.member("a", handover_timeout=timedelta(milliseconds=200))
    returned = threading.Event()

    def close(_leadership: Leadership | None = None) -> None:
        member.elector.close(LONG)
        returned.set()

    def guard() -> Verdict:
        if call == "guard":
            close()
        return Verdict(True)

    member.guard = guard
    if call == "elected":
        member.on_elected = close
    elif call == "revoked":
        member.on_revoked = close
    member.elector.add_to_leader_lock_queue()
    if call == "revoked":
        eventually(lambda: member.told == [("elected", 1)], what="it leads")
        member.elector.abdicate("enough")

    eventually(returned.is_set, within_s=LONG.total_seconds() / 2, what="its own call returns")
    told = [] if call == "guard" else [("elected", 1), ("revoked", 1)]
    eventually(lambda: member.told == told, what="no call for a term that it did not lead")
    assert member.elector.status().phase is Phase.CLOSED
    assert member.elector.get_leader() is None


@every_kind
@pytest.mark.parametrize("refuses", ["leader-callbacks", "leader-election"])
def test_without_room_for_one_of_its_threads_it_has_none_and_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    member = bench.member("a")
    before, start = set(threading.enumerate()), threading.Thread.start

    def start_most(thread: threading.Thread) -> None:
        if thread.name == refuses:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_most)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            member.elector.add_to_leader_lock_queue()

    for thread in set(threading.enumerate()) - before:
        thread.join(LONG.total_seconds())
        assert not thread.is_alive()
    with pytest.raises(ElectionStateError, match="closed"):
        member.elector.add_to_leader_lock_queue()


@every_kind
def test_without_room_for_a_thread_it_is_closed_and_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = bench.member("a")

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            member.elector.add_to_leader_lock_queue()

    with pytest.raises(ElectionStateError, match="closed"):
        member.elector.add_to_leader_lock_queue()


class Slow:
    """Stops slowly."""

    def __init__(self) -> None:
        self.leads, self.stops, self.stopped = threading.Event(), threading.Event(), threading.Event()

    def elected(self, leadership: Leadership) -> None:
        self.leads.set()

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.stops.set()
        self.stopped.wait(LONG.total_seconds())


def _single(electable: Slow, epoch_file: Path) -> SingleElector:
    return SingleElector(
        config=ElectionConfig(root="/e", handover_timeout=timedelta(seconds=8)),
        participant=Participant("a"),
        guard=lambda: Verdict(True),
        electable=electable,
        epoch_file=epoch_file,
    )


def test_a_second_close_in_a_hurry_does_not_let_another_have_the_epoch_file(
    tmp_path: Path, eventually: Eventually
) -> None:
    slow = Slow()
    elector, another = _single(slow, tmp_path / "epoch"), _single(Slow(), tmp_path / "epoch")
    elector.add_to_leader_lock_queue()
    eventually(slow.leads.is_set, what="it leads")
    first = threading.Thread(target=elector.close, args=(LONG,), name="closes")
    first.start()
    eventually(slow.stops.is_set, what="its electable stops")

    elector.close(timedelta(0))

    with pytest.raises(ElectionStateError):
        another.add_to_leader_lock_queue()
    slow.stopped.set()
    first.join(LONG.total_seconds())
    another.add_to_leader_lock_queue()
    another.close(LONG)
