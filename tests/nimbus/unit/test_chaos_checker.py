"""The checkers of the chaos tests can fail: each law is broken here once, and they report it."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.nimbus.chaos.checker import check_run, check_undisturbed, check_versions
from tests.nimbus.chaos.journal import BrokenJournalError, Execution, read_journal
from tests.nimbus.chaos.laws import audit, ends
from tests.nimbus.chaos.txnlog import (
    BAD_VERSION,
    Operation,
    Transaction,
    UnreadableLogError,
    parse_file,
    read_log,
)

ROOT = "/nimbus"
A, B = 0xA, 0xB


def _run(**attempts: list[str | None]) -> dict[str, Any]:
    tasks = [
        {"name": name, "attempts": [{"number": n, "outcome": o} for n, o in enumerate(outcomes, 1)]}
        for name, outcomes in attempts.items()
    ]
    return {"id": "r1", "state": "succeeded", "reason": "", "tasks": tasks}


def _ends(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{run['id']}.{task['name']}.{attempt['number']}": {"outcome": attempt["outcome"]}
        for task in run["tasks"]
        for attempt in task["attempts"]
    }


def _ran(attempt: str, start: int, last: int, *, ended: bool = True, pid: int = 1) -> Execution:
    return Execution(attempt=attempt, pid=pid, start_ns=start, last_ns=last, ended=ended)


RUN = _run(one=["lost", "succeeded"], two=["succeeded"])
GOOD = [_ran("r1.one.1", 1, 5, ended=False), _ran("r1.one.2", 6, 9), _ran("r1.two.1", 2, 8)]


def test_good_run_has_no_fault() -> None:
    assert check_run(RUN, GOOD, _ends(RUN)) == []


def test_failed_run_is_told() -> None:
    run = RUN | {"state": "failed", "reason": "failed: two"}

    assert check_run(run, GOOD, _ends(RUN)) == ["the run is failed: failed: two"]


def test_second_successful_end_of_a_task_is_told() -> None:
    run = _run(one=["succeeded", "succeeded"], two=["succeeded"])
    journal = [replace(GOOD[0], ended=True), *GOOD[1:]]

    faults = check_run(run, journal, _ends(run))

    assert "one has 2 successful ENDs, not one" in faults
    assert "r1.one.2 was executed although r1.one.1 had succeeded" in faults


def test_missing_end_is_told_even_if_the_schedulers_believe_in_it() -> None:
    faults = check_run(RUN, GOOD, {key: end for key, end in _ends(RUN).items() if key != "r1.two.1"})

    assert "two has 0 successful ENDs, not one" in faults
    assert "r1.two.1 is succeeded in the run and None by its END" in faults


def test_attempt_that_was_executed_twice_is_told() -> None:
    faults = check_run(RUN, [*GOOD, _ran("r1.two.1", 20, 25, pid=2)], _ends(RUN))

    assert "r1.two.1 was executed 2 times" in faults


def test_attempts_of_one_task_that_overlap_are_told_and_those_of_two_tasks_are_not() -> None:
    journal = [_ran("r1.one.1", 0, 8_000_000, ended=False), _ran("r1.one.2", 6_000_000, 9_000_000), GOOD[2]]

    assert check_run(RUN, journal, _ends(RUN)) == ["r1.one.1 and r1.one.2 ran at the same time for 2 ms"]


def test_execution_after_success_is_told() -> None:
    faults = check_run(RUN, [*GOOD, _ran("r1.two.2", 20, 25)], _ends(RUN))

    assert faults == ["r1.two.2 was executed although r1.two.1 had succeeded"]


def test_success_without_work_is_told() -> None:
    faults = check_run(RUN, [GOOD[0], GOOD[1], replace(GOOD[2], ended=False)], _ends(RUN))

    assert faults == ["r1.two.1 has a successful END and did not come to its end"]


def test_success_of_a_task_without_a_journal_need_not_be_in_it() -> None:
    journal = [each for each in GOOD if each.task != "two"]

    assert check_run(RUN, journal, _ends(RUN)) != []
    assert check_run(RUN, journal, _ends(RUN), silent={"two"}) == []


def test_other_runs_in_the_same_journal_do_not_count() -> None:
    assert check_run(RUN, [*GOOD, _ran("r2.two.1", 3, 4), _ran("r2.two.1", 3, 4)], _ends(RUN)) == []


def test_undisturbed_run_has_one_whole_execution_of_each_task() -> None:
    whole = [GOOD[1], GOOD[2]]

    assert check_undisturbed(RUN, whole) == []
    assert check_undisturbed(RUN, GOOD) == ["one ran 2 times, not once", "r1.one.1 did not come to its end"]
    assert check_undisturbed(RUN, whole[:1]) == ["two ran 0 times, not once"]


def _line(event: str, at_ns: int, attempt: str = "r1.one.1", pid: int = 7) -> str:
    return json.dumps({"attempt": attempt, "pid": pid, "event": event, "at_ns": at_ns})


def test_journal_tells_what_lived_when_and_whether_it_ended() -> None:
    lines = [_line("start", 1), _line("alive", 2), _line("start", 3, pid=8), _line("end", 4, pid=8)]

    assert read_journal(lines) == [
        _ran("r1.one.1", 1, 2, ended=False, pid=7),
        _ran("r1.one.1", 3, 4, pid=8),
    ]


def test_second_start_in_a_process_of_the_same_number_is_a_second_execution() -> None:
    assert len(read_journal([_line("start", 1), _line("start", 9)])) == 2


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", _line("alive", 1), _line("born", 1), _line("start", 1, "x")]
)
def test_journal_that_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(BrokenJournalError):
        read_journal([line])


class Log:
    """Writes a log of transactions with ZooKeeper's numbering."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []

    def add(self, session: int, *operations: Operation, kind: str = "multi") -> None:
        zxid = len(self.transactions) + 1
        self.transactions.append(
            Transaction(zxid=zxid, session=session, time_ms=zxid, kind=kind, operations=operations)
        )

    def raise_epoch(self, session: int, epoch: int, latch: str = "") -> None:
        data = json.dumps({"epoch": epoch, "latch": latch}).encode()
        self.add(
            session, Operation(kind="check", path=f"{ROOT}/leader-lock/x"), _op("setData", "epoch", data)
        )

    def write(self, session: int, operation: Operation) -> None:
        self.add(session, FENCE, operation)


def _op(kind: str, path: str, data: bytes = b"") -> Operation:
    return Operation(kind=kind, path=f"{ROOT}/{path}", data=data)


FENCE = _op("check", "epoch")
LEADERS_WRITES = [
    _op("create", "runs/r1"),
    _op("setData", "runs/r1"),
    _op("delete", "pipelines/p"),
    _op("create", "outcomes/cmd-1"),
    _op("delete", "commands/cmd-1"),
    _op("create", "assignments/w1/r1.one.1"),
    _op("create", "attempts/r1.one.1"),
    _op("create", "attempts/r1.one.1/stop"),
    _op("delete", "attempts/r1.one.1/end"),
    _op("delete", "attempts/r1.one.1/claim-5eed"),
    _op("create", "attempts/r1.one.1/claim", b'{"fenced_by_epoch": 3}'),
    _op("create", "attempts/r1.one.1/end", b'{"written_by": "leader"}'),
    _op("create", "leader", b'{"id": "s1", "epoch": 1}'),
]
ANYBODYS_WRITES = [
    _op("create", "runs"),
    _op("create", "assignments/w1"),
    _op("create", "commands/cmd-1"),
    _op("setData", "schedulers/s1"),
    _op("create", "attempts/r1.one.1/beat"),
    _op("delete", "attempts/r1.one.1/beat"),
    _op("create", "attempts/r1.one.1/claim", b'{"fenced_by_epoch": null, "pid": 3}'),
    _op("create", "attempts/r1.one.1/claim", b'{"fenced_by_epoch": 0}'),
    _op("create", "attempts/r1.one.1/claim-5eed"),
    _op("create", "attempts/r1.one.1/end", b'{"written_by": "runner"}'),
    _op("delete", "leader"),
    Operation(kind="create", path="/elsewhere/runs/r1"),
]


@pytest.mark.parametrize("operation", LEADERS_WRITES, ids=lambda op: f"{op.kind} {op.path}")
def test_leaders_write_by_a_deposed_session_is_a_violation(operation: Operation) -> None:
    log = Log()
    log.raise_epoch(A, 1)
    log.write(A, operation)
    log.raise_epoch(B, 2)
    log.write(A, operation)

    ledger = audit(log.transactions, ROOT)

    assert [(v.zxid, v.session, v.holder, v.path) for v in ledger.violations] == [(4, A, B, operation.path)]
    assert ledger.leader_writes == 2
    assert [each.epoch for each in ledger.raised] == [1, 2]


@pytest.mark.parametrize("operation", LEADERS_WRITES, ids=lambda op: f"{op.kind} {op.path}")
def test_leaders_write_without_a_check_of_the_epoch_is_a_violation(operation: Operation) -> None:
    log = Log()
    log.raise_epoch(A, 1)
    log.add(A, operation, kind=operation.kind)

    assert [v.why for v in audit(log.transactions, ROOT).violations] == ["no check of the epoch"]


@pytest.mark.parametrize("operation", ANYBODYS_WRITES, ids=lambda op: f"{op.kind} {op.path}")
def test_what_anybody_may_write_is_no_violation(operation: Operation) -> None:
    log = Log()
    log.raise_epoch(A, 1)
    log.add(B, operation, kind=operation.kind)

    assert audit(log.transactions, ROOT).violations == []


def test_epoch_that_a_leader_raised_for_its_successor_is_the_successors() -> None:
    log = Log()
    log.add(A, _op("create", "leader-lock/a"), kind="create")
    log.add(B, _op("create", "leader-lock/b"), kind="create")
    log.raise_epoch(A, 1, latch="a")
    log.raise_epoch(A, 2, latch="b")  # stepping down
    log.write(B, _op("create", "leader", b'{"id": "s2", "epoch": 2}'))
    log.write(A, _op("create", "runs/r1"))

    ledger = audit(log.transactions, ROOT)

    assert [(v.session, v.holder, v.path) for v in ledger.violations] == [(A, B, f"{ROOT}/runs/r1")]
    assert [(each.session, each.epoch) for each in ledger.raised] == [(A, 1), (B, 2)]


def test_write_before_any_epoch_is_a_violation() -> None:
    log = Log()
    log.write(A, _op("create", "runs/r1"))

    assert len(audit(log.transactions, ROOT).violations) == 1


def test_refused_write_of_a_zombie_is_counted_and_is_no_violation() -> None:
    log = Log()
    log.raise_epoch(A, 1)
    log.raise_epoch(B, 2)
    log.add(A, Operation(kind="error", error=BAD_VERSION), Operation(kind="error", error=-2))
    log.add(B, FENCE, Operation(kind="error", error=-110))  # a slot was filled: not a zombie

    ledger = audit(log.transactions, ROOT)

    assert (ledger.violations, ledger.fenced_off, ledger.leader_writes) == ([], 1, 0)


def test_ledger_names_leaders_in_order() -> None:
    log = Log()
    for session, epoch, name in ((A, 1, "s1"), (B, 2, "s2")):
        log.raise_epoch(session, epoch)
        log.write(session, _op("create", "leader", json.dumps({"id": name, "epoch": epoch}).encode()))

    assert [(each.id, each.epoch) for each in audit(log.transactions, ROOT).named] == [("s1", 1), ("s2", 2)]


def test_ends_are_those_that_were_committed() -> None:
    log = Log()
    end = _op("create", "attempts/r1.one.1/end", b'{"outcome": "succeeded"}')
    log.add(A, FENCE, end, Operation(kind="error", error=-110))
    assert ends(log.transactions, ROOT) == {}

    log.add(A, end, kind="create")
    assert ends(log.transactions, ROOT) == {"r1.one.1": {"outcome": "succeeded"}}


def _entry(zxid: int, number: int, body: bytes) -> bytes:
    entry = struct.pack(">qiqqi", A, 1, zxid, 1_000, number) + body
    return struct.pack(">qi", zlib.adler32(entry), len(entry)) + entry + b"B"


def _text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


HEADER = b"ZKLG" + struct.pack(">iq", 2, 0)
CREATE = _text("/nimbus/runs/r1") + _text("{}") + struct.pack(">i", 0) + b"\0" + struct.pack(">i", 1)


def test_log_file_is_read_up_to_the_zeros_that_the_server_put_there() -> None:
    part = struct.pack(">i", 2) + _text("/nimbus/runs/r1")
    multi = struct.pack(">ii", 1, 2) + struct.pack(">i", len(part) - 4) + part[4:]

    first, second = parse_file(HEADER + _entry(1, 1, CREATE) + _entry(2, 14, multi) + bytes(64), "log.1")

    assert first == Transaction(
        zxid=1,
        session=A,
        time_ms=1_000,
        kind="create",
        operations=(Operation(kind="create", path="/nimbus/runs/r1", data=b"{}"),),
    )
    assert second.operations == (Operation(kind="delete", path="/nimbus/runs/r1"),)


def test_damaged_log_is_refused_but_for_an_entry_that_is_being_written() -> None:
    good, damaged = _entry(1, 1, CREATE), bytearray(_entry(2, 1, CREATE))
    damaged[30] ^= 1

    assert len(list(parse_file(HEADER + good + bytes(damaged) + bytes(64), "log.1"))) == 1
    with pytest.raises(UnreadableLogError, match="damaged"):
        list(parse_file(HEADER + bytes(damaged) + good, "log.1"))
    with pytest.raises(UnreadableLogError, match="no transaction log"):
        list(parse_file(b"PK\3\4 and more", "log.1"))
    with pytest.raises(UnreadableLogError, match="type 99"):
        list(parse_file(HEADER + _entry(1, 99, b""), "log.1"))


def test_files_of_a_log_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "log.a").write_bytes(HEADER + _entry(10, 1, CREATE))
    (tmp_path / "log.9").write_bytes(HEADER + _entry(9, 1, CREATE) + bytes(32))

    assert [each.zxid for each in read_log(tmp_path)] == [9, 10]
    assert [each.zxid for each in read_log(tmp_path, after=9)] == [10]


def test_versions_of_all_successes_are_good() -> None:
    versions = [{"source": "r1.one.2", "task": "one"}, {"source": "r1.one.2", "task": "two"}]

    assert check_versions(versions, {"one": "one", "two": "one"}, [RUN]) == []


def test_missing_and_doubled_and_invented_versions_are_told() -> None:
    versions = [{"source": "r1.two.1", "task": "two"}] * 2 + [{"source": "r1.one.1", "task": "one"}]

    assert check_versions(versions, {"one": "one", "two": "two"}, [RUN]) == [
        "r1.two.1 by two was published 2 times",
        "r1.one.2 by one is not published",
        "r1.one.1 by one is published without a success",
    ]
