"""What a driver in a cluster reports through the gateway: its log, progress, checkpoints, event log and END.

The task writes the files that are read here, so links are not followed, and pipes do not block.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from nimbus.attempt import model as m
from nimbus.checkpoint import FILE as CHECKPOINT
from nimbus.checkpoint import LARGEST_BYTES
from nimbus.worker.application.gateway import Gateway, GatewayRefusedError, GatewayUnreachableError, as_object
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.files import open_untrusted, read_untrusted

END_PATIENCE_S = 6 * 3600.0
"""How long the upload of an output, and END, are retried."""
_HEARTBEAT_S = 3.0
_LOG_POLL_S = 1.0
_LOG_PIECE_BYTES = 128 << 10
_TAIL_BYTES = 64 << 10
_LOG_PATIENCE_S = 30.0
_LARGEST_EVENT_LOG = 64 << 20
_EVENT_LOG_PATIENCE_S = 180.0
_LARGEST_PROGRESS = 32 << 10


def say(text: str) -> None:
    """Write a line to the driver's own output, which the cluster stores, unless its disk is full."""
    with suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


class LogThread:
    """Sends the task's log, piece by piece. Pieces that cannot be sent are retried for a limited time."""

    def __init__(self, gateway: Gateway, nonce: str, log: Path) -> None:
        self._gateway, self._nonce, self._log = gateway, nonce, log
        self._complete = threading.Event()
        self._given_up = threading.Event()
        self._sent = 0
        self._thread = threading.Thread(target=self._run, name="bootstrap-log", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Send the rest, with retries for at most `_LOG_PATIENCE_S`."""
        self._complete.set()
        self._thread.join(_LOG_PATIENCE_S)
        self._given_up.set()

    def _run(self) -> None:
        while not self._given_up.is_set():
            complete = self._complete.wait(_LOG_POLL_S)
            try:
                while self._send_piece():
                    pass
            except GatewayRefusedError as exc:
                say(f"nimbus: the log is not stored: {exc}")
                return
            except (GatewayUnreachableError, OSError):
                self._given_up.wait(_LOG_POLL_S)
            else:
                if complete:
                    return

    def _send_piece(self) -> bool:
        with open_untrusted(self._log) as log:
            log.seek(self._sent)
            piece = log.read(_LOG_PIECE_BYTES)
        if not piece:
            return False
        answer = self._gateway.send("log", piece, f"&offset={self._sent}&nonce={self._nonce}")
        if not answer.get("stored"):
            raise GatewayRefusedError("it is too long, or the attempt is over")
        self._sent += len(piece)
        sys.stdout.buffer.write(piece)  # for the cluster's own pages
        sys.stdout.flush()
        return True


class HeartbeatThread:
    """Sends the task's progress and new checkpoints; receives stop requests and schedulers' addresses."""

    def __init__(self, gateway: Gateway, nonce: str, work: Path, schedulers: Path) -> None:
        self._gateway, self._nonce, self._work, self._schedulers = gateway, nonce, work, schedulers
        self._kept: str | None = None
        self._ended = threading.Event()
        self.answers: SimpleQueue[m.BoardRead] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bootstrap-heartbeats", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop, after END was accepted. A heartbeat in progress is abandoned."""
        self._ended.set()

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(_HEARTBEAT_S if number else 0.0):
            number += 1
            with suppress(GatewayUnreachableError, GatewayRefusedError):
                checkpoint = text_in(self._work / CHECKPOINT)
                new = None if checkpoint == self._kept else checkpoint
                progress = progress_in(self._work / "progress.json")
                said = {"nonce": self._nonce, "number": number, "progress": progress, "checkpoint": new}
                asked_s, answer = boottime_s(), self._gateway.post("beat", said, 0.0)
                self._note_schedulers()
                holder = m.ClaimHolder.OURS if answer.get("claimed", True) else m.ClaimHolder.NONE
                if holder is m.ClaimHolder.OURS:
                    self._kept = checkpoint
                is_over, is_stopped = bool(answer.get("outdated")), bool(answer.get("stop"))
                self.answers.put(m.BoardRead(holder, asked_s, is_over, is_stopped))

    def _note_schedulers(self) -> None:
        with suppress(OSError):  # the folder is created after the first heartbeat
            part = self._schedulers.with_suffix(".part")
            part.write_text(json.dumps(self._gateway.endpoints))
            part.replace(self._schedulers)


def progress_in(file: Path) -> dict[str, Any]:
    """The task's progress; empty if there is none that can be read."""
    with suppress(OSError, ValueError, RecursionError):
        return as_object(io.BytesIO(read_untrusted(file, _LARGEST_PROGRESS) or b""))
    return {}


def text_in(file: Path) -> str | None:
    """The text of a task's result or checkpoint, truncated if it is too large; None without a file."""
    with suppress(OSError), open_untrusted(file) as given:
        return given.read(LARGEST_BYTES + 1).decode(errors="replace")
    return None


def tail_of(log: Path) -> str:
    """The end of the log, which contains the error. Its size as JSON is limited."""
    try:
        with open_untrusted(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:  # the task has removed or replaced it
        return ""
    while len(json.dumps(tail)) > _TAIL_BYTES:
        tail = tail[len(tail) // 4 :]
    return tail


def send_event_log(gateway: Gateway, nonce: str, work: Path) -> None:
    """Send Spark's last event log. If it cannot be sent, it stays in the cluster."""
    try:
        logs = sorted(work.glob("*.zstd*"), key=lambda file: file.lstat().st_mtime_ns)
        if not logs:
            return
        with open_untrusted(logs[-1]) as file:
            if os.fstat(file.fileno()).st_size <= _LARGEST_EVENT_LOG:
                _send_events(gateway, nonce, file)
    except (GatewayRefusedError, GatewayUnreachableError, OSError) as exc:
        say(f"nimbus: the event log is not stored: {exc}")


def _send_events(gateway: Gateway, nonce: str, file: BinaryIO) -> None:
    until_s = time.monotonic() + _EVENT_LOG_PATIENCE_S
    while piece := file.read(_LOG_PIECE_BYTES):
        if time.monotonic() > until_s:
            raise GatewayUnreachableError(f"it takes longer than {_EVENT_LOG_PATIENCE_S:g} s")
        offset = file.tell() - len(piece)
        if not gateway.send("log", piece, f"&kept=events&offset={offset}&nonce={nonce}").get("stored"):
            raise GatewayRefusedError("it is too long, or the attempt is over")


def deliver(gateway: Gateway, report: dict[str, Any]) -> int:
    """Report END, with retries; return the exit code of this process."""
    status = report["status"]
    try:
        try:
            gateway.post("end", report, END_PATIENCE_S)
        except GatewayRefusedError:  # a text from the task has an unexpected form
            fault = "its output was not kept" if report.get("not_flushed") else ""
            gateway.post("end", {**report, "log_tail": "", "not_flushed": fault}, END_PATIENCE_S)
    except (GatewayRefusedError, GatewayUnreachableError) as exc:
        say(f"nimbus: the end could not be reported: {exc}")
    if status is None:
        return 1
    return 128 - status if status < 0 else int(status)
