"""Deletes outputs: those of purged runs, and those of unsuccessful attempts, which no END names or ever will.

An attempt that was fenced, failed during an upload, or went on as a zombie leaves such objects. The run's
record tells them: a prefix of an unknown run may belong to something else, and stays. S3 has no fencing
tokens, so leadership is checked right before each request that deletes. Thread `nimbus-collector`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain, islice
from pathlib import Path

import structlog

from blobsync import BlobSyncError, ObjectStore, valid_objects
from nimbus.domain.data.outputs import OutputsNotHereError
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import RunId, TaskName, pipeline_name, run_id
from nimbus.domain.runs.purge import Purged
from nimbus.domain.runs.run import Run
from nimbus.ports import Clock
from nimbus.records import UnreadableRecordError
from nimbus.telemetry.daemon import GarbageMetrics
from nimbus.worker.data.folder_checks import why_not_ours
from nimbus.worker.data.manifest import is_manifest, parts_of
from nimbus.worker.host.files import remove_tree

_log = structlog.get_logger(__name__)


class BucketOutputs:
    """Outputs in a bucket. The keys of `store` are relative to `worker.data`."""

    def __init__(self, store: ObjectStore, leads: Callable[[], bool], metrics: GarbageMetrics) -> None:
        self._store, self._leads, self._deleted = store, leads, partial(metrics.deleted, "outputs")

    def delete(self, purged: Purged) -> bool:
        return delete_with_uploads(
            self._store, f"{purged.pipeline}/{purged.run}/", self._leads, self._deleted
        )


class FolderOutputs:
    """Outputs in a folder that all workers share. The arguments are as of `why_not_here`."""

    def __init__(self, folder: Path | None, recorded: Callable[[str], str], metrics: GarbageMetrics) -> None:
        self._folder, self._recorded, self._metrics = folder, recorded, metrics

    def delete(self, purged: Purged) -> bool:
        """Without its mark a folder is not the cluster's."""
        why = why_not_here(self._folder, self._recorded)
        if self._folder is None or why:
            raise OutputsNotHereError(
                f"outputs of run {purged.run} are not deleted: this scheduler has {why}"
            )
        # The names are checked again, because they become a path that is deleted.
        place = self._folder / pipeline_name(purged.pipeline) / run_id(purged.run)
        sizes = list(_sizes(place))
        if place.is_dir():
            remove_tree(place)
        if os.path.lexists(place):
            raise OSError(f"{place} cannot be deleted: check that the scheduler's user may")
        self._metrics.deleted("outputs", len(sizes), sum(sizes))
        return True


def why_not_here(folder: Path | None, recorded: Callable[[str], str]) -> str:
    """What this scheduler has instead of the cluster's folder of outputs; empty: it has that folder.

    `folder` is `worker.data`, if it is configured; `recorded`: see `nimbus.ports.Registrations.data_mark`.
    """
    if folder is not None and recorded(""):  # else the folder would be made and marked
        return why_not_ours(folder, recorded)
    return "no worker.data in its configuration, or one that no worker uses"


def _sizes(place: Path) -> Iterator[int]:
    """The sizes of the files below a folder, at any depth that a path can name. Links are not followed."""
    folders = [str(place)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_size


_AT_A_TIME = 1000
"""Number of keys in a batch. Leadership is checked before each batch."""


def delete_below(
    store: ObjectStore,
    prefix: str,
    leads: Callable[[], bool],
    deleted: Callable[[int, int], None],
    start_after: str | None = None,
) -> bool:
    """Delete the objects that exist now, except those under keys that only other programs make.

    `deleted` is called with the number and the total bytes of deleted objects. Returns False if we no longer
    lead: objects may be left.
    """
    objects = valid_objects(store, prefix, start_after)
    while batch := list(islice(objects, _AT_A_TIME)):
        if not leads():
            return False
        store.delete_many([info.key for info in batch])
        deleted(len(batch), sum(info.size_bytes for info in batch))
    return True


def delete_with_uploads(
    store: ObjectStore, prefix: str, leads: Callable[[], bool], deleted: Callable[[int, int], None]
) -> bool:
    """As `delete_below`, and abort unfinished uploads."""
    if not delete_below(store, prefix, leads, deleted) or not leads():
        return False
    store.abandon_uploads(prefix, timedelta(0))
    return True


_NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PREFIX = re.compile(
    f"(?P<prefix>{_NAME}/(?P<run>{_NAME})/(?P<task>{_NAME})/(?P<number>[0-9]{{1,9}})-[0-9a-f]{{16}})/"
)


class LostOutputs:
    """Collections of one bucket of outputs, with keys relative to `worker.data`. One thread.

    A prefix is deleted when it is still lost for `grace` after it was first found lost. `runs` reads a run,
    live or in history. `leads` is called right before each request that deletes, `deleted` with the number
    and the total bytes of deleted objects.
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
