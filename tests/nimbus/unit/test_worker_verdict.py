"""The report of an attempt's end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nimbus.attempt.model import Ordered, Story
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.verdict import REASON_LIMIT, error_in, judge

TRACEBACK = """\
starting
Traceback (most recent call last):
  File "x.py", line 1, in <module>
    raise KeyError("carrier")
KeyError: 'carrier'
"""
SPARK = """\
py4j.protocol.Py4JJavaError: An error occurred while calling o5.parquet.
: java.lang.IllegalStateException: no space
\tat org.apache.spark.X
\tat org.apache.spark.Y
"""
JVM = """\
26/11/22 12:20:55 INFO SparkContext: Running Spark
Exception in thread "main" java.lang.IllegalStateException: no such month
\tat example.Job.main(Job.java:22)
26/11/22 12:20:57 INFO SparkContext: Successfully stopped SparkContext
"""
CONNECT = """\
Traceback (most recent call last):
  File "x.py", line 1, in <module>
    spark.sql("select nosuch")
pyspark.errors.exceptions.connect.AnalysisException: [UNRESOLVED_COLUMN] `nosuch` cannot be resolved.
'Project ['nosuch]

JVM stacktrace:
org.apache.spark.sql.catalyst.ExtendedAnalysisException
\tat org.apache.spark.X
Caused by: java.lang.IllegalStateException: no
\tat org.apache.spark.Y
"""
THREAD_AT_THE_END = """\
Exception in thread Thread-4 (_run):
Traceback (most recent call last):
  File "threading.py", line 1045, in _bootstrap_inner
    self.run()
NameError: name 'cygrpc' is not defined
"""


def _judge(
    status: int | None, ordered: Ordered = Ordered.NOT, *, done: bool = False, log: str = ""
) -> object:
    verdict = judge(Story(status, ordered, done), timeout=timedelta(minutes=1), log_tail=log)
    return verdict.outcome, verdict.exit_code


@pytest.mark.parametrize(
    ("status", "ordered", "done", "expected"),
    [
        (0, Ordered.NOT, True, (Outcome.SUCCEEDED, 0)),
        (0, Ordered.NOT, False, (Outcome.FAILED, 0)),
        (1, Ordered.NOT, True, (Outcome.FAILED, 1)),
        (-9, Ordered.NOT, True, (Outcome.FAILED, 137)),
        (None, Ordered.NOT, True, (Outcome.FAILED, None)),
        (-15, Ordered.TIMEOUT, False, (Outcome.TIMED_OUT, 143)),
        (-9, Ordered.STOP, False, (Outcome.STOPPED, 137)),
        (-9, Ordered.OUTDATED, False, (Outcome.STOPPED, 137)),
        (-9, Ordered.LIMIT, False, (Outcome.FAILED, 137)),
        (0, Ordered.LIMIT, True, (Outcome.SUCCEEDED, 0)),
        (0, Ordered.STOP, True, (Outcome.SUCCEEDED, 0)),
        (0, Ordered.TIMEOUT, False, (Outcome.TIMED_OUT, 0)),
    ],
)
def test_outcome_follows_from_the_exit_and_from_who_ordered_it(
    status: int | None, ordered: Ordered, done: bool, expected: object
) -> None:
    assert _judge(status, ordered, done=done) == expected


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (TRACEBACK, "KeyError: 'carrier'"),
        (TRACEBACK + "Spark stopped\n\n", "KeyError: 'carrier'\nSpark stopped"),
        (SPARK, SPARK.split("\n\tat", maxsplit=1)[0]),
        (JVM, "java.lang.IllegalStateException: no such month"),
        (CONNECT, "\n".join(CONNECT.splitlines()[3:5])),
        (TRACEBACK + THREAD_AT_THE_END, "KeyError: 'carrier'"),
        (THREAD_AT_THE_END, "NameError: name 'cygrpc' is not defined"),
        ("a\nb\n\n", "a\nb"),
        ("", ""),
    ],
)
def test_error_is_found_in_the_end_of_the_log(log: str, told: str) -> None:
    assert error_in(log) == told


def test_reason_is_bounded_and_still_says_how_the_process_ended() -> None:
    log = "ValueError: " + "x" * 5000
    verdict = judge(Story(-9), timeout=None, log_tail=log)

    assert len(verdict.reason) <= REASON_LIMIT
    assert verdict.reason.startswith("ValueError: xxx")
    assert "SIGKILL" in verdict.reason


@pytest.mark.parametrize(
    ("status", "ordered", "done", "log", "failure"),
    [
        (0, Ordered.NOT, True, "", None),
        (-9, Ordered.STOP, False, "", None),
        (-9, Ordered.OUTDATED, False, "", None),
        (-15, Ordered.TIMEOUT, False, "MemoryError\n", FailureClass.TIMED_OUT),
        (1, Ordered.NOT, False, TRACEBACK, FailureClass.ERROR),
        (
            1,
            Ordered.NOT,
            False,
            "Traceback (most recent call last):\nMemoryError\n",
            FailureClass.OUT_OF_MEMORY,
        ),
        (-9, Ordered.NOT, False, "", FailureClass.KILLED),
        (None, Ordered.NOT, False, "", FailureClass.ERROR),
    ],
)
def test_class_is_told_of_an_attempt_that_failed_or_ran_out_of_time(
    status: int | None, ordered: Ordered, done: bool, log: str, failure: FailureClass | None
) -> None:
    verdict = judge(Story(status, ordered, done), timeout=None, log_tail=log)

    assert verdict.failure is failure


def test_driver_that_the_kernel_killed_for_memory_is_told_from_one_that_was_killed_by_hand() -> None:
    verdict = judge(Story(-9), timeout=None, log_tail="", oom_killer=True)

    assert verdict.failure is FailureClass.OUT_OF_MEMORY
    assert verdict.reason == "its process was killed by signal 9 (SIGKILL) (the machine was out of memory)"


def test_end_of_the_connect_server_is_a_loss_and_no_failure() -> None:
    gone = judge(Story(1, Ordered.SERVER_GONE), timeout=None, log_tail="")
    done = judge(Story(0, Ordered.SERVER_GONE, True), timeout=None, log_tail="")

    assert gone.outcome is Outcome.LOST
    assert "Spark Connect server" in gone.reason
    assert done.outcome is Outcome.SUCCEEDED


def test_program_that_was_asked_to_end_and_exits_with_0_has_not_done_its_work() -> None:
    stopped = judge(Story(0, Ordered.STOP), is_program=True, timeout=None, log_tail="")
    alone = judge(Story(0), is_program=True, timeout=None, log_tail="")

    assert (stopped.outcome, alone.outcome) == (Outcome.STOPPED, Outcome.SUCCEEDED)


@pytest.mark.parametrize(("what", "failure"), [("memory", "out_of_memory"), ("disk", "error")])
def test_attempt_above_a_limit_has_a_class_of_failure(what: str, failure: str) -> None:
    exceeded = f"ended: it used 2.1 GiB of {what}, and its limit is 2.0 GiB"
    verdict = judge(Story(-9, Ordered.LIMIT, exceeded=exceeded), timeout=None, log_tail="")

    assert verdict.failure is not None
    assert verdict.failure.value == failure


def test_reason_is_the_last_error_when_one_of_spark_connect_was_handled_before() -> None:
    log = CONNECT + TRACEBACK.replace("carrier", "month")

    assert error_in(log) == "KeyError: 'month'"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "Error occurred during initialization of VM\nCould not reserve 9 KB\n",
            "Error occurred during initialization of VM\nCould not reserve 9 KB",
        ),
        (
            'Exception in thread "main" java.lang.RuntimeException: [unresolved: a#b]\n\tat a.B(C)\n',
            "java.lang.RuntimeException: [unresolved: a#b]",
        ),
    ],
)
def test_reason_begins_with_what_the_jvm_said_when_it_ended_before_it_could_be_used(
    said: str, cause: str
) -> None:
    ended = "pyspark.errors.PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited"
    log = f'{said}Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n{ended}.\n'

    assert error_in(log) == f"{cause}\n{ended}."
