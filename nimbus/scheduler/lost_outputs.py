"""Deletes outputs of unsuccessful attempts: objects below prefixes that no END names or ever will name.

An attempt that was fenced, failed during an upload, or went on as a zombie leaves such objects. No task reads
them. They are recognised by the run's record, live or in history: a prefix of an unknown run may belong to
something else, and stays. Thread `nimbus-collector` of the leader.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain

import structlog

from blobsync import BlobSyncError, ObjectStore
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.run import Run
from nimbus.ports import Clock
from nimbus.records import UnreadableRecordError
from nimbus.scheduler.deleting import delete_with_uploads
from nimbus.worker.data.manifest import is_manifest, parts_of

_NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PREFIX = re.compile(
    f"(?P<prefix>{_NAME}/(?P<run>{_NAME})/(?P<task>{_NAME})/(?P<number>[0-9]{{1,9}})-[0-9a-f]{{16}})/"
)

_log = structlog.get_logger(__name__)


class LostOutputs:
    """Collections of one bucket of outputs. One thread.

    Args:
        store: The bucket; its keys are relative to `worker.data`.
        runs: Reads a run, live or in history; None: it is not known.
        leads: Returns True while we lead. Called right before each request that deletes.
        clock: Measures the grace.
        grace: A prefix is deleted when it is still lost this long after it was first found lost.
        deleted: Called with the number and the total bytes of deleted objects.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        runs: Callable[[RunId], Run | None],
        leads: Callable[[], bool],
        clock: Clock,
        grace: timedelta,
        deleted: Callable[[int, int], None] = lambda _count, _bytes: None,
    ) -> None:
        self._store, self._runs, self._leads, self._clock = store, runs, leads, clock
        self._grace, self._deleted = grace, deleted
        self._lost_since_s: dict[str, float] = {}
        """When this process first found each prefix lost."""
        self._run: tuple[RunId, Run | None] | None = None
        """The run that was read last."""

    def collect(self, stopping: threading.Event) -> None:
        """Collect once. Expected errors are logged, not raised."""
        try:
            self._collect(stopping)
        except (BlobSyncError, NimbusError) as exc:
            _log.warning("collection_failed", where="outputs", error=str(exc))

    def _collect(self, stopping: threading.Event) -> None:
        self._run = None
        now_s = self._clock.elapsed_s()
        lost = [prefix for prefix in self._prefixes() if not stopping.is_set() and self._is_lost(prefix)]
        if stopping.is_set():
            return
        self._lost_since_s = {prefix: self._lost_since_s.get(prefix, now_s) for prefix in lost}
        for prefix, since_s in list(self._lost_since_s.items()):
            if now_s - since_s < self._grace.total_seconds():
                continue
            if stopping.is_set() or not self._delete(prefix):
                return
            del self._lost_since_s[prefix]

    def _prefixes(self) -> Iterator[str]:
        """Prefixes of attempts with objects or unfinished uploads. A prefix may occur several times."""
        before = ""
        uploads = (upload.key for upload in self._store.unfinished_uploads(""))
        for key in chain((info.key for info in self._store.list("")), uploads):
            match = _PREFIX.match(key)
            if match is not None and match["prefix"] != before:
                before = match["prefix"]
                yield before

    def _is_lost(self, prefix: str) -> bool:
        if self._run is None or self._run[0] != prefix.split("/")[1]:  # listings are sorted
            run_id = RunId(prefix.split("/")[1])
            self._run = run_id, self._read(run_id)
        run = self._run[1]
        return run is not None and is_lost(run, prefix)

    def _read(self, run: RunId) -> Run | None:
        try:
            return self._runs(run)
        except UnreadableRecordError as exc:  # the run's outputs stay
            _log.error("record_unreadable", place=exc.place, error=str(exc))
            return None

    def _delete(self, prefix: str) -> bool:
        """Delete the objects that exist now; False: we no longer lead."""
        if not delete_with_uploads(self._store, f"{prefix}/", self._leads, self._deleted):
            return False
        _log.info("output_deleted", prefix=prefix)
        return True


def is_lost(run: Run, prefix: str) -> bool:
    """True when no END of a run names a prefix, and none ever will.

    An outdated record is safe: it may show an ended attempt as open, but never an open one as ended.
    """
    match = _PREFIX.match(f"{prefix}/")
    task = run.tasks.get(TaskName(match["task"])) if match is not None else None
    if match is None or task is None or not task.attempts:
        return False
    named = {attempt.output for attempt in task.attempts if attempt.output is not None}
    if prefix in {parts_of(reference)[0] for reference in named if is_manifest(reference)}:
        return False
    last = task.attempts[-1]
    return int(match["number"]) < last.number or (
        int(match["number"]) == last.number and last.outcome is not None
    )
