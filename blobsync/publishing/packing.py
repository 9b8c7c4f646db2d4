"""Pack small files, and upload packs and large files. Runs on the threads of a publish.

Packs are made by one thread, `blobsync-pack`, file by file, so that no more than a frame is in memory; more
threads would make it no faster. A pack is written to a file without a name and uploaded from there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from blobsync.bucket import keys
from blobsync.progress import Meter, Share
from blobsync.publishing.hashing import read_file, scratch_error, snapshot, unnamed_file
from blobsync.publishing.publish_store import PublishStore
from blobsync.publishing.sources import SourceFile
from blobsync.release.blob import Blob
from blobsync.release.layout import Pack
from blobsync.release.manifest import Manifest
from blobsync.release.pack import PackWriter

LARGE_BYTES = 64 << 20
LARGE_AT_ONCE = 2
"""Of files above `LARGE_BYTES`, so many are copied and sent at a time, each in parts side by side."""


@dataclass(slots=True)
class UploadResult:
    """How many blobs were sent, and how many were there already. Bytes are those before compression."""

    sent_count: int = 0
    sent_bytes: int = 0
    reused_count: int = 0
    stored_bytes: int = 0
    """Of the objects that were sent, as sent."""
    packs: list[Pack] = field(default_factory=list)
    """Packs that were made, also those that were there already."""
    written: list[Pack] = field(default_factory=list)
    """Those that were not."""


class Uploader:
    """Uploads blobs. Thread-safe.

    Args:
        store: The store.
        sources: A file for each blob, by SHA-256.
        scratch: A folder for packs and copies of large files; None: the one for temporary files.
        repair: Send what seems to be there, too.
        limits: After how many stored and raw bytes a pack is closed.
        packing: Counts what is packed.
        uploading: Counts what the store has.
        packer: Makes the packs.
    """

    def __init__(
        self,
        store: PublishStore,
        sources: Mapping[str, SourceFile],
        *,
        scratch: Path | None,
        repair: bool,
        limits: tuple[int, int],
        packing: Meter,
        uploading: Meter,
        packer: Executor,
    ) -> None:
        self._store, self._sources, self._scratch, self._repair = store, sources, scratch, repair
        self._stored_limit, self._raw_limit = limits
        self._packing, self._uploading = packing, uploading
        self._packer = packer
        self._large = threading.BoundedSemaphore(LARGE_AT_ONCE)

    def upload_blob(self, blob: Blob) -> UploadResult:
        """Upload a blob that is an object of its own.

        Raises:
            SourceChangedError: its file has other bytes now.
            BlobSyncError: as of `ObjectStore`.
        """
        key, share = keys.blob(blob.name), Share(self._uploading, blob.size_bytes, blob.size_bytes)
        is_there = not self._repair and self._store.has(key, blob.size_bytes)
        if not is_there and not self._store.dry_run:
            with self._large if blob.size_bytes > LARGE_BYTES else nullcontext():
                self._send_blob(blob, key, share)
        share.done(1)
        if is_there:
            return UploadResult(reused_count=1)
        return UploadResult(sent_count=1, sent_bytes=blob.size_bytes, stored_bytes=blob.size_bytes)

    def _send_blob(self, blob: Blob, key: str, share: Share) -> None:
        source = self._sources[blob.sha256]
        with snapshot(source, blob, self._scratch, lambda _: self._store.raise_if_stopped()) as path:
            self._store.write(key, path, share)

    def upload_packed(self, blobs: Sequence[Blob]) -> UploadResult:
        """Upload small blobs in packs, in this order.

        Raises:
            SourceChangedError: a file has other bytes now.
            BlobSyncError: as of `ObjectStore`.
        """
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
                self._packing.add(1, blob.size_bytes)
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
        key, share = keys.pack(pack.name), Share(self._uploading, raw_bytes, pack.size_bytes)
        result.packs.append(pack)
        if not self._repair and self._store.has(key, pack.size_bytes):
            result.reused_count += len(packed)  # by a publish that did not come to its end
        else:
            self._store.write(key, path, share)
            result.written.append(pack)
            result.sent_count += len(packed)
            result.sent_bytes += raw_bytes
            result.stored_bytes += pack.size_bytes
        share.done(len(packed))


def pack_jobs(manifest: Manifest, to_pack: frozenset[str], raw_limit: int) -> Iterator[list[Blob]]:
    """Split what is packed into jobs of about one pack, by path, so that neighbours travel together.

    The same files give the same jobs, and so the same packs: a publish finds what a killed one has sent.
    """
    job: list[Blob] = []
    size = 0
    for blob in _in_order(manifest, to_pack):
        if job and size + blob.size_bytes > raw_limit:
            yield job
            job, size = [], 0
        job.append(blob)
        size += blob.size_bytes
    if job:
        yield job


def _in_order(manifest: Manifest, to_pack: frozenset[str]) -> Iterable[Blob]:
    return {item.sha256: item.blob for item in manifest.artifacts if item.sha256 in to_pack}.values()
