"""Classes of failure: real ends of logs of failed tasks, recorded by `tests/nimbus/failures/record.py`."""

# ruff: noqa: E501 - one row of a table is one line

from __future__ import annotations

from pathlib import Path

import pytest

from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.worker.attempt.verdict import failure_class, without_other_threads
from tests.nimbus.failures.cases import CASES, Case

RECORDED = Path(__file__).parents[1] / "failures" / "recorded"
TRACEBACK = 'Traceback (most recent call last):\n  File "task.py", line 1, in <module>\n    load()\n'
JOB = "py4j.protocol.Py4JJavaError: An error occurred while calling o5.count.\n: org.apache.spark.SparkException: "


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
    assert wrong == {}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("ValueError: the job before ended with java.lang.OutOfMemoryError", FailureClass.ERROR),
        ("ValueError: the text MemoryError: x", FailureClass.ERROR),
        ("dateutil.parser.ParseException: 31 February", FailureClass.ERROR),
        ("java.io.FileNotFoundException: /srv/feed.csv (Permission denied)", FailureClass.ERROR),
        ("java.io.FileNotFoundException: /srv/feed.csv (No such file or directory)", FailureClass.MISSING_INPUT),
        ("botocore.exceptions.ClientError: An error occurred (404) when calling the HeadObject operation: Not Found", FailureClass.MISSING_INPUT),
        ("botocore.exceptions.ClientError: An error occurred (503) when calling the GetObject operation: Slow", FailureClass.ERROR),
        ("duckdb.OutOfMemoryException: Out of Memory Error", FailureClass.OUT_OF_MEMORY),
        (JOB + "Job aborted: Lost task 0.3 (TID 3) (h1 executor 7): ExecutorLostFailure (executor 7 exited caused by one of the running tasks) Reason: Container killed by YARN for exceeding physical memory limits.", FailureClass.OUT_OF_MEMORY),
        (JOB + "Job aborted: Lost task 0.3 (TID 3) (h1 executor 7): ExecutorLostFailure (executor 7 exited caused by one of the running tasks) Reason: The executor with id 7 exited with exit code 137(SIGKILL, possible container OOM).", FailureClass.OUT_OF_MEMORY),
        (JOB + "Job aborted: Lost task 0.3 (TID 3) (h1 executor 7): ExecutorLostFailure (executor 7 exited caused by one of the running tasks) Reason: Remote RPC client disassociated.", FailureClass.EXECUTOR_LOST),
        (JOB + "Job aborted\nCaused by: org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 0", FailureClass.EXECUTOR_LOST),
    ],
)  # fmt: skip
def test_class_is_that_of_the_error_and_not_of_what_its_message_speaks_of(
    error: str, expected: FailureClass
) -> None:
    assert failure_class(1, f"{TRACEBACK}{error}\n") is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, FailureClass.ERROR),
        (3, FailureClass.ERROR),
        (52, FailureClass.OUT_OF_MEMORY),
        (137, FailureClass.OUT_OF_MEMORY),
        (139, FailureClass.ERROR),
        (143, FailureClass.KILLED),
        (-9, FailureClass.KILLED),
        (-11, FailureClass.ERROR),
        (-64, FailureClass.ERROR),
    ],
)
def test_class_follows_from_the_exit_when_the_log_is_empty(
    status: int | None, expected: FailureClass
) -> None:
    assert failure_class(status, "") is expected


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (-9, "", FailureClass.OUT_OF_MEMORY),
        (1, JOB + "Python worker exited unexpectedly (crashed).", FailureClass.OUT_OF_MEMORY),
        (1, "ValueError: x", FailureClass.ERROR),
    ],
)
def test_process_that_vanished_while_the_kernel_killed_for_memory_was_out_of_it(
    status: int, error: str, expected: FailureClass
) -> None:
    assert failure_class(status, TRACEBACK + error, oom_killer=True) is expected


def test_error_that_was_logged_before_the_last_one_does_not_count() -> None:
    log = f"{TRACEBACK}MemoryError\nfalling back\n{TRACEBACK}ValueError: x\n"

    assert failure_class(1, log) is FailureClass.ERROR


def test_exception_of_another_thread_does_not_count_beside_the_one_that_ended_the_task() -> None:
    log = f"{TRACEBACK}FileNotFoundError: x\nException in thread Thread-4 (_run):\n{TRACEBACK}MemoryError\n"

    assert failure_class(1, log) is FailureClass.MISSING_INPUT


def test_exception_of_another_thread_right_before_the_one_that_ended_the_task_does_not_hide_it() -> None:
    log = f"Exception in thread Thread-4 (_run):\n{TRACEBACK}MemoryError\n{TRACEBACK}FileNotFoundError: x\n"

    assert failure_class(1, log) is FailureClass.MISSING_INPUT
    assert without_other_threads(log) == f"{TRACEBACK}FileNotFoundError: x\n"


def test_exception_of_another_thread_is_left_out_with_those_that_it_is_linked_to() -> None:
    linked = (
        f"{TRACEBACK}KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n"
    )
    log = f"{TRACEBACK}ValueError: x\nException in thread Thread-4 (_run):\n{linked}{TRACEBACK}MemoryError\n"

    assert without_other_threads(log) == f"{TRACEBACK}ValueError: x\n"


def test_stack_of_the_server_belongs_to_the_exception_of_its_thread() -> None:
    stack = "JVM stacktrace:\norg.x.Error\n\tat a.b(C.java:1)\nCaused by: java.lang.OutOfMemoryError: heap\n\tat d.e(F)\n"
    log = f"{TRACEBACK}FileNotFoundError: x\nException in thread Thread-4 (_run):\n{TRACEBACK}E: y\n\n{stack}"

    assert without_other_threads(log) == f"{TRACEBACK}FileNotFoundError: x\n"
    assert failure_class(1, log) is FailureClass.MISSING_INPUT


def test_exception_of_another_thread_counts_when_there_is_no_other() -> None:
    log = f"Exception in thread Thread-4 (_run):\n{TRACEBACK}MemoryError\n"

    assert failure_class(1, log) is FailureClass.OUT_OF_MEMORY


def test_every_record_is_of_a_case() -> None:
    assert sorted(path.stem for path in RECORDED.glob("*.txt")) == sorted(case.name for case in CASES)
