"""Deletes outputs of runs, in the bucket or the shared folder of `worker.data`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from blobsync import ObjectStore
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import pipeline_name, run_id
from nimbus.domain.purge import Purged
from nimbus.scheduler.deleting import delete_with_uploads
from nimbus.telemetry.artifacts import GarbageMetrics


class OutputsNotHereError(NimbusError):
    """This scheduler has no place of outputs in its configuration, or cannot reach it."""

    code = "outputs_not_here"
    exit_code = 4


class BucketOutputs:
    """Outputs in a bucket. The keys of `store` are relative to `worker.data`."""

    def __init__(self, store: ObjectStore, leads: Callable[[], bool], metrics: GarbageMetrics) -> None:
        self._store, self._leads, self._deleted = store, leads, partial(metrics.deleted, "outputs")

    def delete(self, purged: Purged) -> bool:
        """See `nimbus.scheduler.purge.OutputPlace.delete`."""
        return delete_with_uploads(
            self._store, f"{purged.pipeline}/{purged.run}/", self._leads, self._deleted
        )


class FolderOutputs:
    """Outputs in a folder that all workers share; `None`: this scheduler's configuration has no folder."""

    def __init__(self, folder: Path | None, metrics: GarbageMetrics) -> None:
        self._folder, self._metrics = folder, metrics

    def delete(self, purged: Purged) -> bool:
        """See `nimbus.scheduler.purge.OutputPlace.delete`. An empty folder may be one that is not mounted."""
        if self._folder is None or not self._folder.is_dir() or not any(self._folder.iterdir()):
            raise OutputsNotHereError(
                f"outputs of run {purged.run} are not deleted: the folder of worker.data "
                f"({self._folder or 'not set'}) is empty or not on this host. Set and mount it on all "
                "schedulers."
            )
        # The names are checked again, because they become a path that is deleted.
        place = self._folder / pipeline_name(purged.pipeline) / run_id(purged.run)
        files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
        size_bytes = sum(path.lstat().st_size for path in files)
        if place.is_dir():
            shutil.rmtree(place)  # follows no link
        self._metrics.deleted("outputs", len(files), size_bytes)
        return True
