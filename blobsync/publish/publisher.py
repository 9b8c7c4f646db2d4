"""Publishing: blobs first, the manifest last, so that a release is seen whole or not at all.

What is uploaded is a snapshot whose digest was taken from the same bytes, so a file that changes meanwhile
can never be stored under a digest that is not its own. Two publishers at once are both right.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from blobsync.errors import LocalStoreError, SourceChangedError
from blobsync.publish.sources import SourceFile
from blobsync.release.blob import BlobDigest
from blobsync.release.manifest import Artifact, Manifest
from blobsync.retry import RetryPolicy, call_retrying
from blobsync.storage import keys
from blobsync.storage.ports import CHUNK_BYTES, ObjectStore

THREADS = 4
IN_MEMORY_BYTES = 8 << 20
"""Up to this size a file is uploaded from memory, above from a private copy on disk."""


@dataclass(frozen=True, slots=True)
class PublishProgress:
    """How far a publish is. Counts are of distinct blobs."""

    done_count: int
    total_count: int
    done_bytes: int
    total_bytes: int
    uploaded_bytes: int


@dataclass(frozen=True, slots=True)
class PublishedRelease:
    """What was published. Counts are of distinct blobs, without the manifest."""

    digest: str
    manifest: Manifest
    uploaded_bytes: int
    reused_bytes: int
    uploaded_count: int
    reused_count: int


def publish(
    store: ObjectStore,
    *,
    name: str,
    files: Sequence[SourceFile],
    progress: Callable[[PublishProgress], None] | None = None,
    retry: RetryPolicy | None = None,
) -> PublishedRelease:
    """Upload what the store lacks of these files, then their manifest.

    Args:
        store: Where to.
        name: What it is a release of.
        files: As `collect` gives them.
        progress: Called in this thread, after each blob.
        retry: For each call to the store.

    Raises:
        SourceChangedError: a file changed meanwhile. No release became visible.
        InvalidManifestError: these files cannot be one release.
        LocalStoreError: a file cannot be read.
        StoreUnavailableError, StoreAccessDeniedError, BucketMissingError: as of `ObjectStore`.
    """
    policy = retry if retry is not None else RetryPolicy()
    stopping = threading.Event()
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="blobsync-publish")
    try:
        artifacts = list(pool.map(_artifact, files))
        manifest = Manifest(name, tuple(artifacts))  # refuses before a byte is sent
        sources = {made.sha256: source for made, source in zip(artifacts, files, strict=True)}
        uploads = {
            pool.submit(
                _bring, store, digest, blob.size_bytes, sources[digest], policy, stopping
            ): blob.size_bytes
            for digest, blob in manifest.blobs.items()
        }
        uploaded = _watch(uploads, progress)
        call_retrying(
            lambda: store.write(keys.manifest(name, manifest.digest), manifest.canonical),
            policy,
            what="write manifest",
            stopping=stopping,
        )
    finally:
        stopping.set()  # after an error or Ctrl-C nobody waits for the rest
        pool.shutdown(wait=True, cancel_futures=True)
    total = manifest.size_bytes
    return PublishedRelease(
        digest=manifest.digest,
        manifest=manifest,
        uploaded_bytes=sum(uploaded),
        reused_bytes=total - sum(uploaded),
        uploaded_count=len(uploaded),
        reused_count=len(uploads) - len(uploaded),
    )


def _watch(uploads: dict[Future[bool], int], progress: Callable[[PublishProgress], None] | None) -> list[int]:
    """Wait for all; raise the first error. Gives the sizes of those that had to be uploaded."""
    pending = set(uploads)
    done: list[tuple[int, bool]] = []
    while pending:
        finished, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        done += [(uploads[future], future.result()) for future in finished]
        if progress is not None and finished:
            progress(
                PublishProgress(
                    done_count=len(done),
                    total_count=len(uploads),
                    done_bytes=sum(size for size, _ in done),
                    total_bytes=sum(uploads.values()),
                    uploaded_bytes=sum(size for size, was_sent in done if was_sent),
                )
            )
    return [size for size, was_sent in done if was_sent]


def _artifact(source: SourceFile) -> Artifact:
    """Hash a file, and be sure that it was one file from beginning to end."""
    digest = BlobDigest()
    try:
        with source.file.open("rb") as file:
            before = _identity(file)
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
            blob = digest.blob()
            if _identity(file) != before or before[0] != blob.size_bytes:
                raise SourceChangedError(source.path)
    except OSError as exc:
        raise LocalStoreError(f"{source.file} cannot be read for publishing: {exc}") from exc
    return Artifact(source.path, blob.size_bytes, blob.sha256, source.role, source.executable, blob.chunks)


def _identity(file: IO[bytes]) -> tuple[int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_size, stat.st_mtime_ns


def _bring(
    store: ObjectStore,
    digest: str,
    size: int,
    source: SourceFile,
    policy: RetryPolicy,
    stopping: threading.Event,
) -> bool:
    """Upload one blob unless it is there. Whether it was uploaded."""
    key = keys.blob(digest)
    if call_retrying(lambda: store.size(key), policy, what="size of blob", stopping=stopping) == size:
        return False
    try:
        if size <= IN_MEMORY_BYTES:
            with source.file.open("rb") as file:
                data = file.read(size + 1)
            if hashlib.sha256(data).hexdigest() != digest:
                raise SourceChangedError(source.path)
            call_retrying(lambda: store.write(key, data), policy, what="write blob", stopping=stopping)
        else:
            with tempfile.NamedTemporaryFile(prefix="blobsync-publish-") as copy:
                _copy(source, digest, copy.file)
                snapshot = Path(copy.name)
                call_retrying(
                    lambda: store.write(key, snapshot), policy, what="write blob", stopping=stopping
                )
    except OSError as exc:
        raise LocalStoreError(f"{source.file} cannot be read or copied for publishing: {exc}") from exc
    return True


def _copy(source: SourceFile, digest: str, copy: IO[bytes]) -> None:
    found = hashlib.sha256()
    with source.file.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
            copy.write(chunk)
    copy.flush()
    if found.hexdigest() != digest:
        raise SourceChangedError(source.path)
