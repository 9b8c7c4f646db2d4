"""Verified files on this host's disk, by digest. Several threads and processes may share one.

Layout below the root:

    blobs/<aa>/<sha256>               artifacts, read-only
    releases/<name>/<digest>.json     manifests, each written after all of its blobs
    trees/<digest>/...                releases as folders: hard links to blobs
    quarantine/                       what was found damaged
    sessions/<id>/                    unfinished files and needs of each live user
    verified                          index: which files were hashed, and what they were then
    LOCK, gc.json                     for moments of exclusion; what collection has marked

A file gets its name only after its bytes are on the disk and had the right digest. So whatever is killed
when, no file under `blobs/` was ever half-written; and since disks and people change files later, a file
whose size, time or inode is not that of the one we verified is hashed again before it counts.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Set
from pathlib import Path

import structlog

from blobsync.errors import BlobMissingError, CorruptBlobError, InvalidManifestError
from blobsync.local import tree
from blobsync.local.disk import (
    READ_ONLY,
    FileIdentity,
    disk_errors,
    fsync_folder,
    hash_file,
    identity,
    make_folder,
    regular,
)
from blobsync.local.index import VerifiedIndex
from blobsync.local.session import StoreSession
from blobsync.release.manifest import Artifact, Manifest, ReleaseRef
from blobsync.storage.releases import verified_manifest

_log = structlog.get_logger(__name__)

Step = Callable[[str], None]

_UNREADABLE = {errno.EACCES, errno.EIO, errno.EPERM}
"""A file that cannot be read is as lost as one with other bytes: a bad sector, a permission taken away."""


class LocalStore:
    """Opens or makes a store. Opening reads the index only, not the blobs.

    Args:
        root: A folder of one file system that has hard links, if possible.
        on_step: Called with the name of each step of an install before it is made: for fault injection.

    Raises:
        LocalStoreError: the folder cannot be made or written.
    """

    def __init__(self, root: Path, *, on_step: Step = lambda _name: None) -> None:
        self.root = root.absolute()
        self._on_step = on_step
        with disk_errors(f"opening the local store {self.root}"):
            for name in ("blobs", "releases", "trees", "quarantine", "sessions"):
                make_folder(self.root / name)
            self._session = StoreSession(self.root / "sessions", self.lock_file)
            self._index = VerifiedIndex(self.root / "verified")

    @property
    def lock_file(self) -> Path:
        """Held for moments, by whoever changes what is protected from collection, or collects."""
        return self.root / "LOCK"

    @property
    def session(self) -> StoreSession:
        """What this user has to itself."""
        return self._session

    def close(self) -> None:
        """Let go of everything held. Safe to repeat."""
        self._index.close()
        self._session.close()

    def __enter__(self) -> LocalStore:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def hold(self, releases: Set[str]) -> None:
        """Protect releases, by digest, from collection by any process; in place of what we held before."""
        with disk_errors("noting what is needed"):
            self._session.hold(releases)

    def blob_path(self, sha256: str) -> Path:
        """Where a blob is, or would be."""
        return self.root / "blobs" / sha256[:2] / sha256

    def has_blob(self, sha256: str) -> bool:
        """Whether the blob is here and verified. Hashes it if its file is not the one that was verified.

        A file with other bytes is moved to quarantine.

        Raises:
            LocalStoreError: the disk does not say.
        """
        with disk_errors(f"looking for blob {sha256}"):
            return self.check_file(self.blob_path(sha256), sha256)

    def check_file(
        self, path: Path, sha256: str, *, again: bool = False, going_on: Callable[[], None] = lambda: None
    ) -> bool:
        """Whether the file is there with these bytes, from the index or by hashing. Else it is put away.

        Args:
            path: Below the root.
            sha256: What it should be.
            again: Hash it whatever the index says.
            going_on: Called while hashing; raises to stop.
        """
        found = regular(path)
        if found is None:
            return False
        place = path.relative_to(self.root).as_posix()
        if not again and self._index.digest(place, identity(found)) == sha256:
            return True
        try:
            digest, hashed = hash_file(path, going_on)
        except FileNotFoundError:  # collected or quarantined by another process just now
            return False
        except OSError as exc:
            if exc.errno not in _UNREADABLE:
                raise
            digest, hashed = f"unreadable ({exc.strerror})", identity(found)
        if digest == sha256:
            self._index.verified(place, hashed, sha256)
            return True
        self._quarantine(path, sha256, digest)
        return False

    def install(self, sha256: str, size_bytes: int, chunks: Iterable[bytes]) -> None:
        """Take in a blob. It is visible under its name only when verified and on the disk.

        Args:
            sha256: What the bytes must hash to.
            size_bytes: How many they must be; reading stops as soon as there are more.
            chunks: The bytes. What this raises passes through, and nothing is left.

        Raises:
            CorruptBlobError: other bytes than promised.
            LocalStoreError: the disk failed.
        """
        with disk_errors(f"installing blob {sha256}"):
            self._install(self.blob_path(sha256), sha256, size_bytes, chunks)

    def _install(self, path: Path, sha256: str, size_bytes: int, chunks: Iterable[bytes]) -> None:
        make_folder(path.parent)
        part = self._session.new_path()
        try:
            written = self._write_part(part, sha256, size_bytes, chunks)
            self._place(part, path, sha256)
            self._step("fsync-folder")
            fsync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        self._step("index")
        # If another process placed its copy first, ours is not the one there; its identity then says so.
        self._index.verified(path.relative_to(self.root).as_posix(), written, sha256)

    def _write_part(self, part: Path, sha256: str, size: int, chunks: Iterable[bytes]) -> FileIdentity:
        self._step("create")
        digest, got = hashlib.sha256(), 0
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            for chunk in chunks:
                self._step("write")
                got += len(chunk)
                if got > size:
                    raise CorruptBlobError(
                        f"blob {sha256} is longer than the {size} bytes its manifest names"
                    )
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            if got != size or digest.hexdigest() != sha256:
                raise CorruptBlobError(
                    f"blob {sha256} came as {got} bytes with digest {digest.hexdigest()}, not as {size} with "
                    f"its own; nothing was installed. If it stays so, publish the release again"
                )
            os.fchmod(fd, READ_ONLY)
            self._step("fsync")
            os.fsync(fd)  # never tried again after a failure: the pages may be marked clean, and are not
            return identity(os.fstat(fd))

    def _place(self, part: Path, path: Path, sha256: str) -> None:
        """Give a finished file its name, unless a good one has it: trees link to that one."""
        self._step("rename")
        try:
            os.link(part, path)
        except FileExistsError:
            if not self.check_file(path, sha256):
                part.replace(path)
        except OSError:  # a file system without hard links
            part.replace(path)

    def _step(self, name: str) -> None:
        self._on_step(name)

    def missing(self, manifest: Manifest) -> tuple[Artifact, ...]:
        """Artifacts that are not here and verified."""
        here = {sha256: self.has_blob(sha256) for sha256 in manifest.blobs}
        return tuple(item for item in manifest.artifacts if not here[item.sha256])

    def install_manifest(self, manifest: Manifest) -> None:
        """Keep the manifest, so that the release is known here without the object store.

        Raises:
            BlobMissingError: not all of its blobs are here; they come first.
        """
        self._require(manifest)
        path = self._manifest_path(manifest.ref)
        with disk_errors(f"installing the manifest of {manifest.ref}"):
            if not self.check_file(path, manifest.digest):
                self._install(path, manifest.digest, len(manifest.canonical), [manifest.canonical])

    def manifest(self, ref: ReleaseRef) -> Manifest | None:
        """The manifest of a release that was complete here once; None: it was not, or it was damaged."""
        path = self._manifest_path(ref)
        with disk_errors(f"reading the manifest of {ref}"):
            if regular(path) is None:
                return None
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # collected just now
                return None
        try:
            return verified_manifest(data, ref.name, ref.digest)
        except (CorruptBlobError, InvalidManifestError):
            self._quarantine(path, ref.digest, hashlib.sha256(data).hexdigest())
            return None

    def manifests(self) -> list[ReleaseRef]:
        """All releases whose manifests are here, sorted."""
        found = (self.root / "releases").glob("*/*.json")
        return sorted((ReleaseRef(path.parent.name, path.stem) for path in found), key=str)

    def materialise(self, manifest: Manifest) -> Path:
        """Give the release as a read-only folder. Cheap when it is there already; safe to race.

        Returns:
            `root/trees/<digest>`. It stays while the release is held or wanted.

        Raises:
            BlobMissingError: not all of its blobs are here.
            LocalStoreError: the disk failed.
        """
        self._require(manifest)
        with disk_errors(f"materialising {manifest.ref}"):
            return tree.materialise(self, manifest)

    def verify(
        self, manifest: Manifest, *, going_on: Callable[[], None] = lambda: None
    ) -> tuple[Artifact, ...]:
        """Hash every blob of the release anew, whatever the index says. Damaged ones go to quarantine.

        Args:
            manifest: The release.
            going_on: Called while hashing; raises to stop.

        Returns:
            What is missing now.
        """
        with disk_errors(f"verifying {manifest.ref}"):
            good = {
                sha256: self.check_file(self.blob_path(sha256), sha256, again=True, going_on=going_on)
                for sha256 in manifest.blobs
            }
            tree.forget_damaged_copies(self, manifest, going_on)
        return tuple(item for item in manifest.artifacts if not good[item.sha256])

    def _require(self, manifest: Manifest) -> None:
        if lacking := self.missing(manifest):
            raise BlobMissingError(
                f"{manifest.ref} lacks {len(lacking)} of {len(manifest.artifacts)} files here, such as "
                f"{lacking[0].path} ({lacking[0].sha256}); sync it first"
            )

    def _quarantine(self, path: Path, expected: str, found: str) -> None:
        self._index.forget(path.relative_to(self.root).as_posix())
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            path.replace(self.root / "quarantine" / f"{path.name}.{time.time_ns()}")
            fsync_folder(path.parent)
            _log.error("blob_quarantined", path=str(path), expected=expected, found=found)

    def _manifest_path(self, ref: ReleaseRef) -> Path:
        return self.root / "releases" / ref.name / f"{ref.digest}.json"
