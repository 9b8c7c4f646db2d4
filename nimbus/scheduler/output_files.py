"""Lists and reads the files of committed outputs, in the bucket or the shared folder of `worker.data`.

Tasks name their files, so names are not trusted: no link is followed, and nothing outside of an output is
read. What has a manifest is compared with it. API threads.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from itertools import chain
from pathlib import Path

from blobsync import BlobNotFoundError, ObjectStore, RetryPolicy
from blobsync.names import path_fault
from nimbus.adapters.s3_records import or_unavailable
from nimbus.api.services import OpenedFile
from nimbus.domain.data.outputs import ListedFile, Listing, OutputsNotHereError, file_order, listing
from nimbus.scheduler.output_deletion import why_not_here
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.manifest import (
    MAX_MANIFEST_BYTES,
    OutputManifest,
    digest_beside,
    is_manifest,
    parts_of,
    prefix_of,
)
from nimbus.worker.data.places import read_manifest
from nimbus.worker.data.ports import InputRefusedError, OutputRefusedError
from nimbus.worker.data.tree import folders_of

_RETRY = RetryPolicy(max_wait=timedelta(seconds=1), deadline=timedelta(seconds=5))
_PIECE_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""Also a link, a folder's name that is a file, a socket."""
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class BucketFiles:
    """Outputs in a bucket, by their manifests. See `nimbus.api.services.OutputFiles`.

    `uri` is `worker.data`, `s3://bucket/prefix`; keys of `store` are relative to it.
    """

    def __init__(self, uri: str, store: ObjectStore) -> None:
        self._uri, self._store = uri, store
        self._place = BucketPlace(uri, Path("/nowhere"), lambda: store, fetch_retry=_RETRY)
        self._files = lru_cache(maxsize=2)(self._read_manifest)  # for clients that read file by file

    def uri(self, reference: str) -> str:
        return f"{self._uri}/{parts_of(reference)[0] if is_manifest(reference) else reference}"

    def listed(self, reference: str, limit: int, after: str = "") -> Listing:
        return _listing(self._files(reference), limit, after)

    def opened(self, reference: str, path: str) -> OpenedFile | None:
        file = self._files(reference).get(path)
        if file is None:
            return None
        key = f"{parts_of(reference)[0]}/{path}"
        with or_unavailable(f"{self._uri}/{key} cannot be read"):
            try:
                return _opened(file, self._store.read(key))
            except BlobNotFoundError as exc:
                raise OutputsNotHereError(f"{exc}. Run its task again.") from exc

    def _read_manifest(self, reference: str) -> dict[str, ListedFile]:
        if not is_manifest(reference):
            raise OutputsNotHereError(f"its `worker.data` is {self._uri}, not a folder")
        with or_unavailable(f"{self._uri}/{reference} cannot be read"):
            if (self._store.size(reference) or 0) > MAX_MANIFEST_BYTES:
                raise OutputsNotHereError(f"the manifest is larger than {MAX_MANIFEST_BYTES} bytes")
            try:
                manifest = self._place.manifest(reference)
            except InputRefusedError as exc:
                raise OutputsNotHereError(str(exc)) from exc
        return _by_path(manifest)


class FolderFiles:
    """Outputs in a folder that all workers share. See `nimbus.api.services.OutputFiles`.

    The arguments are as of `why_not_here`.
    """

    def __init__(self, folder: Path | None, recorded: Callable[[str], str]) -> None:
        self._folder, self._recorded = folder, recorded
        self._files = lru_cache(maxsize=2)(self._read_manifest)

    def uri(self, reference: str) -> str:
        return f"file://{self._folder}/{prefix_of(reference)}"

    def listed(self, reference: str, limit: int, after: str = "") -> Listing:
        """The files of the manifest, or without one the regular files whose names every system can hold."""
        top = self._top(reference)
        if digest_beside(reference) is not None:
            return _listing(self._files(reference), limit, after)
        with _explained(top):
            return listing(_files_below(top), limit, after)

    def opened(self, reference: str, path: str) -> OpenedFile | None:
        """Read a file; None: there is no regular file of that name."""
        top = self._top(reference)
        if path_fault(path) is not None:
            return None
        has_manifest = digest_beside(reference) is not None
        file = self._files(reference).get(path) if has_manifest else None
        if has_manifest and file is None:
            return None
        with _explained(top / path):
            fd = _open_below(top, path.split("/"))
            if fd is None:
                return None
            listed = ListedFile(path=path, size_bytes=os.fstat(fd).st_size)
            return _opened(file or listed, _pieces(fd))

    def _read_manifest(self, reference: str) -> dict[str, ListedFile]:
        try:
            return _by_path(read_manifest(self._top(reference), reference))
        except InputRefusedError as exc:
            raise OutputsNotHereError(str(exc)) from exc

    def _top(self, reference: str) -> Path:
        """The folder of an output, of which only the last part may be replaced by a task."""
        if is_manifest(reference):
            raise OutputsNotHereError("the output is in a bucket, and its `worker.data` names none")
        why = why_not_here(self._folder, self._recorded)
        if self._folder is None or why:
            raise OutputsNotHereError(f"it has {why}")
        if path_fault(reference) is not None:
            raise OutputsNotHereError(f"{reference!r} is no place of an output")
        return self._folder / prefix_of(reference)


def _files_below(top: Path) -> Iterator[ListedFile]:
    for folder in folders_of(top, other=lambda _path: None):
        for name in folder.files:
            path = folder.path_of(name)
            if path_fault(path) is None:
                size = os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_size
                yield ListedFile(path=path, size_bytes=size)


def _by_path(manifest: OutputManifest) -> dict[str, ListedFile]:
    files = sorted(manifest.files, key=lambda file: file_order(file.path))
    return {
        file.path: ListedFile(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
        for file in files
    }


def _listing(files: Mapping[str, ListedFile], limit: int, after: str) -> Listing:
    page = listing(files.values(), limit, after)
    return replace(page, total_files=len(files), total_bytes=sum(file.size_bytes for file in files.values()))


def _open_below(top: Path, parts: Sequence[str]) -> int | None:
    """Open a regular file through folders only; None: there is none."""
    fd = os.open(top, _FOLDER)
    try:
        for part, flags in zip(parts, (*[_FOLDER] * (len(parts) - 1), _FILE), strict=True):
            below = os.open(part, flags, dir_fd=fd)
            os.close(fd)
            fd = below
        return os.dup(fd) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError as exc:
        if exc.errno in _NO_SUCH_FILE:
            return None
        raise
    finally:
        os.close(fd)


def _pieces(fd: int) -> Iterator[bytes]:
    with os.fdopen(fd, "rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _opened(file: ListedFile, pieces: Iterator[bytes]) -> OpenedFile:
    """The content, with its first piece read: what cannot be read is refused before an answer begins."""
    checked = _checked(file, pieces)
    first = next(checked, b"")
    return OpenedFile(file, chain((first,), checked))


def _checked(file: ListedFile, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces. The last one is held back until size and digest are right, so a wrong file never ends well.

    Raises OutputsNotHereError: it is not what was committed, or has changed while it was read.
    """
    digest, size, held = hashlib.sha256(), 0, b""
    for piece in pieces:
        size += len(piece)
        if file.sha256:
            digest.update(piece)
        if held:
            yield held
        held = piece
    if size != file.size_bytes or (file.sha256 and digest.hexdigest() != file.sha256):
        raise OutputsNotHereError(f"{file.path!r} is not what was committed. Run its task again.")
    yield held


@contextmanager
def _explained(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise OutputsNotHereError(f"{exc.filename or place}: {exc.strerror}") from exc
    except OutputRefusedError as exc:
        raise OutputsNotHereError(str(exc)) from exc
