"""The log of a runner or an executor: JSON lines on standard error, a file on the worker's disk.

That disk may be full, so logging never raises. Called from the main thread, before other threads start.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn, TextIO, cast

import structlog

EXIT_FAILED = 70
_log = structlog.get_logger(__name__)


class _SafeStream:
    """Writes to a stream. Text that cannot be written, because the disk is full, is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure_log() -> None:
    """Write log lines as JSON to standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _SafeStream(sys.stderr))),
    )


def end_with_any_thread() -> None:
    """End this process when an exception ends one of its threads: a worker then settles its attempts.

    Call it after the driver was forked, because user code may lose a thread.
    """
    threading.excepthook = _end_process


def _end_process(args: threading.ExceptHookArgs) -> None:
    try:
        name = args.thread.name if args.thread is not None else "unknown"
        _log.error("thread_failed", thread=name, exc_info=args.exc_value)
    finally:
        leave(EXIT_FAILED)


def leave(status: int) -> NoReturn:
    """Exit without the interpreter's shutdown: it costs more than a run, and waits for threads."""
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)
