"""Determines how an attempt ended, from its runner's observations. Pure; reasons are texts for users.

The class of a failure follows from the driver's exit and the end of its log. The log also contains errors
that Spark recovered from or that the task's code handled. So only the last error counts: the last traceback,
with those that Python links to it. A traceback of a thread other than the main one does not end a Python
program, and is often a consequence of its end: it counts only if there is no other.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nimbus.attempt.model import Ordered, Story, Terms
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.limits import is_memory

REASON_LIMIT = 500
_LINE_OF_ERROR = re.compile(
    r'(?:Exception in thread "[^"]*" )?([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*)'
)
"""The first line of an exception in Python and in a JVM."""
_SOME_LINES = 5
_LOST = {
    Ordered.SERVER_GONE: "its Spark Connect server has ended or does not answer",
    Ordered.CUT_OFF: "ZooKeeper did not answer for so long that another host could get the task",
}
_JVM_ENDED, _TRACEBACK_LINE = "[JAVA_GATEWAY_EXITED]", "Traceback (most recent call last):"
TAIL_BYTES = 64 << 10
"""How much of a log's end is read. A Spark error has the stack of each cause: 6 to 12 KB for a short job."""
_SIGNALS = range(1, 32)
_CRASHES = (
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGSYS,
    signal.SIGTRAP,
)
_OUT_OF_MEMORY_EXITS = (52, 128 + signal.SIGKILL)
"""Spark's own code, and the code of a container whose process was killed, usually by its memory limit."""
_START = re.compile(
    r'^(?:Traceback \(most recent call last\):|  \+ Exception Group Traceback|Exception in thread "main" )',
    re.M,
)
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
    "An exception was thrown from the Python worker:",
)
_SERVER_STACK = (
    r"JVM stacktrace:\n.*(?:\n|\Z)(?:(?:\s+at |\s+\.\.\. |Caused by: |\s*Suppressed: ).*(?:\n|\Z))*"
)
"""The server's stack that a Spark Connect client adds to an exception's message."""
_WHOLE_SERVER_STACK = re.compile(f"^{_SERVER_STACK}", re.M)
_TRACEBACK = r"Traceback \(most recent call last\):\n(?: .*\n)*.*(?:\n|\Z)" + rf"(?:\n*{_SERVER_STACK})?"
_OF_A_THREAD = re.compile(
    rf'^Exception in thread (?!").*:\n{_TRACEBACK}(?:\n(?:During|The above) .*\n\n{_TRACEBACK})*', re.M
)
"""In Python's form; a JVM puts the thread's name in quotes."""
_PLACE = r"(?:^(?:[ |]*\| )?(?:: |Caused by: )?|\): |^Exception in thread \"main\" )"
"""The places of an exception's name, which exclude the middle of a message."""
_TYPE = _PLACE + r"(?:[\w$]+\.)*"
_SPARK_TYPE = _PLACE + r"(?:pyspark|org\.apache\.spark)\.(?:[\w$]+\.)*"
_RULES = (
    (
        FailureClass.OUT_OF_MEMORY,
        _TYPE + r"\w*Memory(?:Error|Exception)\b"
        r"|\[Errno 12\]"
        r"|std::bad_alloc"
        r"|exceeding (?:physical |virtual )?memory limits|possible container OOM|OOMKilled"
        r"|ExecutorLostFailure .*(?:exited with|exit) code 52\b",
    ),
    (
        FailureClass.MISSING_INPUT,
        _TYPE + r"(?:FileNotFoundError|NoSuchFileException)\b"
        r"|" + _TYPE + r"FileNotFoundException\b(?!.*\((?:Permission denied|No space left|Too many open))"
        r"|\[(?:PATH_NOT_FOUND|FAILED_READ_FILE\.FILE_NOT_EXIST|UNABLE_TO_INFER_SCHEMA)\b"
        r"|Input path does not exist: "
        r"|An error occurred \((?:NoSuchKey|NoSuchBucket|404)\) when calling",
    ),
    (
        FailureClass.ANALYSIS,
        _SPARK_TYPE + r"(?:\w*Analysis|Parse|NoSuch\w+)Exception\b"
        r"|^\[[A-Z0-9]+[_.][A-Z0-9_.]+\] [\s\S]{0,2000}?SQLSTATE: 42",  # syntax or access rule
    ),
    (
        FailureClass.EXECUTOR_LOST,
        r"ExecutorLostFailure|Python worker exited unexpectedly|" + _TYPE + r"\w*FetchFailed",
    ),
)
_SEARCHES = tuple((failure, re.compile(rule, re.M)) for failure, rule in _RULES)
_JVM_GONE = re.compile(
    r"^py4j\.protocol\.Py4JNetworkError\b"
    r"|^py4j\.protocol\.Py4JError: An error occurred while calling [\w.:]+$"  # and no Java exception follows
    r"|^py4j\.protocol\.Py4J(?:Java)?Error: <exception str\(\) failed>"  # the text would come from the JVM
    r"|cancelled because SparkContext was shut down$"
    r"|^Connection(?:Refused|Reset)Error\b",
    re.M,
)
_JVM_SHORT_OF_MEMORY = re.compile(
    r"java\.lang\.OutOfMemoryError|insufficient memory for the Java Runtime Environment"
)
_JVM_CRASHED = re.compile(r"fatal error has been detected by the Java Runtime Environment")


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended: the reason as text, the exit code 128 + n for signal n, as in shells."""

    outcome: Outcome
    reason: str
    exit_code: int | None
    failure: FailureClass | None = None
    result: Mapping[str, Any] | None = None


def judge(
    story: Story,
    *,
    is_program: bool = False,
    timeout: timedelta | None,
    log_tail: str,
    oom_killer: bool = False,
) -> Ending:
    """Determine how an attempt has ended.

    Args:
        story: What was observed. A stop or a timeout after the code had ended makes no difference, because
            the work is done; what code does after an order is no success, also if it exits with 0.
        is_program: Its driver writes no mark when the code has come to its end.
        timeout: The attempt's timeout.
        log_tail: The end of its log, `TAIL_BYTES` of it.
        oom_killer: The kernel's OOM killer ended a process of this machine while the driver ran.
    """
    status = story.status
    code = 128 - status if status is not None and status < 0 else status
    if story.refused:
        return Ending(Outcome.REFUSED, story.refused[:REASON_LIMIT], None)
    if story.lost:
        return Ending(Outcome.LOST, story.lost, None)
    if story.is_success(Terms(is_program=is_program)):
        return Ending(Outcome.SUCCEEDED, "", 0)
    match story.ordered:
        case Ordered.TIMEOUT:
            why = f"it did not end within {timeout}"
            return Ending(Outcome.TIMED_OUT, why, code, FailureClass.TIMED_OUT)
        case Ordered.STOP:
            return Ending(Outcome.STOPPED, "stopped on request", code)
        case Ordered.OUTDATED:
            return Ending(Outcome.STOPPED, "stopped, because the attempt was closed by somebody else", code)
        case Ordered.LIMIT:
            failure = FailureClass.OUT_OF_MEMORY if is_memory(story.exceeded or "") else FailureClass.ERROR
            return Ending(Outcome.FAILED, story.exceeded or "ended: it exceeded a limit", code, failure)
        case Ordered.SERVER_GONE | Ordered.CUT_OFF:
            return Ending(Outcome.LOST, _LOST[story.ordered], code)
        case Ordered.NOT:
            why = _failure(status, log_tail, oom_killer=oom_killer)
            failure = failure_class(status, log_tail, oom_killer=oom_killer)
            return Ending(Outcome.FAILED, why, code, failure)


def _failure(status: int | None, log_tail: str, *, oom_killer: bool) -> str:
    error = error_in(log_tail)
    if status is None:
        how = "its end could not be observed"
    elif status == 0:
        how = "its process ended with 0 in the middle of the task's code (os._exit?)"
    elif status < 0:
        how = f"its process was killed by {_signal(-status)}"
        if -status == signal.SIGKILL:
            how += " (the machine was out of memory)" if oom_killer else " (out of memory, or by hand)"
    else:
        how = f"exit code {status}"
    return (f"{error} [{how}]" if error else how)[:REASON_LIMIT]


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def error_in(log_tail: str) -> str:
    """Find the lines with the error: those of the last exception, or else the last lines.

    If PySpark only says that its JVM has ended, what the JVM said before comes first.
    """
    text = _WHOLE_SERVER_STACK.sub("", without_other_threads(log_tail))
    error = _error_lines(text)
    if _JVM_ENDED in error and (cause := _error_lines(text.rpartition(_TRACEBACK_LINE)[0])):
        error = f"{cause}\n{error}"
    return _shorten(error)


def _error_lines(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines()]
    for at in range(len(lines) - 1, -1, -1):
        if error := _LINE_OF_ERROR.match(lines[at]):
            kept = [error[1]]
            for line in lines[at + 1 : at + _SOME_LINES]:
                if not line or line.startswith(("\tat ", "    at ", "Traceback")):
                    break
                kept.append(line)
            return "\n".join(kept)
    return "\n".join([line for line in lines if line][-_SOME_LINES:])


def _shorten(text: str) -> str:
    limit = REASON_LIMIT - 80  # room for how the process ended
    return text if len(text) <= limit else text[: limit - 3] + "..."


def failure_class(status: int | None, log_tail: str, *, oom_killer: bool = False) -> FailureClass:
    """Classify the failure of a driver that Nimbus did not end. `status`: as of `Popen`; None: unknown."""
    failure = _of_exit(status, log_tail) or _of_log(log_tail)
    if oom_killer and failure in (FailureClass.KILLED, FailureClass.EXECUTOR_LOST):
        return FailureClass.OUT_OF_MEMORY
    return failure


def without_other_threads(log_tail: str) -> str:
    """The log without tracebacks of Python's other threads; unchanged if it contains only those."""
    rest = _OF_A_THREAD.sub("", log_tail)
    return rest if _START.search(rest) else log_tail


def _of_exit(status: int | None, log_tail: str) -> FailureClass | None:
    """The class by the exit alone. A status above 128 means that a signal ended a child."""
    if status in _OUT_OF_MEMORY_EXITS:
        return FailureClass.OUT_OF_MEMORY
    number = 0 if status is None else -status if status < 0 else status - 128
    if number not in _SIGNALS:
        return None
    if number in _CRASHES:
        crashed_for_memory = "std::bad_alloc" in log_tail[-2000:]
        return FailureClass.OUT_OF_MEMORY if crashed_for_memory else FailureClass.ERROR
    return FailureClass.KILLED


def _of_log(log_tail: str) -> FailureClass:
    story = last_error(log_tail)
    for failure, search in _SEARCHES:
        if search.search(story):
            return failure
    if "py4j" in story and _JVM_GONE.search(story):
        return _of_lost_jvm(log_tail)
    return FailureClass.ERROR


def _of_lost_jvm(log_tail: str) -> FailureClass:
    """The class of a driver whose JVM died; only the JVM's earlier output shows the reason."""
    if _JVM_SHORT_OF_MEMORY.search(log_tail):
        return FailureClass.OUT_OF_MEMORY
    return FailureClass.ERROR if _JVM_CRASHED.search(log_tail) else FailureClass.KILLED


def last_error(log_tail: str) -> str:
    """The last traceback with those linked to it; the whole text if it contains no traceback."""
    log_tail = without_other_threads(log_tail)
    starts = [match.start() for match in _START.finditer(log_tail)]
    if not starts:
        return log_tail
    begin = starts.pop()
    while starts and log_tail[starts[-1] : begin].rstrip().endswith(_LINKS):
        begin = starts.pop()
    return log_tail[begin:]
