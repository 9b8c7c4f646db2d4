"""Packs small files, and uploads packs and large files. Runs on the threads of a publish.

One thread, `blobsync-pack`, makes packs file by file, so that no more than a frame is in memory; more threads
would not be faster. A pack is written to a file without a name and uploaded from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore, PatientStore
from blobsync.bucket.tombstones import condemned
from blobsync.errors import BlobSyncError
from blobsync.progress import Meter, Share, WorkPhase
from blobsync.publishing.hashing import read_file, scratch_error, snapshot, unnamed_file
from blobsync.publishing.sources import SourceFile
from blobsync.release.layout import Pack
from blobsync.release.manifest import Blob, Manifest
from blobsync.release.pack import PackWriter
from blobsync.retry import RetryPolicy

LARGE_BYTES = 64 << 20
LARGE_AT_ONCE = 2
"""Number of files above `LARGE_BYTES` that are copied and sent at a time, each in parallel parts."""


class PublishStore(PatientStore):
    """The object store of a publish: condemned objects count as absent, and a dry run writes nothing.

    Thread-safe, as the store is.
    """

    def __init__(
        self, store: ObjectStore, retry: RetryPolicy, stopping: threading.Event, *, dry_run: bool
    ) -> None:
        super().__init__(store, retry, stopping)
        self.dry_run = dry_run
        self._condemned: frozenset[str] = frozenset()

    def read_condemned(self) -> None:
        """From now on, treat condemned objects as absent, so that they are written again."""
        self._condemned = self.call(condemned, "read tombstones")

    def has(self, key: str, size_bytes: int) -> bool:
        """True if there is an object of that size that is not condemned."""
        if key in self._condemned:
            return False
        return self.call(lambda store: store.size(key), "size of object") == size_bytes

    def read(self, key: str, start: int, size_bytes: int) -> bytes:
        """Read a range of an object."""
        return self.call(
            lambda store: b"".join(store.read(key, start=start, size_bytes=size_bytes)), "read range"
        )

    def write(self, key: str, data: bytes | Path, share: Share | None = None) -> None:
        """Write an object. The deadline starts again whenever a try sends more than all earlier ones."""
        advanced = True

        def attempt(store: ObjectStore) -> None:
            sent = 0

            def on_progress(size_bytes: int) -> None:
                nonlocal sent, advanced
                self.raise_if_stopped()
                sent += size_bytes
                if share is not None and share.reached(sent):
                    advanced = True

            store.write(key, data, on_progress=on_progress)

        while not self.dry_run:
            advanced = False
            try:
                self.call(attempt, "write object")
            except BlobSyncError as exc:
                if not (exc.retryable and advanced):
                    raise
            else:
                return


@dataclass(slots=True)
class UploadResult:
    """The objects that a job sent. Only `packs` also has objects that the store had already."""

    sent_count: int = 0
    """Distinct blobs."""
    sent_bytes: int = 0
    """Size of these blobs before compression."""
    stored_bytes: int = 0
    """Size of the sent objects, as sent."""
    packs: list[Pack] = field(default_factory=list)
    """Packs that were made, also those that the store had already."""
    written: list[Pack] = field(default_factory=list)


class Uploader:
    """Uploads blobs. Thread-safe.

    Args:
        sources: A file for each blob, by SHA-256.
        scratch: A folder for packs and copies of large files; None: the one for temporary files.
        repair: Also send objects that the store seems to have.
        limits: Stored and raw bytes after which a pack is closed.
    """

    def __init__(
        self,
        store: PublishStore,
        sources: Mapping[str, SourceFile],
        *,
        scratch: Path | None,
        repair: bool,
        limits: tuple[int, int],
        packer: Executor,
    ) -> None:
        self._store, self._sources, self._scratch, self._repair = store, sources, scratch, repair
        self._stored_limit, self._raw_limit = limits
        self._packer = packer
        self.packing, self.uploading = Meter(WorkPhase.PACKING), Meter(WorkPhase.UPLOADING)
        self._large = threading.BoundedSemaphore(LARGE_AT_ONCE)

    def jobs(self, manifest: Manifest, to_pack: frozenset[str]) -> list[Callable[[], UploadResult]]:
        """Jobs for packs and for large files in turn: packs need the processor, large files the network.

        `to_pack` are the digests of the small files that no pack in the store has.
        """
        small: list[Callable[[], UploadResult]] = []
        large: list[Callable[[], UploadResult]] = []
        for blobs in pack_jobs(manifest, to_pack, self._raw_limit):
            size_bytes = sum(blob.size_bytes for blob in blobs)
            self.packing.expect(len(blobs), size_bytes)
            self.uploading.expect(len(blobs), size_bytes)
            small.append(partial(self.upload_packed, blobs))
        for blob in manifest.blobs.values():
            if not blob.is_packed:
                self.uploading.expect(1, blob.size_bytes)
                large.append(partial(self.upload_blob, blob))
        return [job for turn in zip_longest(small, large) for job in turn if job is not None]

    def upload_blob(self, blob: Blob) -> UploadResult:
        """Upload a blob that is not in a pack. SourceChangedError if its file has changed."""
        key, share = keys.blob(blob.name), Share(self.uploading, blob.size_bytes, blob.size_bytes)
        is_there = not self._repair and self._store.has(key, blob.size_bytes)
        if not is_there and not self._store.dry_run:
            with self._large if blob.size_bytes > LARGE_BYTES else nullcontext():
                self._send_blob(blob, key, share)
        share.done(1)
        if is_there:
            return UploadResult()
        return UploadResult(sent_count=1, sent_bytes=blob.size_bytes, stored_bytes=blob.size_bytes)

    def _send_blob(self, blob: Blob, key: str, share: Share) -> None:
        source = self._sources[blob.sha256]
        with snapshot(source, blob, self._scratch, lambda _: self._store.raise_if_stopped()) as path:
            self._store.write(key, path, share)

    def upload_packed(self, blobs: Sequence[Blob]) -> UploadResult:
        """Upload small blobs in packs, in this order. SourceChangedError if a file has changed."""
        result, left = UploadResult(), iter(blobs)
        more = True
        while more:
            with unnamed_file(self._scratch) as (file, path):
                pack, packed, more = self._packer.submit(self._pack, file, left).result()
                if packed:
                    self._upload_pack(pack, packed, path, result)
        return result

    def _pack(self, file: IO[bytes], left: Iterator[Blob]) -> tuple[Pack, list[Blob], bool]:
        """Write one pack. Returns it, the blobs in it, and True if more blobs may be left."""
        packed: list[Blob] = []
        try:
            writer = PackWriter(file)
            more = False
            for blob in left:
                self._store.raise_if_stopped()
                writer.add(blob.sha256, read_file(self._sources[blob.sha256], blob))
                packed.append(blob)
                self.packing.add(1, blob.size_bytes)
                if writer.size_bytes >= self._stored_limit or writer.raw_bytes >= self._raw_limit:
                    more = True
                    break
            name = writer.finish()
            file.flush()
        except OSError as exc:
            raise scratch_error("no pack can be written", self._scratch, exc) from exc
        return Pack(name, writer.size_bytes), packed, more

    def _upload_pack(self, pack: Pack, packed: list[Blob], path: Path, result: UploadResult) -> None:
        raw_bytes = sum(blob.size_bytes for blob in packed)
        key, share = keys.pack(pack.name), Share(self.uploading, raw_bytes, pack.size_bytes)
        result.packs.append(pack)
        # A publish that did not come to its end may have sent the same pack.
        if self._repair or not self._store.has(key, pack.size_bytes):
            self._store.write(key, path, share)
            result.written.append(pack)
            result.sent_count += len(packed)
            result.sent_bytes += raw_bytes
            result.stored_bytes += pack.size_bytes
        share.done(len(packed))


def pack_jobs(manifest: Manifest, to_pack: frozenset[str], raw_limit: int) -> Iterator[list[Blob]]:
    """Split the small files into jobs of about one pack, in order of their paths.

    The same files give the same jobs, and so the same packs: a publish finds those that a killed one sent.
    """
    job: list[Blob] = []
    size = 0
    in_order = {item.sha256: item.blob for item in manifest.artifacts if item.sha256 in to_pack}
    for blob in in_order.values():
        if job and size + blob.size_bytes > raw_limit:
            yield job
            job, size = [], 0
        job.append(blob)
        size += blob.size_bytes
    if job:
        yield job
