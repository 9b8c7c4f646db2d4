"""Determines how an attempt ended, from its runner's observations. Pure; reasons are texts for users."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nimbus.attempt.model import Ordered, Story, Terms
from nimbus.domain.pipeline import FailureClass
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
_LOST = {
    Ordered.SERVER_GONE: "its Spark Connect server has ended or does not answer",
    Ordered.CUT_OFF: "ZooKeeper did not answer for so long that another host could get the task",
}
_JVM_ENDED, _TRACEBACK = "[JAVA_GATEWAY_EXITED]", "Traceback (most recent call last):"


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
    story: Story,
    *,
    is_program: bool = False,
    timeout: timedelta | None,
    log_tail: str,
    oom_killer: bool = False,
) -> Verdict:
    """Determine the verdict about an attempt that has ended.

    Args:
        story: What was observed. A stop or a timeout after the code had ended makes no difference, because
            the work is done; what code does after an order is no success, also if it exits with 0.
        is_program: Its driver writes no mark when the code has come to its end.
        timeout: The attempt's timeout.
        log_tail: The end of its log, `failure.TAIL_BYTES` of it.
        oom_killer: The kernel's OOM killer ended a process of this machine while the driver ran.
    """
    status = story.status
    code = 128 - status if status is not None and status < 0 else status
    if story.refused:
        return Verdict(Outcome.REFUSED, story.refused[:REASON_LIMIT], None)
    if story.lost:
        return Verdict(Outcome.LOST, story.lost, None)
    if story.is_success(Terms(is_program=is_program)):
        return Verdict(Outcome.SUCCEEDED, "", 0)
    match story.ordered:
        case Ordered.TIMEOUT:
            why = f"it did not end within {timeout}"
            return Verdict(Outcome.TIMED_OUT, why, code, FailureClass.TIMED_OUT)
        case Ordered.STOP:
            return Verdict(Outcome.STOPPED, "stopped on request", code)
        case Ordered.OUTDATED:
            return Verdict(Outcome.STOPPED, "stopped, because the attempt was closed by somebody else", code)
        case Ordered.LIMIT:
            failure = FailureClass.OUT_OF_MEMORY if is_memory(story.exceeded or "") else FailureClass.ERROR
            return Verdict(Outcome.FAILED, story.exceeded or "ended: it exceeded a limit", code, failure)
        case Ordered.SERVER_GONE | Ordered.CUT_OFF:
            return Verdict(Outcome.LOST, _LOST[story.ordered], code)
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
