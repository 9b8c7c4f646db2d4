"""Adopting: a release of objects that other tools have put into the bucket, one for each file.

Each object is read once, to learn its digest; nothing is copied. What makes a release of them are a manifest
and a layout that says where they lie. They stay what they are: whoever overwrites or removes one breaks the
release, which readers notice, and collections never touch them.

Threads: as of `blobsync.publishing.publisher`, but nothing is packed.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncConfigError,
    BlobSyncError,
    CorruptBlobError,
    InvalidLayoutError,
    SourceChangedError,
    UnsafeSourceError,
)
from blobsync.names import collision, key_fault, path_fault
from blobsync.publishing.lease import PublishLease
from blobsync.publishing.patterns import compiled
from blobsync.publishing.progress import Meter, PublishPhase, PublishProgress
from blobsync.publishing.remote import Remote
from blobsync.publishing.sources import looks_secret
from blobsync.publishing.threads import Threads
from blobsync.publishing.visible import make_visible, whoever
from blobsync.release.blob import PACKED_BYTES, Blob, BlobDigest
from blobsync.release.layout import Layout
from blobsync.release.loose import BUNDLE_FILES, prefix_fault
from blobsync.release.manifest import Artifact, Manifest, Role
from blobsync.retry import RetryPolicy
from blobsync.storage import keys
from blobsync.storage.many import Whole, read_many, read_whole
from blobsync.storage.ports import ObjectInfo, ObjectStore
from blobsync.storage.releases import fetch_layout

_Hashed = list[tuple[str, Blob]]


@dataclass(frozen=True, slots=True)
class AdoptedRelease:
    """What was adopted; after a dry run, what would have been.

    Attributes:
        digest: Names the release.
        manifest: What it is.
        layout: Where its files are. Of a release that was published in the ordinary way before, and is there
            still, that stays: then it has packs, and no prefix.
        read_bytes: Of the objects.
        sent_bytes: Of layout and manifest.
        dry_run: Nothing was written.
    """

    digest: str
    manifest: Manifest
    layout: Layout
    read_bytes: int
    sent_bytes: int
    dry_run: bool


def adopt(
    store: ObjectStore,
    *,
    name: str,
    prefix: str,
    configuration: Sequence[str] = (),
    dependencies: Sequence[str] = (),
    allow_secrets: Sequence[str] = (),
    progress: Callable[[PublishProgress], None] | None = None,
    retry: RetryPolicy | None = None,
    published_by: str | None = None,
    dry_run: bool = False,
) -> AdoptedRelease:
    """Make a release of the objects below a prefix. Each is a file, by the rest of its key.

    Args:
        store: Where they are.
        name: What it is a release of.
        prefix: A folder of the store; a slash at its end may be left out. As all keys, it is relative to the
            store's own prefix.
        configuration: Patterns of configuration files; see `blobsync.publishing.patterns`. All else is code.
        dependencies: Patterns of wheels, jars, archives. Where several match, this role wins.
        allow_secrets: Patterns of files that are taken although they are named as secrets usually are.
        progress: As of `publish`.
        retry: For each call to the store.
        published_by: Who does it, for people; default: user and host.
        dry_run: Read all, say what it would be, and write nothing.

    Raises:
        BlobSyncConfigError: a prefix that cannot be one, or that belongs to this library.
        BlobNotFoundError: there is nothing below the prefix.
        SourceChangedError: an object changed or went meanwhile. No release became visible.
        UnsafeSourceError: a key that cannot name a file, names that collide, or a file named like a secret.
        InvalidManifestError: these files cannot be one release.
        InvalidLayoutError: `published_by` is no printable text of up to 200 signs.
        PublishLapsedError: the lease could not be kept.
        StoreUnavailableError, StoreAccessDeniedError, BucketMissingError: as of `ObjectStore`.
    """
    folder = _folder(prefix)
    who = published_by if published_by is not None else whoever()
    layout = Layout((), who, datetime.now(UTC), folder)  # refuses before anything is done
    policy = retry if retry is not None else RetryPolicy()
    roles = _Roles(configuration, dependencies)
    remote = Remote(store, policy, threading.Event(), dry_run=dry_run)
    with Threads(remote.stopping, progress) as threads:
        objects = _objects(remote, folder)
        _refuse_unsafe(folder, objects, [compiled(pattern) for pattern in allow_secrets])
        blobs = _hashed(objects, remote, threads)
        manifest = Manifest(
            name,
            tuple(
                Artifact(path, blob.size_bytes, blob.sha256, roles.of(path), False, blob.chunks)
                for path, blob in ((key.removeprefix(folder), blob) for key, blob in blobs)
            ),
        )
        _refuse_changed(objects, _objects(remote, folder))
        lease = PublishLease(store, subject=name, holder=who, retry=policy, stopping=remote.stopping)
        with nullcontext() if dry_run else lease:
            remote.ask_what_is_condemned()
            layout = _present(manifest, remote, layout) or layout
            sent_bytes = make_visible(manifest, layout, remote, check=lease.check)
    read_bytes = sum(info.size_bytes for info in objects.values())
    return AdoptedRelease(manifest.digest, manifest, layout, read_bytes, sent_bytes, dry_run)


class _Roles:
    """What files are for, by patterns."""

    def __init__(self, configuration: Sequence[str], dependencies: Sequence[str]) -> None:
        self._patterns = [(Role.DEPENDENCY, compiled(pattern)) for pattern in dependencies]
        self._patterns += [(Role.CONFIGURATION, compiled(pattern)) for pattern in configuration]

    def of(self, path: str) -> Role:
        found = (role for role, pattern in self._patterns if pattern.fullmatch(path))
        return next(found, Role.CODE)


def _folder(prefix: str) -> str:
    folder = prefix if prefix.endswith("/") else f"{prefix}/"
    fault = prefix_fault(folder)
    if fault is None and f"{folder.split('/')[0]}/" in keys.ROOMS:
        fault = "is where this library keeps releases"
    if fault is not None:
        raise BlobSyncConfigError(f"the prefix {prefix[:200]!r} {fault}; name a folder of the bucket")
    return folder


def _objects(remote: Remote, folder: str) -> dict[str, ObjectInfo]:
    """What lies there. Empty objects that stand for folders are left out."""
    found = remote.call(lambda store: {info.key: info for info in store.list(folder)}, "list objects")
    objects = {key: info for key, info in found.items() if not (key.endswith("/") and not info.size_bytes)}
    if not objects:
        raise BlobNotFoundError(f"an object below {folder}")
    return objects


def _refuse_unsafe(
    folder: str, objects: Mapping[str, ObjectInfo], allowed: Sequence[re.Pattern[str]]
) -> None:
    """Refuse names before a byte is read."""
    for key in objects:
        path = key.removeprefix(folder)
        if (fault := path_fault(path) or key_fault(key)) is not None:
            raise UnsafeSourceError(f"{key[:200]!r} {fault}, so it cannot be in a release; rename the object")
        if looks_secret(path) and not any(pattern.fullmatch(path) for pattern in allowed):
            raise UnsafeSourceError(
                f"{key} is named like a secret, and whoever reads the bucket can read it; remove it, or name "
                f"it in allow_secrets"
            )
    if (pair := collision(key.removeprefix(folder) for key in objects)) is not None:
        raise UnsafeSourceError(
            f"{pair[0]!r} and {pair[1]!r} are one name on some file systems; rename or remove one of them"
        )


def _refuse_changed(before: Mapping[str, ObjectInfo], after: Mapping[str, ObjectInfo]) -> None:
    changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    if changed:
        raise SourceChangedError(min(changed))


def _hashed(objects: Mapping[str, ObjectInfo], remote: Remote, threads: Threads) -> _Hashed:
    meter = Meter(PublishPhase.HASHING)
    meter.expect(len(objects), sum(info.size_bytes for info in objects.values()))
    large = [partial(_hash_large, remote, meter, info) for info in objects.values() if not _is_small(info)]
    small = [partial(_hash_small, remote, meter, group) for group in _groups(objects)]
    return [pair for part in threads.run([*large, *small], meter) for pair in part]


def _is_small(info: ObjectInfo) -> bool:
    return info.size_bytes <= PACKED_BYTES


def _groups(objects: Mapping[str, ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """Small ones, so many at a time that other threads have some, too."""
    small = (info for info in objects.values() if _is_small(info))
    while group := list(islice(small, BUNDLE_FILES)):
        yield group


def _hash_small(remote: Remote, meter: Meter, group: Sequence[ObjectInfo]) -> _Hashed:
    def going_on(size_bytes: int) -> None:
        remote.going()
        meter.add(0, size_bytes)

    wanted = [Whole(info.key, info.size_bytes) for info in group]
    found: _Hashed = []
    for item, given in zip(wanted, read_many(remote.store, wanted, going_on), strict=True):
        data = _read_again(remote, item, given) if isinstance(given, BlobSyncError) else given
        found.append((item.key, Blob(hashlib.sha256(data).hexdigest(), len(data))))
        meter.add(1, 0)
    return found


def _read_again(remote: Remote, item: Whole, error: BlobSyncError) -> bytes:
    if isinstance(error, BlobNotFoundError | CorruptBlobError):
        raise SourceChangedError(item.key) from error
    if not error.retryable:
        raise error
    try:
        return remote.call(
            lambda store: read_whole(store.read(item.key), item, lambda _size: remote.going()), "read object"
        )
    except (BlobNotFoundError, CorruptBlobError) as exc:
        raise SourceChangedError(item.key) from exc


def _hash_large(remote: Remote, meter: Meter, info: ObjectInfo) -> _Hashed:
    def read(store: ObjectStore) -> Blob:
        digest = BlobDigest()
        for piece in store.read(info.key):
            remote.going()
            digest.update(piece)
        return digest.blob()

    try:
        blob = remote.call(read, "read object")
    except BlobNotFoundError as exc:
        raise SourceChangedError(info.key) from exc
    if blob.size_bytes != info.size_bytes:
        raise SourceChangedError(info.key)
    meter.add(1, blob.size_bytes)
    return [(info.key, blob)]


def _present(manifest: Manifest, remote: Remote, layout: Layout) -> Layout | None:
    """The layout of the same release, if it was published in the ordinary way and all of it is there."""
    key = keys.manifest(manifest.name, manifest.digest)
    if remote.call(lambda store: store.size(key), "size of object") is None:
        return None
    try:
        found = remote.call(lambda store: fetch_layout(store, manifest.name, manifest.digest), "read layout")
    except (BlobNotFoundError, InvalidLayoutError):
        return None
    needed = [(keys.pack(pack.name), pack.size_bytes) for pack in found.packs]
    needed += [
        (keys.blob(blob.name), blob.size_bytes) for blob in manifest.blobs.values() if not blob.is_packed
    ]
    if found.loose is not None or not all(remote.has(key, size) for key, size in needed):
        return None
    return replace(found, published_by=layout.published_by, published_at=layout.published_at)
