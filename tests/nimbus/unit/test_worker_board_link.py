"""The thread that performs a runner's instructions for the board."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from nimbus.attempt import model as m
from nimbus.domain.ids import AttemptId
from nimbus.domain.slots import Claim, End, Slots
from nimbus.domain.task_run import Outcome
from nimbus.ports import AttemptBoard, AttemptWithdrawnError, StoreUnavailableError
from nimbus.worker import board_link
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.board_link import BoardLink
from nimbus.worker.connections import OpenBoard
from nimbus.worker.held_attempt import HeldAttempt
from tests.nimbus.worker_bench import eventually

NOW = datetime(2026, 11, 29, tzinfo=UTC)
CLAIM = Claim(attempt="run1.task.1", claimed_at=NOW, nonce="ours")
END = End(attempt="run1.task.1", outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW, nonce="ours")


class _Board:
    """Records calls. `trouble` is raised instead, once for each error in it."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.away = False
        self.trouble: list[Exception] = []
        self.defects: set[str] = set()
        """Calls that always fail."""
        self.watches: list[object] = []
        self.standing = CLAIM

    def _call(self, what: object) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        if str(what) in self.defects:
            raise KeyError(what)
        if self.trouble:
            raise self.trouble.pop(0)
        self.calls.append(what)

    def claim(self, claim: Claim) -> Claim:
        self._call("claim")
        return self.standing if claim is CLAIM else claim

    def end(self, end: End) -> End:
        self._call("end")
        return end

    def read(self, _: AttemptId, changed: Callable[[], None] | None) -> Slots:
        self._call("watch" if changed is not None else "read")
        self.watches.append(changed)
        return Slots(claim=self.standing)

    def beat(self, _: AttemptId, progress: Mapping[str, object]) -> None:
        self._call(progress)

    def keep_checkpoint(self, _: AttemptId, nonce: str, checkpoint: str) -> None:
        self._call((nonce, checkpoint))


class _Link:
    """A link with its board, and what it reported."""

    def __init__(self) -> None:
        self.board, self.closed = _Board(), False
        self.told: Queue[m.Event] = Queue()
        self.failed: Queue[Exception] = Queue()
        self.attempt = HeldAttempt(
            order=cast(Any, None), plan=cast(Any, None), folder=AttemptFolder(Path("run1.task.1"))
        )
        self.attempt.claim, self.attempt.record = CLAIM, END
        self.link = BoardLink(self.attempt, self._open, self.told.put, self.failed.put)
        self.put, self.start = self.link.put, self.link.start

    def _open(self) -> OpenBoard:
        return OpenBoard(cast(AttemptBoard, self.board), self._close)

    def _close(self) -> None:
        self.closed = True

    def hears(self) -> m.Event:
        return self.told.get(timeout=30)


@pytest.fixture
def link() -> Iterator[_Link]:
    made = _Link()
    yield made
    made.link.close()
    assert made.closed


def test_end_goes_first_and_nothing_is_written_after_it(link: _Link) -> None:
    for instruction in (m.Beat("{}"), m.Keep("1"), m.PutEnd()):
        link.put(instruction)
    link.start()

    assert link.hears() == m.EndAnswered("END says succeeded by runner")
    link.put(m.Beat("{}"))
    link.put(m.Look())
    assert isinstance(link.hears(), m.Looked)
    assert link.board.calls == ["end", "read"]


def test_newest_instruction_of_a_kind_replaces_those_that_wait_for_the_board(link: _Link) -> None:
    link.board.away = True
    with capture_logs() as said:
        link.start()
        link.put(m.Beat('{"done": 1}'))
        eventually(lambda: said, "the board does not answer")
    for number in range(2, 9):
        link.put(m.Beat(f'{{"done": {number}}}'))
        link.put(m.Keep(str(number)))
    link.board.away = False

    eventually(lambda: len(link.board.calls) == 2, "both are written")
    assert (said[0]["event"], said[0]["wanted"]) == ("board_unreachable", "beat")
    assert sorted(map(str, link.board.calls)) == ["('ours', '8')", "{'done': 8}"]


def test_nothing_is_written_for_an_attempt_that_another_one_has(link: _Link) -> None:
    link.board.standing = Claim(attempt="run1.task.1", claimed_at=NOW, nonce="theirs")
    for instruction in (m.Look(), m.Beat("{}"), m.Keep("1")):
        link.put(instruction)
    link.start()

    for _ in range(2):
        looked = link.hears()
        assert isinstance(looked, m.Looked)
        assert looked.holder is m.Holder.OTHER
        link.put(m.Beat('{"done": 1}'))
        link.put(m.Look())
    assert isinstance(link.hears(), m.Looked)
    assert link.board.calls == ["read", "read", "read"]


def test_watch_is_not_lost_when_another_read_is_wanted(link: _Link) -> None:
    link.put(m.Look(watch=True))
    link.put(m.Look())
    link.start()

    assert isinstance(link.hears(), m.Looked)
    assert link.board.calls == ["watch"]


def test_claim_of_another_and_an_attempt_that_is_gone_are_told_apart(link: _Link) -> None:
    link.board.trouble = [AttemptWithdrawnError("run1.task.1")]
    link.board.standing = Claim(attempt="run1.task.1", claimed_at=NOW, nonce="theirs")
    link.start()

    link.put(m.Claim())
    assert link.hears() == m.Withdrawn()
    link.put(m.Claim())
    answer = link.hears()

    assert isinstance(answer, m.ClaimAnswered)
    assert answer.holder is m.Holder.OTHER


def test_defect_while_the_driver_runs_is_reported_and_tried_again(link: _Link) -> None:
    link.board.trouble = [KeyError("slots")]
    with capture_logs() as said:
        link.start()
        link.put(m.Look())
        assert isinstance(link.hears(), m.Looked)

    assert [entry["event"] for entry in said] == ["board_link_failed"]


def test_defects_of_some_calls_leave_the_heartbeats(link: _Link) -> None:
    link.board.defects = {"read", "('ours', '1')"}
    for instruction in (m.Look(), m.Keep("1"), m.Beat('{"done": 1}')):
        link.put(instruction)
    link.start()
    eventually(lambda: {"done": 1} in link.board.calls, "the first heartbeat")

    link.put(m.Beat('{"done": 2}'))

    eventually(lambda: {"done": 2} in link.board.calls, "the next heartbeat")


def test_watch_of_each_read_is_the_same(link: _Link) -> None:
    link.start()
    for _ in range(2):
        link.put(m.Look(watch=True))
        assert isinstance(link.hears(), m.Looked)

    assert len(set(link.board.watches)) == 1


def test_claim_is_not_sent_any_more_after_an_order_to_leave(link: _Link) -> None:
    link.board.away, link.link.must_leave = True, True
    link.put(m.Claim())
    link.start()
    assert link.hears() == m.LeaveAsked()

    link.board.away = False
    link.put(m.Beat("{}"))

    eventually(lambda: link.board.calls, "the board answers")
    assert link.board.calls == [{}]


def test_claim_that_was_sent_again_counts_from_the_first_time(
    link: _Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((7.0, 8.0))
    monkeypatch.setattr(board_link, "boottime_s", lambda: next(times))
    link.board.trouble = [StoreUnavailableError("away")]
    link.start()

    link.put(m.Claim())

    assert link.hears() == m.ClaimAnswered(m.Holder.OURS, 7.0)


def test_order_to_leave_is_reported_while_the_board_does_not_answer(link: _Link) -> None:
    link.start()
    link.link.must_leave = True
    link.put(m.Claim())
    assert isinstance(link.hears(), m.ClaimAnswered)

    link.board.away = True
    link.put(m.PutEnd())

    assert (link.hears(), link.hears()) == (m.LeaveAsked(), m.LeaveAsked())


def test_defect_while_the_attempt_is_claimed_ends_the_link(link: _Link) -> None:
    error = KeyError("slots")
    link.board.trouble = [error]
    link.start()

    link.put(m.Claim())

    assert link.failed.get(timeout=30) is error
