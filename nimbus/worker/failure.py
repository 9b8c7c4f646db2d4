"""Determines the class of a failed attempt from its driver's exit and the end of its log. Pure.

The log also contains errors that Spark recovered from or that the task's code handled. So only the last error
counts: the last traceback, with those that Python links to it. A traceback of a thread other than the main
one does not end a Python program, and is often a consequence of its end: it counts only if there is no other.
"""

from __future__ import annotations

import re
import signal

from nimbus.domain.pipeline import FailureClass

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

SERVER_STACK = (
    r"JVM stacktrace:\n.*(?:\n|\Z)(?:(?:\s+at |\s+\.\.\. |Caused by: |\s*Suppressed: ).*(?:\n|\Z))*"
)
"""The server's stack that a Spark Connect client adds to an exception's message."""
_TRACEBACK = r"Traceback \(most recent call last\):\n(?: .*\n)*.*(?:\n|\Z)" + rf"(?:\n*{SERVER_STACK})?"
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
_SEARCHES = tuple((found, re.compile(rule, re.M)) for found, rule in _RULES)

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


def failure_class(status: int | None, log_tail: str, *, oom_killer: bool = False) -> FailureClass:
    """Classify the failure of a driver that Nimbus did not end.

    Args:
        status: As of `Popen.returncode`: negative for a signal; None: it could not be reaped.
        log_tail: The end of its log, TAIL_BYTES of it.
        oom_killer: The kernel's OOM killer ended a process of this machine while the driver ran.
    """
    found = _of_exit(status, log_tail) or _of_log(log_tail)
    if oom_killer and found in (FailureClass.KILLED, FailureClass.EXECUTOR_LOST):
        return FailureClass.OUT_OF_MEMORY
    return found


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
    for found, search in _SEARCHES:
        if search.search(story):
            return found
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
