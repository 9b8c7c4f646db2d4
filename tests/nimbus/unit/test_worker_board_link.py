"""The thread that performs instructions for the board, of a runner's attempt and of an executor's many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from nimbus.attempt import model as m
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptBoard, StoreUnavailableError
from nimbus.worker.attempt import board_link
from nimbus.worker.attempt.board_link import MAX_TOGETHER, BoardInstruction, BoardLink
from nimbus.worker.attempt.connections import OpenBoard
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.held_attempt import HeldAttempt
from nimbus.worker.pool import folder as executor_folder
from nimbus.worker.pool.folder import ExitRecords, exit_of, read_exits
from tests.nimbus.worker_bench import eventually

NOW = datetime(2026, 11, 29, tzinfo=UTC)
CLAIM = Claim(attempt="run1.task.1", claimed_at=NOW, nonce="ours")
END = End(attempt="run1.task.1", outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW, nonce="ours")


class _Held:
    """A call that waits for the test."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.begun.set()
        self.goes_on.wait(60)


class _Board:
    """Records calls. `trouble` is raised instead, once for each error in it."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.away = False
        self.trouble: list[Exception] = []
        self.defects: set[str] = set()
        """Calls that always fail."""
        self.watches: list[object] = []
        self.standing: Claim | None = CLAIM
        self.together: list[int] = []
        """Of how many attempts each request was."""
        self._holds: list[_Held] = []

    def hold(self) -> _Held:
        """Make the next call wait."""
        self._holds.append(_Held())
        return self._holds[-1]

    def _call(self, *calls: object) -> None:
        if self._holds:
            self._holds.pop().wait()
        if self.away:
            raise StoreUnavailableError("away")
        for what in calls:
            if str(what) in self.defects:
                raise KeyError(what)
        if self.trouble:
            raise self.trouble.pop(0)
        self.calls += calls
        self.together.append(len(calls))

    def fill(self, records: Sequence[Claim | End]) -> Sequence[Claim | End | None]:
        self._call(
            *("claim" if isinstance(record, Claim) else f"end of {record.attempt}" for record in records)
        )
        return [self.standing if record is CLAIM else record for record in records]

    def read_all(self, attempts: Mapping[AttemptId, Callable[[], None] | None]) -> Mapping[AttemptId, Slots]:
        self._call(*("read" if changed is None else "watch" for changed in attempts.values()))
        self.watches += attempts.values()
        return dict.fromkeys(attempts, Slots(claim=self.standing))

    def heartbeat(self, _: AttemptId, progress: Mapping[str, object]) -> None:
        self._call(progress)

    def keep_checkpoint(self, _: AttemptId, nonce: str, checkpoint: str) -> None:
        self._call((nonce, checkpoint))


def _attempt(number: int) -> HeldAttempt:
    name = f"run1.task.{number}"
    made = HeldAttempt(order=cast(Any, None), plan=cast(Any, None), folder=AttemptFolder(Path(name)))
    made.claim = CLAIM if number == 1 else replace(CLAIM, attempt=name)
    made.record = replace(END, attempt=name)
    return made


class _Link:
    """A link with its board, and what it reported about the first attempt."""

    def __init__(self, records: Path | None, vital: Collection[type[BoardInstruction]]) -> None:
        self.board, self.closed = _Board(), False
        self.trouble: Exception | None = None
        """Raised instead of a connection."""
        self.told: Queue[m.Event] = Queue()
        self.failed: Queue[Exception] = Queue()
        self.attempt = _attempt(1)
        self.link = BoardLink(
            "runner-board",
            self._open,
            lambda _, event: self.told.put(event),
            self.failed.put,
            vital=vital,
            exits=None if records is None else ExitRecords(records),
        )
        self.start = self.link.start

    def put(self, instruction: BoardInstruction | m.Record) -> None:
        self.link.put(self.attempt, instruction)

    def _open(self) -> OpenBoard:
        if self.trouble is not None:
            raise self.trouble
        return OpenBoard(cast(AttemptBoard, self.board), self._close)

    def _close(self) -> None:
        self.closed = True

    def hears(self) -> m.Event:
        return self.told.get(timeout=60)


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[_Link]:
    """That of a runner; with the parameter True, that of an executor."""
    monkeypatch.setattr(board_link, "_DEFECT_PAUSE_S", 0.05)
    is_pooled = getattr(request, "param", False)
    made = _Link(tmp_path / "exits" if is_pooled else None, () if is_pooled else (m.PutClaim, m.PutEnd))
    yield made
    made.link.close()
    assert made.closed == (made.trouble is None)


pooled = pytest.mark.parametrize("link", [True], indirect=True)


def test_end_goes_first_and_nothing_is_written_after_it(link: _Link) -> None:
    for instruction in (m.SendHeartbeat("{}"), m.KeepCheckpoint("1"), m.PutEnd()):
        link.put(instruction)
    link.start()

    assert link.hears() == m.EndAnswered("END says succeeded by runner")
    link.put(m.SendHeartbeat("{}"))
    link.put(m.ReadBoard())
    assert isinstance(link.hears(), m.BoardRead)
    assert link.board.calls == ["end of run1.task.1", "read"]


def test_newest_instruction_of_a_kind_replaces_those_that_wait_for_the_board(link: _Link) -> None:
    link.board.away = True
    with capture_logs() as said:
        link.start()
        link.put(m.SendHeartbeat('{"done": 1}'))
        eventually(lambda: said, "the board does not answer")
    for number in range(2, 9):
        link.put(m.SendHeartbeat(f'{{"done": {number}}}'))
        link.put(m.KeepCheckpoint(str(number)))
    link.board.away = False

    eventually(lambda: len(link.board.calls) == 2, "both are written")
    assert (said[0]["event"], said[0]["wanted"]) == ("board_unreachable", ["Beat"])
    assert sorted(map(str, link.board.calls)) == ["('ours', '8')", "{'done': 8}"]


def test_nothing_is_written_for_an_attempt_that_another_one_has(link: _Link) -> None:
    link.board.standing = Claim(attempt="run1.task.1", claimed_at=NOW, nonce="theirs")
    for instruction in (m.ReadBoard(), m.SendHeartbeat("{}"), m.KeepCheckpoint("1")):
        link.put(instruction)
    link.start()

    for _ in range(2):
        looked = link.hears()
        assert isinstance(looked, m.BoardRead)
        assert looked.holder is m.ClaimHolder.OTHER
        link.put(m.SendHeartbeat('{"done": 1}'))
        link.put(m.ReadBoard())
    assert isinstance(link.hears(), m.BoardRead)
    assert link.board.calls == ["read", "read", "read"]


def test_watch_is_not_lost_when_another_read_is_wanted(link: _Link) -> None:
    link.put(m.ReadBoard(watch=True))
    link.put(m.ReadBoard())
    link.start()

    assert isinstance(link.hears(), m.BoardRead)
    assert link.board.calls == ["watch"]


def test_claim_of_another_and_an_attempt_that_is_gone_are_told_apart(link: _Link) -> None:
    link.board.standing = None
    link.start()

    link.put(m.PutClaim())
    assert link.hears() == m.AttemptGone()
    link.board.standing = Claim(attempt="run1.task.1", claimed_at=NOW, nonce="theirs")
    link.put(m.PutClaim())
    answer = link.hears()

    assert isinstance(answer, m.ClaimAnswered)
    assert answer.holder is m.ClaimHolder.OTHER


def test_defect_while_the_driver_runs_is_reported_and_tried_again(link: _Link) -> None:
    link.board.trouble = [KeyError("slots")]
    with capture_logs() as said:
        link.start()
        link.put(m.ReadBoard())
        assert isinstance(link.hears(), m.BoardRead)

    assert [entry["event"] for entry in said] == ["board_link_failed"]


def test_defects_of_some_calls_leave_the_heartbeats(link: _Link) -> None:
    link.board.defects = {"read", "('ours', '1')"}
    for instruction in (m.ReadBoard(), m.KeepCheckpoint("1"), m.SendHeartbeat('{"done": 1}')):
        link.put(instruction)
    link.start()
    eventually(lambda: {"done": 1} in link.board.calls, "the first heartbeat")

    link.put(m.SendHeartbeat('{"done": 2}'))

    eventually(lambda: {"done": 2} in link.board.calls, "the next heartbeat")


def test_watch_of_each_read_is_the_same(link: _Link) -> None:
    link.start()
    for _ in range(2):
        link.put(m.ReadBoard(watch=True))
        assert isinstance(link.hears(), m.BoardRead)

    assert len(set(link.board.watches)) == 1


def test_claim_is_not_sent_any_more_after_an_order_to_leave(link: _Link) -> None:
    link.board.away, link.link.must_leave = True, True
    link.put(m.PutClaim())
    link.start()
    assert link.hears() == m.LeaveAsked()

    link.board.away = False
    link.put(m.SendHeartbeat("{}"))

    eventually(lambda: link.board.calls, "the board answers")
    assert link.board.calls == [{}]


@pytest.mark.parametrize("was_sent", [False, True])
def test_claim_is_not_sent_after_an_order_to_leave_also_if_the_board_answers_again(
    link: _Link, monkeypatch: pytest.MonkeyPatch, *, was_sent: bool
) -> None:
    def paused() -> Iterator[float]:  # the order comes in the pause after a request without an answer
        link.link.must_leave = True
        yield 0.0

    link.board.trouble = [StoreUnavailableError("away")] if was_sent else []
    link.link.must_leave = not was_sent
    monkeypatch.setattr(board_link, "pauses", paused)
    link.put(m.PutClaim())
    link.start()

    assert link.hears() == m.LeaveAsked()
    link.put(m.SendHeartbeat("{}"))
    eventually(lambda: link.board.calls, "the board answers")
    assert link.board.calls == [{}]


def test_claim_that_was_sent_again_counts_from_the_first_time(
    link: _Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((7.0, 8.0))
    monkeypatch.setattr(board_link, "boottime_s", lambda: next(times))
    link.board.trouble = [StoreUnavailableError("away")]
    link.start()

    link.put(m.PutClaim())

    assert link.hears() == m.ClaimAnswered(m.ClaimHolder.OURS, 7.0)


def test_order_to_leave_is_reported_while_the_board_does_not_answer(link: _Link) -> None:
    link.start()
    link.put(m.PutClaim())
    assert isinstance(link.hears(), m.ClaimAnswered)

    link.board.away, link.link.must_leave = True, True
    link.put(m.PutEnd())

    assert (link.hears(), link.hears()) == (m.LeaveAsked(), m.LeaveAsked())


def test_defect_while_the_attempt_is_claimed_ends_the_link(link: _Link) -> None:
    error = KeyError("slots")
    link.board.trouble = [error]
    link.start()

    link.put(m.PutClaim())

    assert link.failed.get(timeout=60) is error


@pooled
def test_defect_of_one_attempt_costs_no_other_its_end(link: _Link) -> None:
    link.board.defects = {"end of run1.task.2", "watch"}
    others = [_attempt(number) for number in range(2, 9)]
    for attempt in (link.attempt, *others):
        link.link.put(attempt, m.ReadBoard(watch=True))
        link.link.put(attempt, m.Record(m.Story()))

    with capture_logs() as said:
        link.start()
        ends = {f"end of {attempt.id}" for attempt in (link.attempt, *others)} - link.board.defects
        eventually(lambda: ends <= set(link.board.calls), "the other attempts end")
        link.board.defects = set()
        eventually(lambda: "end of run1.task.2" in link.board.calls, "the last one ends")

    assert said[0]["event"] == "board_link_failed"
    assert len(said[0]["attempts"]) == 8
    assert link.failed.empty()


@pooled
def test_instruction_that_failed_is_tried_again_apart_from_others(link: _Link) -> None:
    failed = _attempt(2)
    link.link._again_s[m.PutEnd, failed] = 0.0
    for attempt in (link.attempt, failed):
        link.link.put(attempt, m.PutEnd())

    link.start()

    eventually(lambda: len(link.board.calls) == 2, "both have ended")
    assert link.board.together == [1, 1]


def test_instruction_that_comes_while_one_of_its_kind_is_performed_is_performed_too(link: _Link) -> None:
    first = link.board.hold()
    link.start()
    link.put(m.SendHeartbeat('{"done": 1}'))
    assert first.begun.wait(60)

    link.put(m.SendHeartbeat('{"done": 2}'))
    first.goes_on.set()

    eventually(lambda: link.board.calls == [{"done": 1}, {"done": 2}], "both are written")


def test_connection_that_cannot_be_made_ends_the_link(link: _Link) -> None:
    link.trouble = KeyError("kind")

    link.start()

    assert link.failed.get(timeout=60) is link.trouble


@pooled
def test_claims_and_ends_of_many_attempts_go_together_and_before_the_rest(link: _Link) -> None:
    attempts = [_attempt(number) for number in range(1, 101)]
    for attempt in attempts:
        link.link.put(attempt, m.SendHeartbeat("{}"))
        link.link.put(attempt, m.ReadBoard())
        link.link.put(attempt, m.PutClaim())

    link.start()

    eventually(lambda: len(link.board.calls) == 300, "all are performed")
    assert link.board.together == [MAX_TOGETHER, 36, MAX_TOGETHER, 36, *[1] * 100]


@pooled
def test_end_waits_behind_one_heartbeat_at_most(link: _Link) -> None:
    beat = link.board.hold()
    link.start()
    for number in range(1, 101):
        link.link.put(_attempt(number), m.SendHeartbeat("{}"))
    assert beat.begun.wait(60)

    link.put(m.Record(m.Story()))
    beat.goes_on.set()

    assert link.hears() == m.Recorded()
    assert isinstance(link.hears(), m.EndAnswered)
    assert link.board.calls[:2] == [{}, "end of run1.task.1"]


@pooled
def test_exit_record_is_on_disk_while_the_board_is_away(link: _Link, tmp_path: Path) -> None:
    link.board.away = True
    link.start()
    link.put(m.SendHeartbeat("{}"))

    link.put(m.Record(m.Story()))

    assert link.hears() == m.Recorded()
    assert exit_of(tmp_path / "exits", CLAIM) == END
    other = replace(CLAIM, nonce="of another run")
    assert exit_of(tmp_path / "exits", other) is None


@pooled
def test_exit_records_are_removed_only_after_all_are_ends(
    link: _Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_folder, "_LARGE_BYTES", 0)
    link.board.defects = {"end of run1.task.2"}
    link.link.put(_attempt(2), m.Record(m.Story()))
    link.put(m.Record(m.Story()))
    link.start()

    eventually(lambda: "end of run1.task.1" in link.board.calls, "one has ended")
    assert "run1.task.2" in read_exits(tmp_path / "exits")

    link.board.defects = set()
    eventually(lambda: not read_exits(tmp_path / "exits"), "both have ended")
