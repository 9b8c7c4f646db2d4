"""One participant in a process of its own: it asks, writes, and keeps a history, until SIGTERM.

    python -m tests.chaos.election.participant HOSTS ROOT NAME SESSION_S HISTORY

Main thread: asks `is_leader()` all the time. Thread `chaos-writer`: writes with the token of the present
leadership, and, once that is over, goes on with the old one until it is refused.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path

import structlog

from leader import FencingToken
from tests.chaos.election.history_lines import Did, Line, Pen
from tests.chaos.election.seat import OutcomeUnknownError, Seat

_ASK_EVERY_S = 0.005
_WRITE_EVERY_S = 0.02
_CLOSE_LIMIT = timedelta(seconds=5)


def now_ns() -> int:
    """CLOCK_BOOTTIME: it goes on while the machine sleeps, and all processes share it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Witness:
    """Writes the history."""

    def __init__(self, name: str, boot: str, pen: Pen) -> None:
        self._name, self._boot, self._pen = name, boot, pen

    def note(
        self,
        did: Did,
        before_ns: int,
        after_ns: int,
        *,
        epoch: int | None = None,
        zxid: int | None = None,
        gap_ns: int | None = None,
        why: str = "",
    ) -> None:
        """Append a line."""
        self._pen.write(
            Line(
                name=self._name,
                boot=self._boot,
                did=did,
                before_ns=before_ns,
                after_ns=after_ns,
                epoch=epoch,
                zxid=zxid,
                gap_ns=gap_ns,
                why=why,
            )
        )

    def told(self, word: str, epoch: int, why: str) -> None:
        """A call to the electable."""
        at = now_ns()
        self.note(Did.CONFIRMED if word == "elected" else Did.REVOKED, at, at, epoch=epoch, why=why)


def ask_all_the_time(seat: Seat, witness: Witness, stopping: threading.Event, session: timedelta) -> None:
    """Ask until told to stop. Of refusals only those are noted that say something new."""
    long_ns = session // timedelta(microseconds=1) * 1000 // 2
    last_ns, led = now_ns(), True
    while not stopping.is_set():
        token = seat.token()
        before = now_ns()
        leads = seat.is_leader()
        after = now_ns()
        gap = before - last_ns
        if leads:
            token = token or seat.token()
            epoch = None if token is None else token.epoch
            witness.note(Did.OBSERVED, before, after, epoch=epoch, gap_ns=gap)
        elif led or gap > long_ns:
            witness.note(Did.DENIED, before, after, gap_ns=gap)
        last_ns, led = after, leads
        stopping.wait(_ASK_EVERY_S)


def write_all_the_time(seat: Seat, witness: Witness, stopping: threading.Event) -> None:
    """Write with the newest token there is, until it is refused; with one that was replaced, once more."""
    token: FencingToken | None = None
    while not stopping.wait(_WRITE_EVERY_S):
        newest = seat.token()
        if newest is not None and newest != token:
            old, token = token, newest
            if old is not None:
                _write(seat, witness, old)
        if token is not None and not _write(seat, witness, token):
            token = None


def _write(seat: Seat, witness: Witness, token: FencingToken) -> bool:
    """Write once; False if the token is of no more use."""
    before = now_ns()
    try:
        zxid = seat.write(token, str(token.epoch).encode())
    except OutcomeUnknownError:
        witness.note(Did.UNKNOWN, before, now_ns(), epoch=token.epoch)
        return True
    witness.note(Did.FENCED if zxid is None else Did.WROTE, before, now_ns(), epoch=token.epoch, zxid=zxid)
    return zxid is not None


def main(hosts: str, root: str, name: str, session_s: str, history: str) -> None:
    """Take part until SIGTERM."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    boot, session = uuid.uuid4().hex, timedelta(seconds=float(session_s))
    witness = Witness(name, boot, Pen(Path(history)))
    seat = Seat(hosts=hosts, root=root, name=name, boot=boot, session=session, told=witness.told)
    if not seat.open(stopping):
        return
    witness.note(Did.STARTED, now_ns(), now_ns())
    writer = threading.Thread(target=write_all_the_time, args=(seat, witness, stopping), name="chaos-writer")
    writer.start()
    try:
        ask_all_the_time(seat, witness, stopping, session)
    finally:
        stopping.set()
        seat.close(_CLOSE_LIMIT)
        writer.join(_CLOSE_LIMIT.total_seconds())
        os._exit(0 if not writer.is_alive() else 3)


if __name__ == "__main__":
    main(*sys.argv[1:])
