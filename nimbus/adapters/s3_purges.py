"""Purges of history in S3: what was asked for, and what is gone of runs.

Keys, below the storage prefix:
    history/purge-orders/<command>.json          what a command asked for, until it is done
    history/purged/runs/<run>.json               what is gone of a run; written before a deletion; stays
    history/purged/<part>/<inverted time>~<run>  empty of meaning: all logs, or outputs, are deleted
    history/purging/<run>                        empty of meaning: the run's history is being deleted

Logs and outputs that are in a run's note and have no mark are deleted again by the next purge. The history of
a run goes with one deletion, that of its record: lists pass over places without a record. What belongs to the
record is found by `history/purging` then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

import structlog

from blobsync import BlobNotFoundError, BlobSyncError, ObjectStore
from nimbus import records
from nimbus.adapters.s3_index import INDEX_MARK, results_key, reused_key, run_key
from nimbus.adapters.storage_error import StorageUnavailableError
from nimbus.domain.ids import CommandId, PipelineName, RunId
from nimbus.domain.purge import Purged, PurgeOrder
from nimbus.domain.purge_parts import Part
from nimbus.domain.run_order import RunPlace, place_at

_ORDERS = "history/purge-orders/"
_PURGING = "history/purging/"
_log = structlog.get_logger(__name__)


class S3Purges:
    """Any thread. All calls raise StorageUnavailableError."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def order(self, command: CommandId, order: PurgeOrder) -> None:
        """See `nimbus.ports.History.order_purge`."""
        with _told(f"purge {command} could not be stored"):
            self._store.write(f"{_ORDERS}{command}.json", records.PURGE_ORDER.encode(order))

    def orders(self) -> Iterator[tuple[CommandId, PurgeOrder]]:
        """What was asked for, and is not done, oldest first. One that cannot be read is reported and left."""
        with _told("purges cannot be listed"):
            for info in self._store.list(_ORDERS):
                command = CommandId(info.key.removeprefix(_ORDERS).removesuffix(".json"))
                try:
                    order = records.PURGE_ORDER.decode(b"".join(self._store.read(info.key)), info.key)
                except records.UnreadableRecordError as exc:
                    _log.error("record_unreadable", place=exc.place, error=str(exc))
                else:
                    yield command, order

    def drop_order(self, command: CommandId) -> None:
        """It is done."""
        with _told(f"purge {command} could not be removed"):
            self._store.delete(f"{_ORDERS}{command}.json")

    def purged(self, run: RunId) -> Purged | None:
        """See `nimbus.ports.History.purged`."""
        key = _note_key(run)
        with _told(f"{key} cannot be read"):
            try:
                return records.PURGED.decode(b"".join(self._store.read(key)), key)
            except BlobNotFoundError:
                return None

    def note(self, purged: Purged) -> None:
        """Say what is gone of a run from now on; nothing: take it back."""
        with _told(f"purge of run {purged.run} could not be noted"):
            if purged.parts:
                self._store.write(_note_key(purged.run), records.PURGED.encode(purged))
            else:
                self._store.delete(_note_key(purged.run))

    def mark_done(self, purged: Purged, part: Part) -> None:
        """All of a part is deleted."""
        with _told(f"purge of run {purged.run} could not be noted"):
            self._store.write(_done_key(purged, part), INDEX_MARK)

    def is_done(self, purged: Purged, part: Part) -> bool:
        """Whether all of a part is deleted."""
        with _told(f"purge of run {purged.run} cannot be read"):
            return self._store.size(_done_key(purged, part)) is not None

    def unpurged_before(
        self,
        when: datetime,
        parts: Collection[Part],
        pipeline: PipelineName | None,
        beyond: RunPlace | None = None,
    ) -> Iterator[RunPlace]:
        """Runs that were created before a moment and have one of the parts, or some of it, newest first.

        Args:
            when: The moment.
            parts: The parts.
            pipeline: Only its runs; None: all.
            beyond: Only runs after this one.
        """
        begin = str(beyond) if beyond is not None else str(place_at(when, "~"))
        runs = self._names("history/recent/" if pipeline is None else f"history/pipelines/{pipeline}/", begin)
        listed = (part for part in parts if part is not Part.HISTORY)  # a run without it is not listed
        marks = [_Ascending(self._names(f"history/purged/{part}/", begin)) for part in listed]
        for name in runs:
            if Part.HISTORY in parts or not all(names.has(name) for names in marks):
                yield RunPlace.parse(name)

    def reusers(self, run: RunId) -> tuple[RunId, ...]:
        """See `nimbus.ports.History.reusers`."""
        prefix = f"history/reused/{run}/"
        with _told(f"what reuses run {run} cannot be listed"):
            return tuple(RunId(info.key.removeprefix(prefix)) for info in self._store.list(prefix))

    def forget_reuse(self, run: RunId, by: RunId) -> None:
        """The outputs of `by` are gone, so it needs those of `run` no more."""
        with _told(f"what reuses run {run} could not be changed"):
            self._store.delete(reused_key(run, by))

    def unfinished(self) -> Iterator[Purged]:
        """Runs whose history is deleted in part."""
        with _told("purges cannot be listed"):
            runs = [RunId(info.key.removeprefix(_PURGING)) for info in self._store.list(_PURGING)]
        yield from (purged for run in runs if (purged := self.purged(run)) is not None)

    def delete_history(self, purged: Purged) -> None:
        """Delete a run's record, which hides it everywhere, then what belongs to that. Safe to repeat."""
        place = place_at(purged.created_at, purged.run)
        with _told(f"history of run {purged.run} could not be deleted"):
            self._store.write(f"{_PURGING}{purged.run}", INDEX_MARK)
            self._store.delete(run_key(purged.run))
            self._store.delete_many(
                (
                    results_key(purged.run),
                    *(_done_key(purged, part) for part in (Part.LOGS, Part.OUTPUTS)),
                    f"history/pipelines/{purged.pipeline}/{place}",
                    f"history/recent/{place}",
                )
            )
            self._store.delete(f"{_PURGING}{purged.run}")

    def _names(self, prefix: str, begin: str) -> Iterator[str]:
        with _told("history cannot be listed"):
            for info in self._store.list(prefix, start_after=f"{prefix}{begin}"):
                yield info.key.removeprefix(prefix)


class _Ascending:
    """Names in ascending order, looked up in ascending order."""

    def __init__(self, names: Iterator[str]) -> None:
        self._names, self._next = names, next(names, None)

    def has(self, name: str) -> bool:
        """Whether a name is among them."""
        while self._next is not None and self._next < name:
            self._next = next(self._names, None)
        return self._next == name


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except BlobSyncError as exc:
        raise StorageUnavailableError(f"{what}: {exc}") from exc


def _note_key(run: RunId) -> str:
    return f"history/purged/runs/{run}.json"


def _done_key(purged: Purged, part: Part) -> str:
    return f"history/purged/{part}/{place_at(purged.created_at, purged.run)}"
