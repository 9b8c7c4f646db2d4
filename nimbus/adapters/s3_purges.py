"""Purges of history in S3: orders, and records of purged parts of runs.

Keys, below the storage prefix:
    history/purge-orders/<command>.json          the order of a command, until it is done
    history/purged/runs/<run>.json               the note: purged parts of a run; written before a deletion;
    stays history/purged/<part>/<inverted time>~<run>  no content: all logs, or outputs, are deleted
    history/purging/<run>                        no content: the run's history is being deleted

If a run's note lists logs or outputs and the mark is missing, the next purge deletes them again. A run's
history is deleted by the deletion of its record, because lists skip entries without a record. The rest of its
objects is then found by `history/purging`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from blobsync import ObjectStore, valid_objects
from nimbus import records
from nimbus.adapters.s3_records import (
    INDEX_MARK,
    INDEXED_STATES,
    Ascending,
    index_of,
    note_key,
    or_unavailable,
    read_record,
    readable_places,
    readable_record,
    results_key,
    reused_key,
    run_key,
)
from nimbus.domain.ids import CommandId, PipelineName, RunId
from nimbus.domain.runs.purge import Purged, PurgeOrder
from nimbus.domain.runs.run import RunPart, RunPlace, place_at

_ORDERS = "history/purge-orders/"
_PURGING = "history/purging/"


class S3Purges:
    """Any thread. All calls raise StorageUnavailableError."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def order(self, command: CommandId, order: PurgeOrder) -> None:
        with or_unavailable(f"purge {command} could not be stored"):
            self._store.write(f"{_ORDERS}{command}.json", records.PURGE_ORDER.encode(order))

    def orders(self) -> Iterator[tuple[CommandId, PurgeOrder]]:
        """Open orders, oldest first. An unreadable order is logged and skipped."""
        with or_unavailable("purges cannot be listed"):
            for info in valid_objects(self._store, _ORDERS):
                order = readable_record(self._store, info.key, records.PURGE_ORDER)
                if order is not None:
                    yield CommandId(info.key.removeprefix(_ORDERS).removesuffix(".json")), order

    def drop_order(self, command: CommandId) -> None:
        with or_unavailable(f"purge {command} could not be removed"):
            self._store.delete(f"{_ORDERS}{command}.json")

    def purged(self, run: RunId) -> Purged | None:
        key = _note_key(run)
        with or_unavailable(f"{key} cannot be read"):
            return read_record(self._store, key, records.PURGED)

    def note(self, purged: Purged) -> None:
        """Write a run's note; without parts, remove it."""
        with or_unavailable(f"purge of run {purged.run} could not be noted"):
            if purged.parts:
                self._store.write(_note_key(purged.run), records.PURGED.encode(purged))
            else:
                self._store.delete(_note_key(purged.run))

    def mark_done(self, purged: Purged, part: RunPart) -> None:
        with or_unavailable(f"purge of run {purged.run} could not be noted"):
            self._store.write(_done_key(purged, part), INDEX_MARK)

    def is_done(self, purged: Purged, part: RunPart) -> bool:
        with or_unavailable(f"purge of run {purged.run} cannot be read"):
            return self._store.size(_done_key(purged, part)) is not None

    def unpurged_before(
        self,
        when: datetime,
        parts: Collection[RunPart],
        pipeline: PipelineName | None,
        beyond: RunPlace | None = None,
    ) -> Iterator[RunPlace]:
        """Runs that were created before a moment and still have some of the parts, newest first.

        Of one pipeline, or of all; only those after `beyond`.
        """
        begin = str(beyond) if beyond is not None else str(place_at(when, "~"))
        runs = self._names(index_of(pipeline), begin)
        # A run without history is not listed.
        listed = (part for part in parts if part is not RunPart.HISTORY)
        marks = [Ascending(self._names(f"history/purged/{part}/", begin)) for part in listed]
        for place in readable_places(runs):
            if RunPart.HISTORY in parts or not all(names.has(str(place)) for names in marks):
                yield place

    def reusers(self, run: RunId) -> tuple[RunId, ...]:
        prefix = f"history/reused/{run}/"
        with or_unavailable(f"what reuses run {run} cannot be listed"):
            return tuple(RunId(info.key.removeprefix(prefix)) for info in valid_objects(self._store, prefix))

    def forget_reuse(self, run: RunId, by: RunId) -> None:
        """Remove the mark: the outputs of `by` are deleted, so it does not need those of `run` any more."""
        with or_unavailable(f"what reuses run {run} could not be changed"):
            self._store.delete(reused_key(run, by))

    def unfinished(self) -> Iterator[Purged]:
        """Runs whose history is partly deleted. One whose note is unreadable is logged and skipped."""
        with or_unavailable("purges cannot be listed"):
            marks = list(valid_objects(self._store, _PURGING))
            runs = (RunId(info.key.removeprefix(_PURGING)) for info in marks)
            purges = [readable_record(self._store, _note_key(run), records.PURGED) for run in runs]
        yield from filter(None, purges)

    def delete_history(self, purged: Purged) -> None:
        """Delete a run's record, which hides the run everywhere, then its other objects. Safe to repeat."""
        place = place_at(purged.created_at, purged.run)
        with or_unavailable(f"history of run {purged.run} could not be deleted"):
            self._store.write(f"{_PURGING}{purged.run}", INDEX_MARK)
            self._store.delete(run_key(purged.run))
            self._store.delete_many(
                (
                    results_key(purged.run),
                    note_key(purged.run),
                    *(_done_key(purged, part) for part in (RunPart.LOGS, RunPart.OUTPUTS)),
                    *(
                        f"{index_of(pipeline, state)}{place}"
                        for state in (*INDEXED_STATES, None)
                        for pipeline in (purged.pipeline, None)
                    ),
                )
            )
            self._store.delete(f"{_PURGING}{purged.run}")

    def _names(self, prefix: str, begin: str) -> Iterator[str]:
        with or_unavailable("history cannot be listed"):
            for info in valid_objects(self._store, prefix, f"{prefix}{begin}"):
                yield info.key.removeprefix(prefix)


def _note_key(run: RunId) -> str:
    return f"history/purged/runs/{run}.json"


def _done_key(purged: Purged, part: RunPart) -> str:
    return f"history/purged/{part}/{place_at(purged.created_at, purged.run)}"
