"""The program: reads the pipe, watches the process, and closes the process's session when it is dead.

The rule: the program sends no packet for a session before the process's pidfd is readable. The kernel makes
the pidfd readable when the last thread of the process has ended. A process that is stopped, slow or does not
react is alive.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from leader.sentinel.ensemble import Ensemble, Tls
from leader.sentinel.wire import Handoff, MessageError, read_line

_CHUNK_BYTES = 1 << 16
_PAUSE_S = 0.1
FIRST_ANSWER_S, LAST_ANSWER_S = 0.25, 2.0
"""Limits of the wait for one answer, in the first round and in the last ones. Each round doubles the limit.
The first is short: a server that hangs accepts connections too, and the next server must be asked soon."""
SLACK_S = 1.0
"""Added to the session timeout: a server ends sessions on its ticks, a little after the timeout."""

GAVE_UP = "gave_up"
"""No server closed the session before its timeout."""
CANNOT_WATCH = 2
"""Exit code: the process cannot be watched, and another start would fail as well."""

Close = Callable[[Handoff, float], str | None]
"""`Ensemble.close`."""


class Ledger:
    """The session to close, from lines that arrive in pieces of any size."""

    def __init__(self) -> None:
        self.session: Handoff | None = None
        self._rest = b""

    def hear(self, data: bytes) -> None:
        """Parse data from the pipe. The newest line counts."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                self.session = read_line(line)
            except MessageError as exc:
                say("sentinel_message_unreadable", level="error", error=str(exc))


class Watched(NamedTuple):
    """The guarded process: its id, and the files to watch it with."""

    pid: int
    pidfd: int
    pipe: int


def watch(watched: Watched, prepare: Callable[[], None]) -> Handoff | None:
    """Wait for the end of the process. Returns the session to close, unless it had none or closed it itself.

    `prepare` is called when a new session was read, while the process lives. OSError if the pidfd is not
    open.
    """
    ledger, poll, open_ = Ledger(), select.poll(), True
    os.set_blocking(watched.pipe, False)
    poll.register(watched.pidfd, select.POLLIN)
    poll.register(watched.pipe, select.POLLIN)
    while not _is_dead(ready := dict(poll.poll()), watched):
        if open_ and watched.pipe in ready:
            before = ledger.session
            open_ = _drain(watched.pipe, ledger)
            if ledger.session is not None and ledger.session != before:
                prepare()
            if not open_:
                poll.unregister(watched.pipe)
                if ledger.session is None:  # the process has closed its session itself, or had none
                    return None
    if open_:  # the last lines of the process are still in the pipe
        _drain(watched.pipe, ledger)
    return ledger.session


def _is_dead(ready: dict[int, int], watched: Watched) -> bool:
    if ready.get(watched.pidfd, 0) & select.POLLNVAL:
        raise OSError(f"file {watched.pidfd} is not open, so process {watched.pid} cannot be watched")
    return bool(ready.get(watched.pidfd, 0) & select.POLLIN)


def _drain(pipe: int, ledger: Ledger) -> bool:
    """Read everything in the pipe. Return False if no process can write to the pipe any more."""
    while True:
        try:
            data = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        ledger.hear(data)


def end_session(
    handoff: Handoff, close: Close, clock: Callable[[], float], sleep: Callable[[float], None]
) -> str:
    """Try until the session is over, for the session timeout and `SLACK_S` at most.

    Returns CLOSED, OVER or GAVE_UP.
    """
    timeout_s = handoff.timeout_ms / 1000
    until = clock() + timeout_s + SLACK_S
    answer_limit_s = FIRST_ANSWER_S
    while True:
        outcome = close(handoff, answer_limit_s)
        if outcome is not None:
            return outcome
        if clock() + _PAUSE_S >= until:
            return GAVE_UP
        sleep(_PAUSE_S)
        answer_limit_s = min(2 * answer_limit_s, LAST_ANSWER_S)


def say(event: str, *, level: str = "info", **words: str | float) -> None:
    """Write one JSON log line, in the daemons' format, to standard error. Without a reader it is lost."""
    import contextlib
    import json

    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({**words, "event": event, "logger": __name__, "level": level, "timestamp": stamp})
    with contextlib.suppress(OSError):
        os.write(2, line.encode() + b"\n")


def clock() -> float:
    """Return seconds since boot, including sleep of the machine; see `leader.clock`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(arguments: list[str]) -> int:
    """Watch until the process is dead, then close its session. Return the exit code.

    Signals that ask a process to end are blocked: `CrashSentinel` blocks them before it starts the program.

    Args:
        arguments: Process id, number of its inherited pidfd, hosts, then the fields of `Tls`.
    """
    pid, pidfd, hosts = int(arguments[0]), int(arguments[1]), arguments[2]
    tls = Tls(*arguments[3:]) if len(arguments) > 3 else None
    try:
        ensemble = Ensemble(hosts, tls, clock)
        left = watch(Watched(pid, pidfd, sys.stdin.fileno()), ensemble.resolve)
    except (OSError, ValueError) as exc:
        say("sentinel_cannot_watch", level="error", pid=pid, hosts=hosts, error=str(exc))
        return CANNOT_WATCH
    if left is None:
        return 0
    began = clock()
    outcome = end_session(left, ensemble.close, clock, time.sleep)
    say(
        "sentinel_ended_session",
        level="warning",  # the process has died without closing its session
        pid=pid,
        session=f"{left.session_id:#x}",
        outcome=outcome,
        took_ms=round((clock() - began) * 1000, 1),
    )
    return 0
