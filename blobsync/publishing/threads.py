"""The threads of a publish. Jobs count what they do; the caller's thread waits, and tells the progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

from blobsync.bucket.ports import StoppedError
from blobsync.progress import Meter, Progress

THREADS = 6
HASHERS = 4
_TELL_S = 0.1

Result = TypeVar("Result")


class Threads:
    """Run jobs; the first error ends all of them. Entered once.

    Args:
        stopping: Set at the end, so that after an error or Ctrl-C the other jobs end soon.
        progress: Called by the thread that calls `run`, about ten times a second and at the end.
    """

    def __init__(self, stopping: threading.Event, progress: Callable[[Progress], None] | None) -> None:
        self._stopping, self._progress = stopping, progress
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="blobsync-publish")
        self.packer = ThreadPoolExecutor(1, thread_name_prefix="blobsync-pack")

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all threads."""
        self._stopping.set()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.packer.shutdown(wait=True)

    @property
    def is_watched(self) -> bool:
        """True if there is a callback for progress."""
        return self._progress is not None

    def run(self, jobs: Iterable[Callable[[], Result]], *meters: Meter) -> list[Result]:
        """Run jobs and wait for all of them. Results are in the order of the jobs.

        Raises:
            Exception: the first error of a job.
        """
        futures = [self.pool.submit(job) for job in jobs]
        pending: set[Future[Result]] = set(futures)
        while pending:
            done, pending = wait(pending, timeout=_TELL_S, return_when=FIRST_EXCEPTION)
            _raise_first(done)
            if pending:
                self._tell(meters)
        self._tell(meters)
        return [future.result() for future in futures]

    def _tell(self, meters: Iterable[Meter]) -> None:
        if self._progress is not None:
            for meter in meters:
                self._progress(meter.now())


def _raise_first(done: set[Future[Result]]) -> None:
    errors = [error for future in done if (error := future.exception()) is not None]
    # A job that was stopped because of another job's error does not know the cause.
    for error in sorted(errors, key=lambda error: isinstance(error, StoppedError)):
        raise error
