"""Releases whose files lie in the bucket as plain objects, one for each, put there by other tools. Pure.

A layout then says below which prefix they lie. Small ones are fetched in bundles, many requests side by side;
what comes of a bundle is kept on disk as one pack. Large ones are fetched like any large blob, from their own
key. Nothing about those objects is trusted: each is verified by the digest that the manifest has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from blake3 import blake3

from blobsync.errors import InvalidLayoutError
from blobsync.names import MAX_KEY_BYTES, first_path_fault, path_fault
from blobsync.release.blob import PACKED_BYTES, Blob
from blobsync.release.manifest import Manifest

BUNDLE_BYTES = 8 << 20
BUNDLE_FILES = 512
"""A bundle has at most so many files, and bytes."""

_NAME = "loose-"


class LooseFile(NamedTuple):
    """A small file that lies in the bucket by itself."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LooseBlob(Blob):
    """A large file that lies in the bucket by itself. On disk it is the blob of its name, as any other.

    Args:
        key: Where it lies.
    """

    key: str = ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Small files that are fetched together, and kept together as a pack.

    Args:
        name: Of the whole bundle, whatever of it is still to be fetched; never that of a pack or blob.
        release: Digest of the manifest that they are from.
        prefix: Below which they lie.
        files: What of it is to be fetched; distinct contents.
    """

    name: str
    release: str
    prefix: str
    files: tuple[LooseFile, ...]

    @property
    def size_bytes(self) -> int:
        """Of what is to be fetched."""
        return sum(file.size_bytes for file in self.files)

    def key(self, file: LooseFile) -> str:
        """Where one of them lies."""
        return self.prefix + file.path

    def only(self, files: Iterable[LooseFile]) -> Bundle:
        """The same bundle, with less of it to be fetched."""
        return replace(self, files=tuple(files))


def prefix_fault(prefix: str) -> str | None:
    """Say why plain objects cannot lie below `prefix`; None: they can. It is a folder: ends with a slash."""
    if not prefix.endswith("/"):
        return "does not end with a slash"
    if len(prefix.encode(errors="replace")) >= MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    return path_fault(prefix[:-1])


def bundles_of(manifest: Manifest, prefix: str) -> tuple[Bundle, ...]:
    """All small files of a release, each content once, in the order of their paths.

    Raises:
        InvalidLayoutError: below this prefix a file of it, small or large, has a key that cannot be.
    """
    keys = [prefix + item.path for item in manifest.artifacts]
    faulty = first_path_fault(keys) or next(((key, "is too long") for key in keys if _is_long(key)), None)
    if faulty is not None:
        raise InvalidLayoutError(f"the key {faulty[0][:200]!r} of a plain object {faulty[1]}")
    return tuple(_bundle(manifest.digest, prefix, files) for files in _groups(manifest))


def loose_blobs(manifest: Manifest, prefix: str) -> tuple[LooseBlob, ...]:
    """All large files of a release, each content once."""
    blobs: dict[str, LooseBlob] = {}
    for item in manifest.artifacts:
        if item.size_bytes > PACKED_BYTES:
            blob = LooseBlob(item.sha256, item.size_bytes, item.chunks, prefix + item.path)
            blobs.setdefault(blob.name, blob)
    return tuple(blobs.values())


def _is_long(key: str) -> bool:
    return len(key) > MAX_KEY_BYTES // 4 and len(key.encode()) > MAX_KEY_BYTES


def _groups(manifest: Manifest) -> Iterator[list[LooseFile]]:
    seen: set[str] = set()
    group: list[LooseFile] = []
    size_bytes = 0
    for item in manifest.artifacts:
        if item.size_bytes > PACKED_BYTES or item.sha256 in seen:
            continue
        if group and (len(group) == BUNDLE_FILES or size_bytes + item.size_bytes > BUNDLE_BYTES):
            yield group
            group, size_bytes = [], 0
        seen.add(item.sha256)
        group.append(LooseFile(item.path, item.sha256, item.size_bytes))
        size_bytes += item.size_bytes
    if group:
        yield group


def _bundle(release: str, prefix: str, files: list[LooseFile]) -> Bundle:
    digest = blake3(prefix.encode())
    digest.update(b"\0" + b"".join(bytes.fromhex(file.sha256) for file in files))
    return Bundle(_NAME + digest.hexdigest(), release, prefix, tuple(files))
