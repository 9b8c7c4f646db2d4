"""The storage of outputs: a folder that all workers share under the same path, or a bucket.

A published output in the folder has a manifest. It lies beside the output, where its task cannot write.
Threads: `data-transfer_<n>` while files are read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NoReturn, TypeVar

from blobsync import ObjectStore
from blobsync.names import path_fault
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.manifest import (
    MAX_MANIFEST_BYTES,
    OutputFile,
    OutputManifest,
    digest_beside,
    is_manifest,
    prefix_of,
    reference_beside,
)
from nimbus.worker.data.ports import DataPlace, InputRefusedError, OutputRefusedError
from nimbus.worker.data.tree import FoundFolder, list_output
from nimbus.worker.host.files import Fsync, flush_above, flush_tree, read_untrusted, write_once

if TYPE_CHECKING:
    from nimbus.worker.settings import RunnerPlan

Kept = TypeVar("Kept")
_MAX_REMEMBERED = 10_000
MAX_FILES = 100_000
"""Limit of the files and empty folders of a published output in a folder."""


def _no_store() -> NoReturn:
    raise AssertionError("paths need no store")


def place_of(plan: RunnerPlan, open_store: Callable[[], ObjectStore] = _no_store) -> DataPlace:
    """The storage for an attempt's output. Without `open_store` it can only compute paths."""
    if plan.data_uri is None:
        return folder_place(plan.data_dir)
    return BucketPlace(plan.data_uri, plan.data_dir, open_store)


@lru_cache(maxsize=4)
def folder_place(root: Path) -> FolderPlace:
    """The one place of this process for a folder, which remembers what was verified and flushed."""
    return FolderPlace(root)


class FolderPlace:
    """A shared folder, see `DataPlace`. An attempt writes to the final place, its order's `output`."""

    def __init__(self, root: Path, fsync: Fsync = os.fsync) -> None:
        """`fsync` is replaced in tests."""
        self._root, self._fsync = root, fsync
        self._verified: dict[str, None] = {}
        """References that were verified, oldest first."""
        self._flushed: dict[Path, None] = {}
        """Folders of runs whose parent folders are on the disk, oldest first."""
        self.uri = f"file://{root}"  # not quoted, because Hadoop does not unquote

    def prefix(self, output: str) -> str:
        """See `DataPlace`."""
        return output

    def output(self, output: str, own: Path) -> Path:
        """See `DataPlace`."""
        del own
        return self._root / output

    def commit(self, output: Path, prefix: str, noted: Path | None = None, *, published: bool = False) -> str:
        """Flush it: END must not name files that a power loss can destroy."""
        del noted
        flush_above(output, self._root, fsync=self._fsync, flushed=self._flushed)
        _remember(self._flushed, output.parents[1])
        flush_tree(output, fsync=self._fsync)
        return write_manifest(output, prefix) if published else prefix

    def input(self, reference: str) -> Path:
        """See `DataPlace`."""
        if is_manifest(reference):
            raise InputRefusedError(
                f"input {reference} was committed to a bucket, and this worker keeps outputs in "
                f"{self._root}: give all workers the same `worker.data`"
            )
        return self._root / prefix_of(reference)

    def is_here(self, reference: str) -> bool:
        """True, because the folder is shared; of a published output, if this process has verified it."""
        self.input(reference)
        return digest_beside(reference) is None or reference in self._verified

    def fetch(self, reference: str, group: int | None = None) -> None:
        """Verify a published output. Others have no digests."""
        del group
        folder = self.input(reference)
        if not self.is_here(reference):
            verify(folder, reference)
            _remember(self._verified, reference)


def _remember(kept: dict[Kept, None], new: Kept) -> None:
    kept[new] = None
    while len(kept) > _MAX_REMEMBERED:
        kept.pop(next(iter(kept)), None)


def write_manifest(folder: Path, prefix: str) -> str:
    """Write the manifest of an output durably; return the output's reference.

    Args:
        folder: The output, which is flushed and must not change any more.
        prefix: Its path relative to `worker.data`.

    Raises:
        OSError: the disk failed, or a file cannot be read; `filename` names it.
        OutputRefusedError: it cannot be published: links, names, too many files, a file that changes.
    """
    data = list_output(folder, prefix, _file, max_files=MAX_FILES).encode()
    if len(data) > MAX_MANIFEST_BYTES:
        raise OutputRefusedError(f"its manifest has {len(data)} bytes, and the limit is {MAX_MANIFEST_BYTES}")
    reference = reference_beside(prefix, data)
    beside = _beside(folder, reference)
    write_once(beside, data)
    beside.chmod(0o644)  # workers and schedulers can run as different users
    return reference


def read_manifest(folder: Path, reference: str) -> OutputManifest:
    """The manifest of an output. InputRefusedError: it is missing, or not what was committed."""
    data = read_untrusted(_beside(folder, reference), MAX_MANIFEST_BYTES)
    if data is None or hashlib.sha256(data).hexdigest() != digest_beside(reference):
        what = "is missing or cannot be read" if data is None else "is not what was committed"
        raise InputRefusedError(f"the manifest {reference} {what}. Run the task that made it again.")
    return OutputManifest.decode(data, reference)


def verify(folder: Path, reference: str) -> None:
    """Compare every byte of an output with its manifest. InputRefusedError: it differs. OSError: not now."""
    expected = set(read_manifest(folder, reference).files)
    try:
        present = list_output(folder, prefix_of(reference), _file, max_files=MAX_FILES)
    except (FileNotFoundError, NotADirectoryError, OutputRefusedError) as exc:
        raise InputRefusedError(f"{reference} is not what was committed: {exc}") from exc
    if different := sorted(expected.symmetric_difference(present.files)):
        raise InputRefusedError(
            f"{folder / different[0].path} is not what was committed. Run the task that made it again."
        )


def _file(folder: FoundFolder, name: str) -> OutputFile:
    path = folder.path_of(name)
    if (fault := path_fault(path)) is not None:
        raise OutputRefusedError(f"{path!r} {fault}: choose another name")
    with folder.digested(name) as (_fd, file):
        return file


def _beside(folder: Path, reference: str) -> Path:
    return folder.with_name(PurePosixPath(reference).name)
