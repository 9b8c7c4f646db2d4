"""Releases whose files lie in the bucket as plain objects, one for each, put there by other tools. Pure.

A layout then says below which prefix they lie. Small ones are fetched in bundles, many requests side by side;
what comes of a bundle is kept on disk as one pack. Large ones are fetched like any large blob, from their own
key. Nothing about those objects is trusted: each is verified by the digest that the manifest has.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, overload

from blake3 import blake3

from blobsync.errors import InvalidLayoutError
from blobsync.names import MAX_KEY_BYTES, first_path_fault, path_fault
from blobsync.release.artifacts import Artifacts
from blobsync.release.blob import PACKED_BYTES, Blob
from blobsync.release.manifest import Manifest

BUNDLE_BYTES = 8 << 20
BUNDLE_FILES = 512
"""A bundle has at most so many files, and bytes."""

_NAME = "loose-"
_AT_A_TIME = 10_000


class LooseFile(NamedTuple):
    """A small file that lies in the bucket by itself."""

    path: str
    sha256: str
    size_bytes: int


class LooseFiles(Sequence[LooseFile]):
    """Some small files of a release, as a view: of 100,000, copies would take 30 MiB.

    Args:
        of: All files of the release.
        indices: Which, rising.
    """

    __slots__ = ("_indices", "_of")

    def __init__(self, of: Artifacts, indices: array[int]) -> None:
        self._of, self._indices = of, indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> LooseFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LooseFile]: ...
    def __getitem__(self, index: int | slice) -> LooseFile | Sequence[LooseFile]:
        if isinstance(index, slice):
            return LooseFiles(self._of, self._indices[index])
        item = self._of[self._indices[index]]
        return LooseFile(item.path, item.sha256, item.size_bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(self._of.sizes[index] for index in self._indices)

    def within(self, contents: Set[bytes]) -> LooseFiles:
        """Those whose content, as of `blobsync.release.artifacts.contents`, is among these."""
        found = array("I", [index for index in self._indices if self._of.content(index) in contents])
        return self if len(found) == len(self) else LooseFiles(self._of, found)


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
    files: Sequence[LooseFile]

    @property
    def size_bytes(self) -> int:
        """Of what is to be fetched."""
        if isinstance(self.files, LooseFiles):
            return self.files.size_bytes
        return sum(file.size_bytes for file in self.files)

    def key(self, file: LooseFile) -> str:
        """Where one of them lies."""
        return self.prefix + file.path

    def only(self, files: Sequence[LooseFile]) -> Bundle:
        """The same bundle, with less of it to be fetched."""
        return replace(self, files=files)


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
    _refuse_impossible(manifest, prefix)
    files = manifest.files
    return tuple(_bundle(manifest.digest, prefix, files, indices) for indices in _groups(files))


def loose_blobs(manifest: Manifest, prefix: str) -> tuple[LooseBlob, ...]:
    """All large files of a release, each content once."""
    blobs: dict[str, LooseBlob] = {}
    for item in manifest.files.large():
        blob = LooseBlob(item.sha256, item.size_bytes, item.chunks, prefix + item.path)
        blobs.setdefault(blob.name, blob)
    return tuple(blobs.values())


def _refuse_impossible(manifest: Manifest, prefix: str) -> None:
    paths = iter(manifest.artifacts)
    while keys := [prefix + item.path for item in islice(paths, _AT_A_TIME)]:
        faulty = first_path_fault(keys) or next(((key, "is too long") for key in keys if _is_long(key)), None)
        if faulty is not None:
            raise InvalidLayoutError(f"the key {faulty[0][:200]!r} of a plain object {faulty[1]}")


def _is_long(key: str) -> bool:
    return len(key) > MAX_KEY_BYTES // 4 and len(key.encode()) > MAX_KEY_BYTES


def _groups(files: Artifacts) -> Iterator[array[int]]:
    again, group, size_bytes = files.repeated, array("I"), 0
    for index, size in enumerate(files.sizes):
        if size > PACKED_BYTES or index in again:
            continue
        if group and (len(group) == BUNDLE_FILES or size_bytes + size > BUNDLE_BYTES):
            yield group
            group, size_bytes = array("I"), 0
        group.append(index)
        size_bytes += size
    if group:
        yield group


def _bundle(release: str, prefix: str, files: Artifacts, indices: array[int]) -> Bundle:
    digest = blake3(prefix.encode())
    digest.update(b"\0" + b"".join(bytes.fromhex(files.sha256(index)) for index in indices))
    return Bundle(_NAME + digest.hexdigest(), release, prefix, LooseFiles(files, indices))
