"""The store before packs: one file for each blob. Goes as soon as the syncer uses `LocalStore.receive`."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from blobsync.errors import BlobMissingError, CorruptBlobError, InvalidManifestError, LocalStoreError
from blobsync.local import tree
from blobsync.local.disk import READ_ONLY, FileIdentity, fsync_folder, identity, make_folder, regular
from blobsync.local.foundation import Foundation
from blobsync.release.manifest import Artifact, Manifest, ReleaseRef
from blobsync.storage.ports import CHUNK_BYTES
from blobsync.storage.releases import verified_manifest

_log = structlog.get_logger(__name__)

_UNREADABLE = {errno.EACCES, errno.EIO, errno.EPERM}


def hash_file(path: Path, going_on: Callable[[], None] = lambda: None) -> tuple[str, FileIdentity]:
    """SHA-256 of a file as it is on the disk, and which file that was.

    Args:
        path: A regular file; a link is refused by the system.
        going_on: Called for each chunk; raises to stop.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        before = identity(os.fstat(fd))
        os.posix_fadvise(
            fd, 0, 0, os.POSIX_FADV_DONTNEED
        )  # the disk is asked, not what memory remembers of it
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK_BYTES):
            going_on()
            digest.update(chunk)
        after = identity(os.fstat(fd))
    # Written to meanwhile: the empty digest is nobody's.
    return (digest.hexdigest() if before == after else ""), after


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Tell what failed on the disk, in our words."""
    try:
        yield
    except OSError as exc:
        raise LocalStoreError(
            f"{what} failed: {exc}; check that the disk has room (`df -h`, `df -i`), is not read-only, and "
            f"that this user may write there. It is tried again; what was there is unharmed"
        ) from exc


class LegacyStore:
    """See the module."""

    _base: Foundation

    @property
    def root(self) -> Path:
        """The store's folder."""
        return self._base.root

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
        if not again and self._base.index.digest(place, identity(found)) == sha256:
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
            self._base.index.verified(place, hashed, sha256)
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
        part = self._base.session.new_path()
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
        self._base.index.verified(path.relative_to(self.root).as_posix(), written, sha256)

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
        self._base.step(name)

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

    def old_materialise(self, manifest: Manifest) -> Path:
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

    def old_verify(
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
        self._base.index.forget(path.relative_to(self.root).as_posix())
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            path.replace(self.root / "quarantine" / f"{path.name}.{time.time_ns()}")
            fsync_folder(path.parent)
            _log.error("blob_quarantined", path=str(path), expected=expected, found=found)

    def _manifest_path(self, ref: ReleaseRef) -> Path:
        return self.root / "releases" / ref.name / f"{ref.digest}.json"
