"""The storage of outputs: a folder that all workers share under the same path, or a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NoReturn, TypeVar

from blobsync import ObjectStore
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.folder_manifest import verify, write_manifest
from nimbus.worker.data.manifest import digest_beside, is_manifest, prefix_of
from nimbus.worker.data.ports import DataPlace, InputRefusedError
from nimbus.worker.host.files import Fsync, flush_above, flush_tree
from nimbus.worker.settings import RunnerPlan

Kept = TypeVar("Kept")
_MAX_REMEMBERED = 10_000


def _no_store() -> NoReturn:
    raise AssertionError("paths need no store")


def place_of(plan: RunnerPlan, open_store: Callable[[], ObjectStore] = _no_store) -> DataPlace:
    """The storage for an attempt's output.

    Args:
        plan: The attempt's plan.
        open_store: See `connections.open_data`. Without it the place can only compute paths.
    """
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
        """See `DataPlace.prefix`."""
        return output

    def output(self, output: str, own: Path) -> Path:
        """See `DataPlace.output`."""
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
        """See `DataPlace.input`."""
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
