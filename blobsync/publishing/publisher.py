"""Publishes a release: packs and blobs first, the manifest last, so that readers see all of it or nothing.

The order: `_hashed` (files to manifest), `_plan` (which packs are used again), `Uploader` (what the store
lacks), `_make_visible`. Only bytes that were hashed just before are uploaded, so a file that changes
meanwhile is never stored under the digest of other bytes. Two publishers at once do no harm: packs, blobs
and manifests are named by their content; layouts may differ, but each of them is right. After a kill, publish
again: objects that the store has are not sent again.

Threads: six called `blobsync-publish` hash, ask and upload, one called `blobsync-pack` packs, and one called
`blobsync-publish-lease` renews the lease. All end with the call.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from blobsync.bucket import keys
from blobsync.bucket.leases import BucketLease, publish_lease
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import stored_manifest
from blobsync.errors import LocalStoreError, StoppedError
from blobsync.progress import Meter, Progress, WorkPhase
from blobsync.publishing.hashing import READ_BYTES, hash_file
from blobsync.publishing.packing import PublishStore, Uploader, UploadResult
from blobsync.publishing.reuse import PackPlan, known_packs, pack_limits, plan_packs
from blobsync.publishing.sources import SourceFile
from blobsync.release.layout import MAX_PUBLISHER_CHARS, Layout, Pack
from blobsync.release.manifest import Artifact, Manifest
from blobsync.retry import RetryPolicy

THREADS = 6
HASHERS = 4
_TELL_S = 0.1

Result = TypeVar("Result")
OnPhase = Callable[[Progress], None] | None
"""Called in the caller's thread; see `publish`."""


@dataclass(frozen=True, slots=True)
class PublishedRelease:
    """What was published; after a dry run, what would have been published.

    Attributes:
        digest: Digest of the manifest; names the release.
        layout: The packs of its small files.
        uploaded_bytes: Size of distinct blobs that the store lacked, before compression.
        reused_bytes: Size of distinct blobs that the store had.
        uploaded_count: Number of distinct blobs that the store lacked.
        reused_count: Number of distinct blobs that it had.
        sent_bytes: Size of all objects that were written, as stored: packs, blobs, layout, manifest.
        packs_written: Packs that were made and sent.
    """

    digest: str
    manifest: Manifest
    layout: Layout
    uploaded_bytes: int
    reused_bytes: int
    uploaded_count: int
    reused_count: int
    sent_bytes: int
    packs_written: tuple[Pack, ...]
    dry_run: bool


def publish(
    store: ObjectStore,
    *,
    name: str,
    files: Sequence[SourceFile],
    progress: Callable[[Progress], None] | None = None,
    retry: RetryPolicy | None = None,
    published_by: str | None = None,
    dry_run: bool = False,
    repair: bool = False,
    scratch: Path | None = None,
) -> PublishedRelease:
    """Upload what the store lacks of these files, then their layout and manifest.

    To wait until some hosts have it, make it wanted and call `blobsync.replicas.wait_for_replicas`: hosts
    fetch only what is wanted, and the caller decides whether enough of them have it.

    Args:
        store: The bucket.
        name: Name of the release, such as that of a pipeline.
        files: The files, as returned by `collect`.
        progress: Called in this thread, about ten times a second, and at the end of each phase.
        retry: For each call to the store. A large upload is retried as long as it advances.
        published_by: The publisher, for people; default: user and host.
        dry_run: Report what would be sent, and write nothing.
        repair: Send everything again, since objects in the store may be damaged.
        scratch: A folder for temporary files: up to six packs or copies of files, two of them of files
            above 64 MiB. Default: the one for temporary files.

    Raises:
        SourceChangedError: a file changed meanwhile. No release became visible.
        UnsafeSourceError: a file is not a regular file any more.
        InvalidManifestError: these files cannot be one release.
        InvalidLayoutError: `published_by` is not a printable text of up to 200 characters.
        LocalStoreError: a file cannot be read, or `scratch` has no room.
        PublishLapsedError: the lease could not be kept.
        BucketUnavailableError, BucketAccessDeniedError, BucketMissingError: see `ObjectStore`.
    """
    who = published_by if published_by is not None else _whoever()
    Layout((), who, datetime.now(UTC))  # raises before any work is done
    policy = retry if retry is not None else RetryPolicy()
    bucket = PublishStore(store, policy, threading.Event(), dry_run=dry_run)
    with _threads(bucket.stopping) as (pool, packer):
        manifest, sources = _hashed(name, files, bucket, pool, progress)
        held: AbstractContextManager[BucketLease | None] = (
            nullcontext() if dry_run else publish_lease(bucket, subject=name, holder=who)
        )
        with held as lease:
            bucket.read_condemned()
            plan = _plan(manifest, bucket, pool, repair=repair)
            uploader = Uploader(
                bucket, sources, scratch=scratch, repair=repair, limits=_limits(manifest), packer=packer
            )
            jobs = uploader.jobs(manifest, plan.to_pack)
            results = _run(pool, jobs, progress, uploader.packing, uploader.uploading)
            packs = [item.pack for item in plan.reused] + [pack for job in results for pack in job.packs]
            layout = Layout(tuple(packs), who, datetime.now(UTC))
            sent_bytes = _make_visible(manifest, layout, bucket, lease)
    return _report(manifest, layout, results, sent_bytes, dry_run=dry_run)


@contextmanager
def _threads(stopping: threading.Event) -> Iterator[tuple[Executor, Executor]]:
    """The pool for jobs, and the thread that packs. At the end `stopping` is set, so that jobs end soon."""
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="blobsync-publish")
    packer = ThreadPoolExecutor(1, thread_name_prefix="blobsync-pack")
    try:
        yield pool, packer
    finally:
        stopping.set()
        pool.shutdown(wait=True, cancel_futures=True)
        packer.shutdown(wait=True)


def _run(
    pool: Executor, jobs: Iterable[Callable[[], Result]], progress: OnPhase, *meters: Meter
) -> list[Result]:
    """Run jobs, and report the meters meanwhile. Returns all results in the order of the jobs.

    Raises the first error of a job.
    """

    def tell() -> None:
        if progress is not None:
            for meter in meters:
                progress(meter.now())

    futures = [pool.submit(job) for job in jobs]
    pending: set[Future[Result]] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=_TELL_S, return_when=FIRST_EXCEPTION)
        errors = [error for future in done if (error := future.exception()) is not None]
        # A job that was stopped because of another job's error does not know the cause.
        for error in sorted(errors, key=lambda error: isinstance(error, StoppedError)):
            raise error
        if pending:
            tell()
    tell()
    return [future.result() for future in futures]


def _hashed(
    name: str, files: Sequence[SourceFile], bucket: PublishStore, pool: Executor, progress: OnPhase
) -> tuple[Manifest, dict[str, SourceFile]]:
    meter = Meter(WorkPhase.HASHING)
    if progress is not None:
        meter.expect(len(files), sum(_size(source) for source in files))
    left = iter(tuple(files))  # an iterator over a tuple is safe to share

    def on_progress(size_bytes: int) -> None:
        meter.add(0, size_bytes)
        bucket.raise_if_stopped()

    def work() -> list[tuple[Artifact, SourceFile]]:
        buffer = memoryview(bytearray(READ_BYTES))
        made: list[tuple[Artifact, SourceFile]] = []
        for source in left:
            made.append((hash_file(source, buffer, on_progress), source))
            meter.add(1, 0)
        return made

    pairs = [pair for part in _run(pool, [work] * HASHERS, progress, meter) for pair in part]
    manifest = Manifest(name, tuple(artifact for artifact, _ in pairs))  # raises before a byte is sent
    return manifest, {artifact.sha256: source for artifact, source in pairs}


def _plan(manifest: Manifest, bucket: PublishStore, pool: Executor, *, repair: bool) -> PackPlan:
    wanted = {blob.sha256: blob.size_bytes for blob in manifest.blobs.values() if blob.is_packed}
    if repair or not wanted:
        return PackPlan((), frozenset(wanted))
    return plan_packs(wanted, known_packs(bucket, pool, manifest.ref, wanted))


def _limits(manifest: Manifest) -> tuple[int, int]:
    return pack_limits(sum(blob.size_bytes for blob in manifest.blobs.values() if blob.is_packed))


def _make_visible(manifest: Manifest, layout: Layout, bucket: PublishStore, lease: BucketLease | None) -> int:
    """Write layout, history, and last the manifest. Returns how many bytes were written.

    `lease` must be held at each try of each write; None: a dry run, which writes nothing.
    """
    name, digest = manifest.name, manifest.digest
    last = [
        (keys.layout(name, digest), layout.encode()),
        (keys.history(name, layout.published_at, digest), b""),
        (keys.manifest(name, digest), stored_manifest(manifest)),
    ]
    if lease is not None:
        for key, data in last:
            bucket.call(partial(_write_while_held, lease, key, data), "write document")
    return sum(len(data) for _, data in last)


def _write_while_held(lease: BucketLease, key: str, data: bytes, store: ObjectStore) -> None:
    lease.check()
    store.write(key, data)


def _whoever() -> str:
    """The default of `published_by`: user and host."""
    try:
        who = f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # no such user: as in many containers
        who = f"{os.getuid()}@{socket.gethostname()}"
    return "".join(sign for sign in who if sign.isprintable())[:MAX_PUBLISHER_CHARS]


def _report(
    manifest: Manifest, layout: Layout, results: list[UploadResult], sent_bytes: int, *, dry_run: bool
) -> PublishedRelease:
    uploaded_bytes = sum(job.sent_bytes for job in results)
    uploaded_count = sum(job.sent_count for job in results)
    return PublishedRelease(
        digest=manifest.digest,
        manifest=manifest,
        layout=layout,
        uploaded_bytes=uploaded_bytes,
        reused_bytes=manifest.size_bytes - uploaded_bytes,
        uploaded_count=uploaded_count,
        reused_count=len(manifest.blobs) - uploaded_count,
        sent_bytes=sent_bytes + sum(job.stored_bytes for job in results),
        packs_written=tuple(sorted(pack for job in results for pack in job.written)),
        dry_run=dry_run,
    )


def _size(source: SourceFile) -> int:
    try:
        return source.file.stat().st_size
    except OSError as exc:
        raise LocalStoreError(f"{source.file} cannot be read for publishing: {exc}") from exc
