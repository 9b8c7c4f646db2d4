"""Small releases and their bytes, for the tests of the local store. No object store is involved."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from blobsync.local.disk import reserve
from blobsync.local.releases import Release
from blobsync.local.store import LocalStore
from blobsync.publishing.hashing import BlobDigest
from blobsync.release.layout import Layout, Pack, StoredObject
from blobsync.release.manifest import Artifact, Manifest, Role
from blobsync.release.pack import PackWriter


@dataclass(frozen=True)
class Sample:
    """A release, and its objects in an object store."""

    files: Mapping[str, bytes]
    manifest: Manifest
    layout: Layout
    objects: Mapping[StoredObject, bytes]

    @property
    def packs(self) -> list[Pack]:
        return list(self.layout.packs)

    @property
    def known(self) -> Release:
        return Release(self.manifest, self.layout)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def artifact(path: str, data: bytes, *, executable: bool = False) -> Artifact:
    digest = BlobDigest()
    digest.update(data)
    blob = digest.blob()
    return Artifact(path, blob.size_bytes, blob.sha256, Role.CODE, executable, blob.chunks)


def packed(blobs: Iterable[bytes], *, compress: bool = True, members: int = 1000) -> dict[Pack, bytes]:
    """Packs of blobs, each with at most `limit` members."""
    left, packs = list(blobs), dict[Pack, bytes]()
    while left:
        file = io.BytesIO()
        writer = PackWriter(file, compress=compress)
        for data in left[:members]:
            writer.add(sha(data), data)
        pack = Pack(writer.finish(), writer.size_bytes)
        packs[pack] = file.getvalue()
        left = left[members:]
    return packs


def sample(
    files: Mapping[str, bytes],
    *,
    executable: Iterable[str] = (),
    name: str = "p",
    compress: bool = True,
    members: int = 1000,
) -> Sample:
    """A release of the given files."""
    artifacts = {
        path: artifact(path, data, executable=path in set(executable)) for path, data in files.items()
    }
    small = {item.sha256: files[path] for path, item in artifacts.items() if item.blob.is_packed}
    packs = packed(small.values(), compress=compress, members=members)
    large = {item.blob: files[path] for path, item in artifacts.items() if not item.blob.is_packed}
    layout = Layout(tuple(packs), "a test", datetime(2026, 1, 1, tzinfo=UTC))
    return Sample(files, Manifest(name, tuple(artifacts.values())), layout, {**packs, **large})


def bring(local: LocalStore, item: StoredObject, data: bytes) -> None:
    """Receive one object like a syncer. Does nothing if it exists or is being received."""
    incoming = local.receive(item)
    if incoming is None:
        return
    with incoming:
        for start, size in incoming.missing():
            write(incoming.fd, start, data[start : start + size])
            incoming.took(start, size)
        incoming.install()


def write(fd: int, at: int, data: bytes) -> None:
    """Write the whole object."""
    while data:
        done = os.pwrite(fd, data, at)
        at, data = at + done, data[done:]


def fill(local: LocalStore, release: Sample) -> Sample:
    """Receive all objects of a release, and keep it."""
    for item, data in release.objects.items():
        bring(local, item, data)
    assert not local.keep(release.known)
    return release


def contents(tree: Path) -> dict[str, bytes]:
    """The content of all files of a folder."""
    return {
        path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()
    }


def visible(root: Path) -> list[Path]:
    """All packs and blobs with a final name."""
    return sorted(path for kind in ("packs", "blobs") for path in (root / kind).glob("*/*"))


def overwrite(path: Path, data: bytes) -> None:
    """Overwrite a file like a careless or hostile user with enough rights."""
    path.chmod(0o644)
    path.write_bytes(data)


def flip_a_byte_unseen(path: Path, at: int | None = None) -> None:
    """Change a byte like a failing disk: same size, time, inode and mode."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b", buffering=0) as file:
        path.chmod(before.st_mode & 0o777)
        at = before.st_size // 2 if at is None else at
        old = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([old[0] ^ 1]), at)
        # By its descriptor, because a scrub may have moved it by now.
        os.utime(file.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))


def make_unreadable(patch: pytest.MonkeyPatch, path: Path, error: int = errno.EIO) -> None:
    """Make this file fail like one on a bad sector, also after a move. A new file in its place is sound."""
    bad, pread, preadv = path.stat().st_ino, os.pread, os.preadv

    def check(fd: int) -> None:
        if os.fstat(fd).st_ino == bad:
            raise OSError(error, os.strerror(error))

    def checked_pread(fd: int, size: int, at: int) -> bytes:
        check(fd)
        return pread(fd, size, at)

    def checked_preadv(fd: int, buffers: Sequence[memoryview], at: int) -> int:
        check(fd)
        return preadv(fd, buffers, at)

    patch.setattr(os, "pread", checked_pread)
    patch.setattr(os, "preadv", checked_preadv)


def leftover(local: LocalStore, item: StoredObject, data: bytes, *, reserved: bool = True) -> Path:
    """Leave a partial file, as a receiver does that is killed when it has reserved room and written data."""
    path = local.root / "partial" / item.name
    path.write_bytes(data)
    with path.open("r+b") as file:
        if reserved:
            reserve(file.fileno(), item.size_bytes)
            if os.fstat(file.fileno()).st_blocks * 512 < item.size_bytes:
                pytest.skip("this file system cannot reserve room")
    return path
