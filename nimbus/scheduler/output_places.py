"""Deletes outputs of runs, in the bucket or the shared folder of `worker.data`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from blobsync import ObjectStore
from nimbus.domain.ids import pipeline_name, run_id
from nimbus.domain.outputs import OutputsNotHereError
from nimbus.domain.purge import Purged
from nimbus.scheduler.deleting import delete_with_uploads
from nimbus.telemetry.daemon import GarbageMetrics
from nimbus.worker.data.folder_checks import why_not_ours
from nimbus.worker.host.files import remove_tree


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
    """Outputs in a folder that all workers share.

    Args:
        folder: `worker.data`; None: this scheduler's configuration has none.
        recorded: See `nimbus.ports.Registrations.data_mark`.
        metrics: Receives the counts.
    """

    def __init__(self, folder: Path | None, recorded: Callable[[str], str], metrics: GarbageMetrics) -> None:
        self._folder, self._recorded, self._metrics = folder, recorded, metrics

    def delete(self, purged: Purged) -> bool:
        """See `nimbus.scheduler.purge.OutputPlace.delete`. Without its mark a folder is not the cluster's."""
        why = why_not_here(self._folder, self._recorded)
        if self._folder is None or why:
            raise OutputsNotHereError(
                f"outputs of run {purged.run} are not deleted: this scheduler has {why}"
            )
        # The names are checked again, because they become a path that is deleted.
        place = self._folder / pipeline_name(purged.pipeline) / run_id(purged.run)
        sizes = list(_sizes(place))
        if place.is_dir():
            remove_tree(place)
        if os.path.lexists(place):
            raise OSError(f"{place} cannot be deleted: check that the scheduler's user may")
        self._metrics.deleted("outputs", len(sizes), sum(sizes))
        return True


def why_not_here(folder: Path | None, recorded: Callable[[str], str]) -> str:
    """What this scheduler has instead of the cluster's folder of outputs; empty: it has that folder.

    Args:
        folder: `worker.data`; None: the configuration has none.
        recorded: See `nimbus.ports.Registrations.data_mark`.
    """
    if folder is not None and recorded(""):  # else the folder would be made and marked
        return why_not_ours(folder, recorded)
    return "no worker.data in its configuration, or one that no worker uses"


def _sizes(place: Path) -> Iterator[int]:
    """The sizes of the files below a folder, at any depth that a path can name. Links are not followed."""
    folders = [str(place)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_size
