"""Messages between a worker and its executor: JSON documents over a socket.

Orders are passed as files in memory, because they can be larger than a message. When an attempt is done, the
executor sends `{"attempt": ..., "refused": why or null, "outcome": outcome or null}`; when storage does not
accept logs, or accepts them again, `{"unstored": number of logs, "error": text}`; and when modules cannot be
preloaded, `{"not_preloaded": text}`.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.runs.task_run import Outcome
from nimbus.records import ASSIGNMENT
from nimbus.worker.host.loop import Loop
from nimbus.worker.launcher import memory_file
from nimbus.worker.settings import RunnerPlan, encode_plan, read_plan

_LONGEST_WHY = 1000
_LONGEST_ANSWER = 16 << 10
"""A character of a reason is up to 12 bytes in JSON."""
_FULL_PAUSE_S = 0.05
_NOBODY_READS = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF})
"""Errors if the reader has ended, or we have closed the connection."""
_FULL = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM})
"""Errors that pass when the reader reads, or the host has memory again."""


def connected() -> tuple[socket.socket, socket.socket]:
    """The worker's and the executor's end. Neither blocks, because the other process may be stopped."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)  # `recv_fds` of Python 3.11 drops flags
    return ends


def send_order(executor: socket.socket, order: Assignment, plan: RunnerPlan) -> None:
    """Send an order to run an attempt. BlockingIOError: try again later; OSError: the executor has ended."""
    with memory_file(encode_plan(plan) + ASSIGNMENT.encode(order)) as file:
        socket.send_fds(executor, [b"run"], [file])


def receive_order(worker: socket.socket) -> tuple[Assignment, RunnerPlan] | None:
    """The next order; None: the worker has ended. BlockingIOError: there is none."""
    message, files, _, _ = socket.recv_fds(worker, 16, 1)
    if not message:
        return None
    with os.fdopen(files[0], "rb") as file:
        plan = read_plan(file)
        return ASSIGNMENT.decode(file.read(), "order"), plan


class Answer(NamedTuple):
    """The executor is done with an attempt."""

    attempt: str
    refused: str | None = None
    outcome: Outcome | None = None

    def encode(self) -> bytes:
        """As a message."""
        refused = self.refused and self.refused[:_LONGEST_WHY]
        return json.dumps({"attempt": self.attempt, "refused": refused, "outcome": self.outcome}).encode()


@dataclass(frozen=True, slots=True)
class Unstored:
    """Logs of the executor's attempts that storage did not accept."""

    count: int = 0
    error: str = ""
    """Why the last one was not accepted; empty: storage accepts logs."""

    def encode(self) -> bytes:
        """As a message."""
        return json.dumps({"unstored": self.count, "error": self.error[:_LONGEST_WHY]}).encode()


@dataclass(frozen=True, slots=True)
class NotPreloaded:
    """Modules of `worker.preload` that the zygote cannot import, each with the reason; empty: none."""

    text: str = ""

    def encode(self) -> bytes:
        """As a message."""
        return json.dumps({"not_preloaded": self.text[:_LONGEST_WHY]}).encode()


def receive_answer(executor: socket.socket) -> Answer | Unstored | NotPreloaded | None:
    """The next answer; None: the executor has ended. BlockingIOError: there is none."""
    message = executor.recv(_LONGEST_ANSWER)
    if not message:
        return None
    answer = json.loads(message)
    if "unstored" in answer:
        return Unstored(answer["unstored"], answer["error"])
    if "not_preloaded" in answer:
        return NotPreloaded(answer["not_preloaded"])
    outcome = answer["outcome"]
    return Answer(answer["attempt"], answer["refused"], None if outcome is None else Outcome(outcome))


class SendQueue:
    """Sends messages in order to a process that may not read them now; never blocks. Loop thread."""

    def __init__(self, connection: socket.socket, loop: Loop) -> None:
        """`connection` must be non-blocking."""
        self._connection, self._loop = connection, loop
        self._waiting: deque[bytes] = deque()

    def send(self, message: bytes) -> None:
        """Send now, or when the socket is writable. Does nothing if the reader has ended.

        Raises OSError: the message can never be sent, such as one that is too long.
        """
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._send()

    def _send(self) -> None:
        while self._waiting:
            try:
                self._connection.send(self._waiting[0])
            except OSError as exc:
                if exc.errno in _NOBODY_READS:
                    self._waiting.clear()
                    return
                if exc.errno not in _FULL:
                    raise
                self._loop.after(_FULL_PAUSE_S, self._send)
                return
            self._waiting.popleft()
