"""Determines how an attempt ended, from its runner's observations. Pure; reasons are texts for users."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from nimbus.domain.failures import FailureClass
from nimbus.domain.task_run import Outcome
from nimbus.worker.failure import SERVER_STACK, failure_class, without_other_threads
from nimbus.worker.limits import is_memory

REASON_LIMIT = 500
_LINE_OF_ERROR = re.compile(
    r'(?:Exception in thread "[^"]*" )?([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*)'
)
"""The first line of an exception in Python and in a JVM."""
_SERVER_STACK = re.compile(f"^{SERVER_STACK}", re.M)
_SOME_LINES = 5
_JVM_ENDED, _TRACEBACK = "[JAVA_GATEWAY_EXITED]", "Traceback (most recent call last):"


class Ordered(Enum):
    """Why the runner ended its driver, if it did."""

    NOT = "not"
    TIMEOUT = "timeout"
    STOP = "stop"
    SERVER_GONE = "server_gone"
    """Its Spark Connect server has ended, or does not answer."""
    OUTDATED = "outdated"
    """Another process filled END, or the attempt is deleted, so the driver's work is useless."""
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome, reason as text, exit code (128 + n for signal n, as in shells), class of failure."""

    outcome: Outcome
    reason: str
    exit_code: int | None
    failure: FailureClass | None = None
    result: Mapping[str, Any] | None = None
    """The result of a successful task; see `nimbus.result`."""


def judge(
    status: int | None,
    *,
    ordered: Ordered,
    came_to_its_end: bool,
    is_program: bool = False,
    timeout: timedelta | None,
    log_tail: str,
    oom_killer: bool = False,
    exceeded: str | None = None,
) -> Verdict:
    """Determine the verdict about a driver that has ended.

    Args:
        status: As of `Popen.returncode`: negative for a signal; None: it could not be reaped.
        ordered: Why the runner ended it, if it did.
        came_to_its_end: The driver wrote its mark after the task's code had ended, and before it was ordered
            to end, if it was. What code does after an order is no success, also if it exits with 0.
        is_program: It writes no such mark. It may exit with 0 even if it was asked to end.
        timeout: The attempt's timeout.
        log_tail: The end of its log, `failure.TAIL_BYTES` of it.
        oom_killer: The kernel's OOM killer ended a process of this machine while the driver ran.
        exceeded: Which limit it exceeded, if any.
    """
    code = 128 - status if status is not None and status < 0 else status
    if status == 0 and (came_to_its_end or (is_program and ordered is Ordered.NOT)):
        # Also if a stop or the timeout came after the code had ended, because the work is done.
        return Verdict(Outcome.SUCCEEDED, "", 0)
    match ordered:
        case Ordered.TIMEOUT:
            why = f"it did not end within {timeout}"
            return Verdict(Outcome.TIMED_OUT, why, code, FailureClass.TIMED_OUT)
        case Ordered.STOP:
            return Verdict(Outcome.STOPPED, "stopped on request", code)
        case Ordered.OUTDATED:
            return Verdict(Outcome.STOPPED, "stopped, because the attempt was closed by somebody else", code)
        case Ordered.LIMIT:
            failure = FailureClass.OUT_OF_MEMORY if is_memory(exceeded or "") else FailureClass.ERROR
            return Verdict(Outcome.FAILED, exceeded or "ended: it exceeded a limit", code, failure)
        case Ordered.SERVER_GONE:
            why = "its Spark Connect server has ended or does not answer"
            return Verdict(Outcome.LOST, why, code)
        case Ordered.NOT:
            why = _failure(status, log_tail, oom_killer=oom_killer)
            failure = failure_class(status, log_tail, oom_killer=oom_killer)
            return Verdict(Outcome.FAILED, why, code, failure)


def _failure(status: int | None, log_tail: str, *, oom_killer: bool) -> str:
    told = error_in(log_tail)
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
    return (f"{told} [{how}]" if told else how)[:REASON_LIMIT]


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def error_in(log_tail: str) -> str:
    """Find the lines with the error: those of the last exception, or else the last lines.

    If PySpark only says that its JVM has ended, what the JVM said before comes first.
    """
    text = _SERVER_STACK.sub("", without_other_threads(log_tail))
    error = _last_error(text)
    if _JVM_ENDED in error and (cause := _last_error(text.rpartition(_TRACEBACK)[0])):
        error = f"{cause}\n{error}"
    return _shorten(error)


def _last_error(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines()]
    for at in range(len(lines) - 1, -1, -1):
        if found := _LINE_OF_ERROR.match(lines[at]):
            told = [found[1]]
            for line in lines[at + 1 : at + _SOME_LINES]:
                if not line or line.startswith(("\tat ", "    at ", "Traceback")):
                    break
                told.append(line)
            return "\n".join(told)
    return "\n".join([line for line in lines if line][-_SOME_LINES:])


def _shorten(text: str) -> str:
    limit = REASON_LIMIT - 80  # room for how the process ended
    return text if len(text) <= limit else text[: limit - 3] + "..."
