"""Outputs in a bucket: uploaded before END, and copied to a worker's disk before a driver is started.

It relies neither on listings nor on conditional puts: a prefix is random, so it is never used twice, and END
contains the digest of the manifest. Threads: `data-transfer_<n>` during transfers.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO

from blobsync import BlobNotFoundError, CorruptBlobError, InvalidKeyError, RetryPolicy
from blobsync.retry import call_retrying
from nimbus.worker.data.manifest import (
    OutputFile,
    OutputManifest,
    is_manifest,
    manifest_key,
    parts_of,
    read_notes,
)
from nimbus.worker.data.ports import DataStore, InputRefusedError, OutputRefusedError
from nimbus.worker.data.tree import FoundFolder, list_output, transfers
from nimbus.worker.host.files import flush_tree, make_passage, remove_tree

_LOCKS = 16
_COPY_KEPT_S = 3600.0
"""How long an unneeded copy stays after its last use, because the next attempt may need it."""
UPLOAD_RETRY = RetryPolicy(max_wait=timedelta(seconds=20), deadline=timedelta(minutes=10))
"""For each file of an output. Long, because the attempt's work is lost if it fails."""
FETCH_RETRY = RetryPolicy(max_wait=timedelta(seconds=5), deadline=timedelta(seconds=20))
"""For each file of an input. Short, because the worker tries again while the order exists."""


class BucketPlace:
    """See `DataPlace`.

    Args:
        uri: `s3://bucket/prefix`.
        copies: This worker's folder for copies of inputs.
        open_store: Creates the store on first use; its keys are relative to `uri`.
        upload_retry: Retries of uploads.
        fetch_retry: Retries of downloads.
    """

    def __init__(
        self,
        uri: str,
        copies: Path,
        open_store: Callable[[], DataStore],
        upload_retry: RetryPolicy = UPLOAD_RETRY,
        fetch_retry: RetryPolicy = FETCH_RETRY,
    ) -> None:
        self.uri, self._copies = uri, copies
        self._open_store, self._upload_retry, self._fetch_retry = open_store, upload_retry, fetch_retry
        self._opening = threading.Lock()
        self._fetching = [threading.Lock() for _ in range(_LOCKS)]
        """Locks by digest, so that an input is copied once for all its users."""

    @cached_property
    def _opened(self) -> DataStore:
        return self._open_store()

    @property
    def _store(self) -> DataStore:
        with self._opening:
            return self._opened

    def prefix(self, output: str) -> str:
        """A new random prefix for each call, so that a reused attempt number never finds old objects."""
        return f"{output}-{secrets.token_hex(8)}"

    def output(self, output: str, own: Path) -> Path:
        """A local folder of the attempt."""
        del output
        return own

    def commit(self, output: Path, prefix: str, noted: Path | None = None, *, published: bool = False) -> str:
        """Upload all files, then the manifest, which names them and the noted files."""
        del published  # each has a manifest
        uploaded = list_output(output, prefix, partial(self._upload, prefix))
        noted_files = read_notes(noted) if noted is not None else []
        _check_names([file.path for file in (*uploaded.files, *noted_files)])
        with transfers() as each:
            files = [*uploaded.files, *each(partial(self._checked, prefix), noted_files)]
        data = replace(uploaded, files=files).encode()
        key = manifest_key(prefix, data)
        self._write(key, data)
        return key

    def _checked(self, prefix: str, noted: OutputFile) -> OutputFile:
        key = f"{prefix}/{noted.path}"
        size = call_retrying(partial(self._store.size, key), self._upload_retry, what=key)
        if size != noted.size_bytes:
            raise OutputRefusedError(f"{noted.path!r} was noted, and is not there as noted")
        return noted

    def _upload(self, prefix: str, folder: FoundFolder, name: str) -> OutputFile:
        with folder.digested(name) as (fd, file):
            # By its descriptor, because the name may now refer to another file.
            self._write(f"{prefix}/{file.path}", Path(f"/proc/self/fd/{fd}"))
        return file

    def _write(self, key: str, data: bytes | Path) -> None:
        try:
            call_retrying(partial(self._store.write, key, data), self._upload_retry, what=key)
        except InvalidKeyError as exc:
            raise OutputRefusedError(f"{exc} (it is made of a file's name: choose another)") from exc

    def input(self, reference: str) -> Path:
        """The folder of its copy, named by the digest of its manifest."""
        return self._copies / parts_of(reference)[1]

    def is_here(self, reference: str) -> bool:
        """True if a copy exists."""
        return self.input(reference).is_dir()

    def fetch(self, reference: str, group: int | None = None) -> None:
        """Copy the files that the manifest names. The copy appears after it is fully verified and flushed."""
        prefix, sha256 = parts_of(reference)
        with self._fetching[int(sha256[:8], 16) % _LOCKS]:
            target = self.input(reference)
            if target.is_dir():
                os.utime(target)
                return
            part = self._copies / f".{sha256}.{secrets.token_hex(4)}"
            make_passage(self._copies)
            try:
                self._copy(reference, prefix, part)
                _close_to_writers(part, group)
                flush_tree(part)
                part.rename(target)
            except BaseException:
                remove_tree(part)
                raise

    def manifest(self, reference: str) -> OutputManifest:
        """The manifest of a committed output. Raises as `fetch`."""
        told = io.BytesIO()
        self.read(reference, parts_of(reference)[1], told)
        return OutputManifest.decode(told.getvalue(), reference)

    def _copy(self, reference: str, prefix: str, part: Path) -> None:
        manifest = self.manifest(reference)
        part.mkdir(mode=0o700)
        for folder in {*manifest.folders, *(str(Path(file.path).parent) for file in manifest.files)}:
            (part / folder).mkdir(parents=True, exist_ok=True)
        with transfers() as each:
            each(partial(self._copy_file, prefix, part), manifest.files)

    def _copy_file(self, prefix: str, part: Path, file: OutputFile) -> None:
        with (part / file.path).open("xb") as copy:
            self.read(f"{prefix}/{file.path}", file.sha256, copy)

    def read(self, key: str, sha256: str, into: BinaryIO) -> None:
        """Read an object into an empty file, and verify its digest. Raises as `fetch`."""

        def once() -> None:
            into.seek(0)
            into.truncate()
            digest = hashlib.sha256()
            for chunk in self._store.read(key):
                digest.update(chunk)
                into.write(chunk)
            if digest.hexdigest() != sha256:
                raise CorruptBlobError(f"{self.uri}/{key} is not what was committed")

        try:
            call_retrying(once, self._fetch_retry, what=key)
        except (BlobNotFoundError, CorruptBlobError) as exc:
            raise InputRefusedError(f"{exc}. Run the task that made it again.") from exc

    def remove_unused(self, used: Collection[str]) -> None:
        """Remove copies that are not in `used`, references, and that were last used an hour ago."""
        kept = {parts_of(reference)[1] for reference in used if is_manifest(reference)}
        for copy in self._copies.iterdir() if self._copies.is_dir() else ():
            if copy.name not in kept and time.time() - copy.stat().st_mtime > _COPY_KEPT_S:
                remove_tree(copy)


def _check_names(paths: Sequence[str]) -> None:
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise OutputRefusedError(f"{twice[0]!r} is noted twice, or noted and in the output's folder, too")


def _close_to_writers(top: Path, group: int | None) -> None:
    """Make files read-only, and the tree readable only by its owner and a group."""
    folder_mode, file_mode = (0o700, 0o400) if group is None else (0o750, 0o440)
    for place, _, files in os.walk(top):
        for path, mode in (*((Path(place, name), file_mode) for name in files), (Path(place), folder_mode)):
            if group is not None:
                os.chown(path, -1, group)
            path.chmod(mode)
