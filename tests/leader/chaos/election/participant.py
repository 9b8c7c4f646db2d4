"""One participant process: it calls `is_leader()`, writes, and keeps a history, until SIGTERM.

    python -m tests.leader.chaos.election.participant HOSTS ROOT NAME SESSION_S HISTORY [PACE]

Main thread: calls `is_leader()` continuously. Thread `chaos-writer`: writes with the token of the current
leadership. When that has ended, it continues with the old token until it is refused.
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
from tests.leader.chaos.election.history_lines import Did, Line, Pen
from tests.leader.chaos.election.seat import OutcomeUnknownError, Seat

_ASK_EVERY_S = 0.005
_WRITE_EVERY_S = 0.02
_ON_ITS_WAY_NS = 100_000_000
"""How long a call to the electable may wait for its thread."""
_CLOSE_LIMIT = timedelta(seconds=5)


def now_ns() -> int:
    """CLOCK_BOOTTIME: it continues while the machine sleeps, and all processes share it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Witness:
    """Writes the history."""

    def __init__(self, name: str, boot: str, pen: Pen) -> None:
        self._name, self._boot, self._pen = name, boot, pen
        self.awake_ns = self._told_ns = now_ns()
        """A time at which the process was certainly not stopped."""

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
        """Record a call to the electable. The call is late if the process was stopped just before."""
        before = max(self._told_ns + 1, self.awake_ns - _ON_ITS_WAY_NS)
        self._told_ns = now_ns()
        did = Did.CONFIRMED if word == "elected" else Did.REVOKED
        self.note(did, before, self._told_ns, epoch=epoch, why=why)


def ask_all_the_time(
    seat: Seat, witness: Witness, stopping: threading.Event, session: timedelta, every_s: float
) -> None:
    """Call `is_leader()` until the end. Of answers False, only those with new information are recorded."""
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
        witness.awake_ns = after
        stopping.wait(every_s)


def write_all_the_time(seat: Seat, witness: Witness, stopping: threading.Event, every_s: float) -> None:
    """Write with the newest token until it is refused, and once more with a token that was replaced."""
    token: FencingToken | None = None
    while not stopping.wait(every_s):
        newest = seat.token()
        if newest is not None and newest != token:
            old, token = token, newest
            if old is not None:
                _write(seat, witness, old)
        if token is not None and not _write(seat, witness, token):
            token = None


def _write(seat: Seat, witness: Witness, token: FencingToken) -> bool:
    """Write once. Returns False if the token is void."""
    before = now_ns()
    try:
        zxid = seat.write(token, str(token.epoch).encode())
    except OutcomeUnknownError:
        witness.note(Did.UNKNOWN, before, now_ns(), epoch=token.epoch)
        return True
    witness.note(Did.FENCED if zxid is None else Did.WROTE, before, now_ns(), epoch=token.epoch, zxid=zxid)
    return zxid is not None


def main(hosts: str, root: str, name: str, session_s: str, history: str, pace: str = "1") -> None:
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
    write_every_s, ask_every_s = _WRITE_EVERY_S * float(pace), _ASK_EVERY_S * float(pace)
    writer = threading.Thread(
        target=write_all_the_time, args=(seat, witness, stopping, write_every_s), name="chaos-writer"
    )
    writer.start()
    try:
        ask_all_the_time(seat, witness, stopping, session, ask_every_s)
    finally:
        stopping.set()
        seat.close(_CLOSE_LIMIT)
        writer.join(_CLOSE_LIMIT.total_seconds())
        os._exit(0 if not writer.is_alive() else 3)


if __name__ == "__main__":
    main(*sys.argv[1:])
