"""One collection of garbage: in the bucket, by the leader alone, and on this disk, by every daemon.

Each collection reads the releases in use again from ZooKeeper (`live_releases`). If they cannot be read, or
there are none, nothing is collected: missing data is never a reason to delete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import structlog

from blobsync import (
    BlobSyncError,
    CollectionPolicy,
    CollectionReport,
    GcRefusedError,
    LocalStore,
    ObjectStore,
    Progress,
    ReleaseRef,
    RetryPolicy,
    WorkPhase,
    collect_garbage,
    gc,
)
from nimbus.adapters.store.cluster import TreeWholeState
from nimbus.config.sections import ArtifactsSection
from nimbus.domain.commands import ActivatePipeline, CreateBackfill, PublishRelease, StartRun
from nimbus.domain.errors import NimbusError
from nimbus.domain.runs.run import Run
from nimbus.telemetry.daemon import GarbageMetrics, Outcome, Where

_log = structlog.get_logger(__name__)


def bucket_policy(artifacts: ArtifactsSection) -> CollectionPolicy:
    """The policy of collections in the bucket."""
    return CollectionPolicy(
        grace=artifacts.gc_grace,
        keep_age=artifacts.gc_keep_age,
        keep_newest=artifacts.gc_keep_newest,
        max_share=artifacts.gc_max_share,
    )


class BucketGarbage:
    """Collections in the bucket. They may be called only while this scheduler leads.

    S3 has no fencing tokens. So right before each request that deletes, leadership is checked, and also that
    no release has come into use since the collection began. A process that is suspended between the check and
    the request can still send that one request. It only names objects that had been garbage for the grace.

    `leads` becomes False by itself when leadership may have ended.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        state: TreeWholeState,
        leads: Callable[[], bool],
        artifacts: ArtifactsSection,
        retry: RetryPolicy,
        metrics: GarbageMetrics,
        collect: Callable[..., CollectionReport] = collect_garbage,
    ) -> None:
        self._store, self._state, self._leads = store, state, leads
        self._policy, self._retry = bucket_policy(artifacts), retry
        self._metrics, self._collect = metrics, collect

    def collect(self, stopping: threading.Event) -> None:
        """Collect once. Expected errors are logged and counted, not raised."""
        if not self._leads():
            return
        with _Told("bucket", self._metrics) as told:
            keep = live_releases(self._state)
            _log.info("collection_started", where="bucket", in_use=len(keep))
            report = self._collect(
                self._store,
                keep,
                policy=self._policy,
                retry=self._retry,
                stopping=stopping,
                may_delete=lambda: self._may_delete(keep),
                progress=self._progress,
            )
            deleted = report.deleted.values()
            size_bytes = sum(tally.size_bytes for tally in deleted)
            self._metrics.deleted("bucket", sum(tally.count for tally in deleted), size_bytes)
            if report.missing_count:
                _log.warning(
                    "releases_lack_objects", count=report.missing_count, first=list(report.missing[:3])
                )
            _log.info("collection_finished", where="bucket", **report.as_data())
            told.outcome = _outcome(report)

    def _may_delete(self, keep: frozenset[ReleaseRef]) -> bool:
        if not self._leads():
            return False
        try:
            fresh = live_releases(self._state) - keep
        except NimbusError as exc:
            _log.warning("collection_broken_off", because=str(exc))
            return False
        if fresh:
            _log.info(
                "collection_broken_off", because="releases came into use", releases=sorted(map(str, fresh))
            )
        return not fresh and self._leads()

    def _progress(self, progress: Progress) -> None:
        self._metrics.progress(progress.done_count, progress.total_count)
        if progress.phase is WorkPhase.DELETING:
            _log.info("collection_deletes", done=progress.done_count, total=progress.total_count)


class LocalGarbage:
    """Collections on this disk. A deleted release is fetched again when it is needed again."""

    def __init__(
        self,
        *,
        store: LocalStore,
        state: TreeWholeState,
        artifacts: ArtifactsSection,
        metrics: GarbageMetrics,
    ) -> None:
        self._store, self._state, self._metrics = store, state, metrics
        self._grace = artifacts.local_gc_grace

    def collect(self, _stopping: threading.Event) -> None:
        """Collect once. Expected errors are logged and counted, not raised."""
        with _Told("disk", self._metrics) as told:
            keep = {ref.digest for ref in live_releases(self._state)}
            # There is no limit of the share: with one pipeline, all but its newest release may be garbage.
            report = gc(self._store, keep, grace=self._grace, max_share=1.0)
            self._metrics.deleted("disk", len(report.removed), report.freed_bytes)
            log = _log.info if report.removed or report.objects_kept_because else _log.debug
            log(
                "collection_finished",
                where="disk",
                removed=len(report.removed),
                freed_bytes=report.freed_bytes,
                marked=len(report.marked),
                objects_kept_because=report.objects_kept_because,
            )
            told.outcome = "done"


class _Told:
    """Turns the end of a collection into an outcome, and errors into log lines."""

    def __init__(self, where: Where, metrics: GarbageMetrics) -> None:
        self._where, self._metrics = where, metrics
        self.outcome: Outcome = "failed"

    def __enter__(self) -> _Told:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        expected = error is None or isinstance(error, BlobSyncError | NimbusError)
        if isinstance(error, GcRefusedError | NothingKnownError):
            self.outcome = "refused"
        if error is not None and expected:
            event = "collection_refused" if self.outcome == "refused" else "collection_failed"
            _log.warning(event, where=self._where, error=str(error))
        self._metrics.ended(self._where, self.outcome)
        return expected


def _outcome(report: CollectionReport) -> Outcome:
    if report.is_stopped:
        return "stopped"
    return "postponed" if report.postponed else "done"


class NothingKnownError(NimbusError):
    """The catalog is empty. The usual cause is a wrong `cluster.root` or a lost ensemble."""

    code = "nothing_known"
    exit_code = 4

    def __init__(self) -> None:
        super().__init__(
            "the catalog names no pipeline, so nobody knows which releases are in use; nothing is collected. "
            "Check cluster.root and zookeeper.hosts; if the cluster is new, publish a pipeline first"
        )


def live_releases(state: TreeWholeState) -> frozenset[ReleaseRef]:
    """Releases of all pipelines in the catalog, of runs that have not ended, and of waiting commands.

    They are read in the order in which a release moves: from a command into the catalog, and from there into
    a run. So a release that moves between two reads is seen by the later read.

    Raises:
        NothingKnownError: the catalog is empty.
        StoreUnavailableError: ZooKeeper does not answer.
        UnreadableRecordError: a record of a pipeline or a run cannot be read: it may name releases in use.
    """
    waiting = [
        ReleaseRef(command.pipeline, digest)
        for queued in state.all_commands()
        if isinstance(
            command := queued.command, PublishRelease | ActivatePipeline | CreateBackfill | StartRun
        )
        and (digest := command.release if isinstance(command, StartRun) else command.digest) is not None
    ]
    records = state.all_pipelines()
    if not records:
        raise NothingKnownError
    known = [
        ReleaseRef(record.name, digest)
        for record in records
        for digest in (record.release, record.published, *record.pinned)
        if digest is not None
    ]
    live = [run for run in state.all_runs() if not run.state.is_final]
    running = [ReleaseRef(run.pipeline, run.release) for run in live]
    return frozenset((*waiting, *known, *running, *_of_children(live)))


def _of_children(live: Iterable[Run]) -> Iterator[ReleaseRef]:
    for run in live:
        for task in run.tasks.in_order():
            spec = task.spec.children
            if spec is not None and spec.release is not None and not task.state.is_final:
                yield ReleaseRef(spec.pipeline, spec.release)
