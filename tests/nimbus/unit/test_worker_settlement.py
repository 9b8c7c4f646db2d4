"""A worker's reports about attempts whose runner has ended, and a leader that acts in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker import process_executor, settlement
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host import procfs
from nimbus.worker.host.identity import host_id
from nimbus.worker.host.procfs import ProcessId
from tests.nimbus.bench_board import BenchBoard
from tests.nimbus.worker_bench import Bench

ATTEMPT = "run1.task.1"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
WORKER = WorkerId("w1")


class WatchedBoard(BenchBoard):
    """A board with a leader that reads after each write, and closes fenced attempts without END."""

    def claim(self, claim: Claim) -> Claim:
        standing = super().claim(claim)
        slots = self.read(AttemptId.parse(claim.attempt))
        if standing.is_fenced and slots.end is None:
            end = End(
                attempt=claim.attempt,
                outcome=Outcome.FENCED,
                written_by="leader",
                ended_at=NOW,
                reason="closed before a driver claimed it",
            )
            self.end(end)
        return standing


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.board.close()
    made.board = WatchedBoard(tmp_path / "board.db")
    yield made
    made.close()


def test_reason_of_a_refusal_reaches_a_leader_that_looks_after_each_write(bench: Bench) -> None:
    order = bench.order("absent.py")

    settlement.refuse(bench.board, order, WORKER, "the release has no file absent.py", NOW)

    end = bench.slots().end
    assert end is not None
    assert (end.outcome, end.written_by) == (Outcome.REFUSED, "worker")
    assert end.reason == "the release has no file absent.py"


def test_last_words_of_a_runner_reach_a_leader_that_looks_after_each_write(bench: Bench) -> None:
    folder = bench.folder()
    folder.create(bench.order("task.py"))
    folder.runner_log.write_text("no module named spark\n")

    record = process_executor.ending_of_the_dead(folder, bench.board, WORKER, NOW)

    assert record is not None
    assert record == folder.exit_record()
    assert "no module named spark" in record.reason
    assert bench.slots().end == record


def test_order_to_reap_of_an_earlier_run_ends_no_attempt_of_a_later_one(bench: Bench) -> None:
    order = bench.order("task.py")
    claim = Claim(attempt=ATTEMPT, worker=WORKER, host=host_id(), claimed_at=NOW, nonce="first")
    bench.board.claim(replace(claim, nonce="second"))

    assert bench.collect(replace(order, claim=claim))

    assert bench.slots().end is None


def test_dead_runner_is_reported_lost_under_its_own_claim(bench: Bench) -> None:
    folder = bench.folder()
    folder.create(bench.order("task.py"))
    bench.board.claim(Claim(attempt=ATTEMPT, worker=WORKER, host=host_id(), claimed_at=NOW, nonce="first"))

    record = process_executor.ending_of_the_dead(folder, bench.board, WORKER, NOW)

    assert record is not None
    assert (record.outcome, record.nonce) == (Outcome.LOST, "first")


def test_refusal_that_was_written_before_bears_the_nonce_that_stands(bench: Bench) -> None:
    """For example after a lost answer, or a kill of the worker between the slots and its folder."""
    folder = bench.folder()
    folder.create(bench.order("task.py"))
    settlement.refuse(bench.board, folder.order(), WORKER, "no Java", NOW)

    record = process_executor.ending_of_the_dead(folder, bench.board, WORKER, NOW)

    standing = bench.slots().claim
    assert record is not None
    assert standing is not None
    assert record.nonce == standing.nonce is not None


def _left_by(bench: Bench, **claim: Any) -> tuple[Assignment, AttemptFolder]:
    """An attempt of worker w9, whose runner and worker have ended; and the order to reap it."""
    order = bench.order("task.py")
    folder = bench.folder(worker="w9")
    folder.create(order)
    fields = {"folder": str(folder.path), "nonce": "first", **claim}
    standing = Claim(attempt=ATTEMPT, worker=WorkerId("w9"), host=host_id(), claimed_at=NOW, **fields)
    bench.board.claim(standing)
    return replace(order, kind=AssignmentKind.REAP, claim=standing), folder


def _success(**fields: Any) -> End:
    end = End(attempt=ATTEMPT, outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW, nonce="first")
    return replace(end, **fields)


def test_reaper_delivers_the_exit_record_that_another_worker_of_the_host_could_not(bench: Bench) -> None:
    order, folder = _left_by(bench)
    record = folder.record_exit(_success(output="bench/run1/task/1"))

    assert bench.collect(order)

    assert bench.slots().end == record
    assert not folder.is_delivered, "its worker stores the log when it starts"


@pytest.mark.parametrize(
    "record",
    [_success(nonce="zeroth"), _success(attempt="run1.other.1"), None],
    ids=["of an earlier run", "of another attempt", "none"],
)
def test_reaper_writes_lost_when_the_folder_holds_no_record_of_the_claim(
    bench: Bench, record: End | None
) -> None:
    order, folder = _left_by(bench)
    if record is not None:
        folder.record_exit(record)

    assert bench.collect(order)

    end = bench.slots().end
    assert end is not None
    assert end.outcome is Outcome.LOST


@pytest.mark.parametrize(
    "place", [None, "", "w9/attempts/run1.task.1", "/proc/self", "/nowhere/run1.task.1", "/\0/run1.task.1"]
)
def test_reaper_writes_lost_when_the_claim_names_no_folder_of_the_attempt(
    bench: Bench, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.root)
    order, folder = _left_by(bench, folder=place)
    folder.record_exit(_success())

    assert bench.collect(order)

    end = bench.slots().end
    assert end is not None
    assert end.outcome is Outcome.LOST


def test_reaper_writes_lost_when_the_exit_record_cannot_be_read(bench: Bench) -> None:
    order, folder = _left_by(bench)
    folder.exit_file.write_bytes(b"{broken")

    assert bench.collect(order)

    end = bench.slots().end
    assert end is not None
    assert end.outcome is Outcome.LOST


RUNNER = """
import subprocess
print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid, flush=True)
input()
"""


@dataclass(frozen=True)
class Untagged:
    """A runner whose tag is not visible, as right after a fork, and its child processes."""

    process: subprocess.Popen[str]
    started: ProcessId

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def untagged() -> Iterator[Untagged]:
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdout is not None
        started = int(process.stdout.readline())
        ticks = procfs.start_ticks(started)
        assert ticks is not None
        runner = Untagged(process, ProcessId(started, ticks))
        try:
            yield runner
        finally:
            runner.end()
            procfs.kill(runner.started)


def _locked_by(untagged: Untagged, folder: AttemptFolder) -> None:
    ticks = procfs.start_ticks(untagged.process.pid)
    assert ticks is not None
    lock = folder.lock.take(ProcessId(untagged.process.pid, ticks))
    assert lock is not None
    os.close(lock)


def _claimed_by(untagged: Untagged, bench: Bench) -> Assignment:
    """The order to reap an attempt that the worker has claimed, according to the attempt's folder."""
    order, folder = _left_by(bench, pid=1, start_ticks=1)
    _locked_by(untagged, folder)
    assert order.claim is not None
    folder.record_claim(order.claim)
    return order


def test_runner_whose_tag_does_not_show_is_not_called_lost_while_it_lives(
    bench: Bench, untagged: Untagged
) -> None:
    order = _claimed_by(untagged, bench)

    assert not bench.collect(order)
    assert bench.slots().end is None

    untagged.end()
    assert bench.collect(order)
    end = bench.slots().end
    assert end is not None
    assert end.outcome is Outcome.LOST


def test_reaper_kills_what_a_dead_runner_left_in_its_session_without_a_tag(
    bench: Bench, untagged: Untagged
) -> None:
    order = _claimed_by(untagged, bench)
    untagged.end()

    assert bench.collect(order)

    assert not procfs.is_alive(untagged.started)


def test_what_a_dead_runner_left_is_killed_even_if_its_session_cannot_be_read(
    bench: Bench, untagged: Untagged
) -> None:
    folder = bench.folder()
    folder.create(bench.order("task.py"))
    _locked_by(untagged, folder)
    folder.session_file.write_bytes(b"{broken")
    untagged.end()

    with pytest.raises(ValueError, match="property name"):
        process_executor.ending_of_the_dead(folder, bench.board, WORKER, NOW)

    assert not procfs.is_alive(untagged.started)
