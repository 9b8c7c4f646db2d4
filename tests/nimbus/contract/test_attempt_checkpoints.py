"""Checkpoints of attempts, on every AttemptBoard: only the valid claim can store one, and not after END."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nimbus.domain.attempts.slots import inherited
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptWithdrawnError
from tests.nimbus.contract.test_attempt_board import (
    ATTEMPT,
    CLAIM,
    END,
    FENCE,
    Bench,
    sqlite_bench,
    zookeeper_bench,
)

SECOND = AttemptId(ATTEMPT.run, ATTEMPT.task, 2)
OURS = replace(CLAIM, nonce="ours")
LOST = replace(END, outcome=Outcome.LOST, written_by="leader", output=None)


@pytest.fixture(params=["sqlite", "zookeeper"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        yield from sqlite_bench(tmp_path)
    else:
        yield from zookeeper_bench(request)


def _claimed(bench: Bench) -> None:
    bench.add(ATTEMPT)
    bench.board.claim(OURS)


def test_last_checkpoint_is_read_with_the_slots_of_its_attempt(bench: Bench) -> None:
    _claimed(bench)

    bench.board.keep_checkpoint(ATTEMPT, "ours", '{"row":1}')
    bench.board.keep_checkpoint(ATTEMPT, "ours", '{"row":2,"ü":[]}')

    slots = bench.other.read(ATTEMPT)
    assert (slots.checkpoint, slots.end, slots.claim) == ('{"row":2,"ü":[]}', None, OURS)


def test_attempt_that_keeps_none_has_none(bench: Bench) -> None:
    _claimed(bench)

    assert bench.board.read(ATTEMPT).checkpoint is None


def test_end_can_be_filled_after_a_checkpoint(bench: Bench) -> None:
    _claimed(bench)
    bench.board.keep_checkpoint(ATTEMPT, "ours", "1")

    assert bench.other.end(replace(END, nonce="ours")).outcome is Outcome.SUCCEEDED


def test_checkpoint_is_refused_once_end_is_filled_and_what_stood_stays(bench: Bench) -> None:
    _claimed(bench)
    bench.board.keep_checkpoint(ATTEMPT, "ours", "1")
    bench.other.end(LOST)

    with pytest.raises(AttemptWithdrawnError):
        bench.board.keep_checkpoint(ATTEMPT, "ours", "2")

    assert bench.other.read(ATTEMPT).checkpoint == "1"


def test_first_checkpoint_is_refused_once_end_is_filled(bench: Bench) -> None:
    _claimed(bench)
    bench.other.end(LOST)

    with pytest.raises(AttemptWithdrawnError):
        bench.board.keep_checkpoint(ATTEMPT, "ours", "1")

    assert (bench.other.read(ATTEMPT).checkpoint, bench.other.read(ATTEMPT).end) == (None, LOST)


def test_checkpoint_is_refused_while_another_claim_stands(bench: Bench) -> None:
    bench.add(ATTEMPT)
    bench.board.claim(replace(FENCE, nonce="other"))

    with pytest.raises(AttemptWithdrawnError):
        bench.board.keep_checkpoint(ATTEMPT, "ours", "1")

    assert bench.other.read(ATTEMPT).checkpoint is None


def test_checkpoint_is_refused_when_the_attempt_is_not_known(bench: Bench) -> None:
    with pytest.raises(AttemptWithdrawnError):
        bench.board.keep_checkpoint(ATTEMPT, "ours", "1")


def test_attempt_with_a_checkpoint_can_be_removed(bench: Bench) -> None:
    _claimed(bench)
    bench.board.keep_checkpoint(ATTEMPT, "ours", "1")

    bench.remove(ATTEMPT)

    assert bench.other.read(ATTEMPT).checkpoint is None


def test_next_attempt_inherits_what_end_brings_before_what_was_kept(bench: Bench) -> None:
    _claimed(bench)
    bench.board.keep_checkpoint(ATTEMPT, "ours", "1")
    bench.board.end(replace(LOST, checkpoint="2", nonce="ours"))
    bench.add(SECOND)

    assert inherited(bench.other.read_all({ATTEMPT: None, SECOND: None})) == "2"


def test_next_attempt_inherits_of_an_earlier_one_if_the_last_kept_nothing(bench: Bench) -> None:
    _claimed(bench)
    bench.board.keep_checkpoint(ATTEMPT, "ours", "1")
    bench.board.end(replace(LOST, nonce="ours"))
    bench.add(SECOND)
    bench.board.claim(replace(FENCE, attempt=str(SECOND), nonce="fence"))

    assert inherited(bench.other.read_all({SECOND: None, ATTEMPT: None})) == "1"
