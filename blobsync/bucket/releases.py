"""Lists releases in the object store; reads and verifies manifests, layouts and single files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import zstandard

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.verification import StoreReader, read_table, verified_pieces
from blobsync.errors import (
    BlobSyncConfigError,
    CorruptBlobError,
    InvalidLayoutError,
    InvalidManifestError,
    ReleaseAbsentError,
)
from blobsync.names import is_digest, is_release_name
from blobsync.release.layout import MAX_LAYOUT_BYTES, Layout
from blobsync.release.manifest import MAX_MANIFEST_BYTES, Blob, Manifest
from blobsync.release.pack import FrameReader, check_members, members_of

COMPRESSED_BYTES = 64 << 10
"""Larger documents are stored as one zstd frame; smaller ones as they are, so that people can read them."""


@dataclass(frozen=True, slots=True, order=True)
class PublicationMark:
    """A release was published at a time, by the publisher's clock."""

    at: datetime
    digest: str


def fetch_manifest(store: ObjectStore, name: str, digest: str) -> Manifest:
    """Read a release's manifest and verify it. One try; callers retry.

    Raises:
        BlobNotFoundError: there is no such release.
        CorruptBlobError: its bytes do not match its digest.
        InvalidManifestError: they match, but the manifest is not valid.
    """
    _check_ref(name, digest)
    return verified_manifest(_fetched(store, name, digest), name, digest)


def _fetched(store: ObjectStore, name: str, digest: str) -> bytes:
    """The bytes of a manifest, unverified. A separate function, so that the stored bytes are freed."""
    data = _read(store, keys.manifest(name, digest), MAX_MANIFEST_BYTES)
    if data is None:
        raise CorruptBlobError(f"manifest {digest} of {name} is above {MAX_MANIFEST_BYTES} bytes; not read")
    try:
        return decompressed(data, MAX_MANIFEST_BYTES)
    except ValueError as exc:
        raise CorruptBlobError(
            f"manifest {digest} of {name} cannot be decompressed ({exc}); publish the release again"
        ) from exc


def stored_manifest(manifest: Manifest) -> bytes:
    """A manifest as it is stored. Of ten thousand files, it would take 1.6 MB uncompressed."""
    return compressed(manifest.canonical)


def compressed(data: bytes) -> bytes:
    """A document as it is stored: above `COMPRESSED_BYTES` as one zstd frame."""
    if len(data) <= COMPRESSED_BYTES:
        return data
    # Digests are most of it: a higher level takes longer, and finds nothing.
    return zstandard.ZstdCompressor(level=1, write_content_size=True).compress(data)


def decompressed(data: bytes, most: int) -> bytes:
    """Undo `compressed`. ValueError if it is damaged, or would have more than `most` bytes."""
    if not data.startswith(zstandard.FRAME_HEADER):
        return data
    try:
        size = zstandard.frame_content_size(data)
        if not 0 < size <= most:
            raise ValueError(f"it would have {size} bytes, not within 1..{most}")
        raw: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError as exc:
        raise ValueError(str(exc)) from exc
    return raw


def fetch_layout(store: ObjectStore, name: str, digest: str) -> Layout:
    """Read where the small files of a release are. One try; callers retry.

    It is a hint: nothing in it is trusted. It may be replaced at any time, and the packs that it named may
    then be deleted: read it again before you report them as missing.

    Raises:
        BlobNotFoundError: there is none.
        InvalidLayoutError: it is not valid.
        InvalidManifestError: no release can have this name or digest.
    """
    _check_ref(name, digest)
    data = _read(store, keys.layout(name, digest), MAX_LAYOUT_BYTES)
    if data is None:
        raise InvalidLayoutError(
            f"layout of {name}@{digest[:12]} is above {MAX_LAYOUT_BYTES} bytes; not read"
        )
    return Layout.parse(data)


def read_file(store: ObjectStore, manifest: Manifest, layout: Layout, path: str) -> Iterator[bytes]:
    """Stream the file `path`, in pieces of up to 16 MiB, each verified before it is yielded.

    Raises:
        ReleaseAbsentError: The release has no such file.
        InvalidLayoutError: No pack has it.
        CorruptBlobError: The bucket has other bytes than the manifest names.
    """
    blob = next((item.blob for item in manifest.artifacts if item.path == path), None)
    if blob is None:
        raise ReleaseAbsentError(f"{manifest.ref} has no file {path!r}; `ls` lists what it has")
    if blob.is_packed:
        yield _packed(store, layout, blob)
    else:
        for piece in verified_pieces(StoreReader(store, keys.blob(blob.name)), blob):
            yield bytes(piece)


def _packed(store: ObjectStore, layout: Layout, blob: Blob) -> bytes:
    for pack in layout.packs:
        read = StoreReader(store, keys.pack(pack.name))
        table = read_table(read.whole, pack.size_bytes)
        for frame in table.frames_with({blob.sha256}):
            raw = FrameReader().raw(frame, read.whole(frame.start, frame.stored_bytes))
            check_members(table, frame, raw)
            return bytes(dict(members_of(table, frame, raw))[blob.sha256])
    raise InvalidLayoutError(f"no pack of the layout has blob {blob.sha256}; publish the release again")


def _read(store: ObjectStore, key: str, most: int) -> bytes | None:
    """All bytes of an object; None: they are more than `most`."""
    data = bytearray()
    for chunk in store.read(key):
        data += chunk
        if len(data) > most:
            return None
    return bytes(data)


def published(store: ObjectStore, name: str) -> list[PublicationMark]:
    """The history of `name`, newest first. A release that was published twice is listed twice.

    An entry is written shortly before its release becomes visible, and may remain when the release is
    deleted. The order is that of the publishers' clocks.
    """
    _check_name(name)
    prefix = keys.histories(name)
    entries = (keys.HISTORY_ENTRY.fullmatch(info.key.removeprefix(prefix)) for info in store.list(prefix))
    publications = []
    for entry in entries:
        at = _time(entry[1]) if entry is not None else None
        if entry is not None and at is not None:
            publications.append(PublicationMark(at, entry[2]))
    return sorted(publications, reverse=True)


def _time(stamp: str) -> datetime | None:
    try:
        return datetime.strptime(stamp, keys.STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def verified_manifest(data: bytes, name: str, digest: str) -> Manifest:
    """Parse `data` as the manifest of `name` and `digest`.

    CorruptBlobError if its bytes do not match the digest; InvalidManifestError if it is malformed, or of
    another name.
    """
    actual = hashlib.sha256(data).hexdigest()
    if actual != digest:
        raise CorruptBlobError(
            f"manifest {digest} of {name} has the digest {actual}; publish the release again to repair it"
        )
    manifest = Manifest.parse(data)
    if manifest.name != name:
        raise InvalidManifestError(f"manifest {digest} is one of {manifest.name}, not of {name}")
    return manifest


def list_releases(store: ObjectStore, name: str) -> list[str]:
    """Digests of all releases of `name`, sorted by digest."""
    _check_name(name)
    prefix = keys.manifests(name)
    digests = (info.key.removeprefix(prefix).removesuffix(".json") for info in store.list(prefix))
    return sorted(digest for digest in digests if is_digest(digest))


def list_names(store: ObjectStore) -> list[str]:
    """All names that have a release, sorted. Makes one request for each name, and one more."""
    names: list[str] = []
    after: str | None = None
    while (info := next(iter(store.list(keys.RELEASES, after)), None)) is not None:
        name = info.key.removeprefix(keys.RELEASES).partition("/")[0]
        if is_release_name(name):
            names.append(name)
        after = f"{keys.RELEASES}{name}0"  # the sign after the slash: behind all of this name
    return names


def _check_name(name: str) -> None:
    if not is_release_name(name):
        raise BlobSyncConfigError(f"{name[:200]!r} cannot name a release")


def _check_ref(name: str, digest: str) -> None:
    if not is_release_name(name) or not is_digest(digest):
        raise InvalidManifestError(f"{name[:200]!r} with digest {digest[:80]!r} names no release")
