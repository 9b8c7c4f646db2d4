"""The program's life: listen on the pipe, watch the process, end its session once it is dead.

The one rule: no packet for a session leaves here before the process's pidfd is readable. The kernel makes it
so when the last thread of the process has ended; a stopped, slow or deaf process is alive.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from leader.sentinel.closing import Ensemble, end_session
from leader.sentinel.connecting import Tls
from leader.sentinel.messages import Handoff, MessageError, read_line

_CHUNK_BYTES = 1 << 16
CANNOT_WATCH = 2
"""Exit code: another try would fail as well."""


class Ledger:
    """Which session is to be ended. Reads lines as they arrive, in pieces of any size."""

    def __init__(self) -> None:
        self.session: Handoff | None = None
        self._rest = b""

    def hear(self, data: bytes) -> None:
        """Take what came over the pipe."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                self.session = read_line(line)
            except MessageError as exc:
                say("sentinel_message_unreadable", level="error", error=str(exc))


class Watched(NamedTuple):
    """The process, as files."""

    pid: int
    pidfd: int
    pipe: int


def watch(watched: Watched, prepare: Callable[[], None]) -> Handoff | None:
    """Wait for the end of the process.

    Args:
        watched: The process.
        prepare: Called when there is a new session, with time to spare.

    Returns:
        The session that it left; None: none that it had not ended itself.

    Raises:
        OSError: the pidfd is none.
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
                if ledger.session is None:  # it needs us no more
                    return None
    if open_:  # what it said with its last breath is still in the pipe
        _drain(watched.pipe, ledger)
    return ledger.session


def _is_dead(ready: dict[int, int], watched: Watched) -> bool:
    if ready.get(watched.pidfd, 0) & select.POLLNVAL:
        raise OSError(f"file {watched.pidfd} is not open, so process {watched.pid} cannot be watched")
    return bool(ready.get(watched.pidfd, 0) & select.POLLIN)


def _drain(pipe: int, ledger: Ledger) -> bool:
    """Hear all there is now. False: nobody can write to the pipe any more."""
    while True:
        try:
            data = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        ledger.hear(data)


def say(event: str, *, level: str = "info", **words: str | float) -> None:
    """One JSON line on standard error, as the daemons' own. Nobody may read it any more: then it is lost."""
    import contextlib
    import json

    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({**words, "event": event, "logger": __name__, "level": level, "timestamp": stamp})
    with contextlib.suppress(OSError):
        os.write(2, line.encode() + b"\n")


def clock() -> float:
    """Seconds since boot, sleep of the machine included; see `leader.clock`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(arguments: list[str]) -> int:
    """Watch until the process is dead, then see to its session. Returns the exit code.

    Signals that ask to end were blocked by whoever started us.

    Args:
        arguments: Process id, number of its inherited pidfd, connection string, then the fields of `Tls`.
    """
    pid, pidfd, hosts = int(arguments[0]), int(arguments[1]), arguments[2]
    tls = Tls(*arguments[3:]) if len(arguments) > 3 else None
    try:
        ensemble = Ensemble(hosts, tls, clock)
        left = watch(Watched(pid, pidfd, sys.stdin.fileno()), ensemble.look_up)
    except (OSError, ValueError) as exc:
        say("sentinel_cannot_watch", level="error", pid=pid, hosts=hosts, error=str(exc))
        return CANNOT_WATCH
    if left is None:
        return 0
    began = clock()
    outcome = end_session(left, ensemble, clock, time.sleep)
    say(
        "sentinel_ended_session",
        level="warning",  # a process has died without taking its leave
        pid=pid,
        session=f"{left.session_id:#x}",
        outcome=outcome,
        took_ms=round((clock() - began) * 1000, 1),
    )
    return 0
