"""Classes of failure: the real ends of logs of tasks that failed, as `tests/failures/record.py` made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.domain.failures import FailureClass
from nimbus.worker.failure import failure_class
from tests.failures.cases import CASES, Case

RECORDED = Path(__file__).parents[1] / "failures" / "recorded"
LEAST_RIGHT = 0.95


def _found(case: Case) -> FailureClass:
    status, _, log = (RECORDED / f"{case.name}.txt").read_text(encoding="utf-8").partition("\n")
    return failure_class(int(status), log)


@pytest.mark.parametrize("held_out", [False, True], ids=["known", "held out"])
def test_recorded_failures_have_the_class_that_a_person_gives_them(held_out: bool) -> None:
    cases = [case for case in CASES if case.held_out is held_out]
    wrong = {
        case.name: f"is {case.expected}, found {found}"
        for case in cases
        if (found := _found(case)) is not case.expected
    }

    assert len(cases) >= (10 if held_out else 40)
    assert 1 - len(wrong) / len(cases) >= LEAST_RIGHT, wrong


def test_every_record_is_of_a_case() -> None:
    assert sorted(path.stem for path in RECORDED.glob("*.txt")) == sorted(case.name for case in CASES)
