"""Keys and records of history in S3, its index, which lists newest first, and the error of the S3 adapters.

The keys are listed in `nimbus.adapters.s3_history`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

import structlog

from blobsync import BlobNotFoundError, BlobSyncError, ObjectStore
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.runs.run import RunPlace, RunState, place_at
from nimbus.records import Codec, T, UnreadableRecordError


class StorageUnavailableError(NimbusError):
    """S3 did not execute a request; a retry may succeed."""

    code = "storage_unavailable"
    retryable = True
    exit_code = 6


@contextmanager
def or_unavailable(what: str) -> Iterator[None]:
    """Translate errors of `blobsync`; `what` begins their message, such as "history cannot be listed"."""
    try:
        yield
    except BlobSyncError as exc:
        raise StorageUnavailableError(f"{what}: {exc}") from exc


_log = structlog.get_logger(__name__)

INDEX_MARK = b"1"
"""Some servers treat an empty object as a folder."""
INDEXED_STATES = (RunState.FAILED, RunState.STOPPED)
"""States with indexes of their own. The other runs in history have succeeded."""
REFUSED, ACCEPTED = "history/refusals/", "history/commands/"
"""Outcomes of commands that were moved out of ZooKeeper."""


def after(prefix: str, when: datetime) -> str:
    """The key after which an index lists runs that were created before a moment, to the second."""
    return f"{prefix}{place_at(when, '~')}"


def index_of(pipeline: PipelineName | None, state: RunState | None = None) -> str:
    """The prefix of an index: of all runs or a pipeline's, and of all states or one of `INDEXED_STATES`."""
    kind = "history/" if state is None else f"history/{state.value}/"
    return kind + ("recent/" if pipeline is None else f"pipelines/{pipeline}/")


def readable_places(names: Iterable[str]) -> Iterator[RunPlace]:
    """The places in an index. An object that is no entry of it is logged and left out."""
    for name in names:
        try:
            yield RunPlace.parse(name)
        except ValueError as exc:
            _log.error("record_unreadable", place=name, error=str(exc))


class Ascending:
    """Looks up names in a sorted iterator; lookups must be in ascending order, too."""

    def __init__(self, names: Iterator[str]) -> None:
        self._names, self._next = names, next(names, None)

    def has(self, name: str) -> bool:
        while self._next is not None and self._next < name:
            self._next = next(self._names, None)
        return self._next == name


def run_key(run: RunId) -> str:
    """Key of a run's record."""
    return f"history/runs/{run}.json"


def results_key(run: RunId) -> str:
    """Key of the results of its tasks."""
    return f"history/results/{run}.json"


def note_key(run: RunId) -> str:
    """Key of the note about it."""
    return f"history/notes/{run}.json"


def reused_key(run: RunId, by: RunId) -> str:
    """Key of the mark that a later run reuses outputs of `run`."""
    return f"history/reused/{run}/{by}"


def read_record(store: ObjectStore, key: str, codec: Codec[T]) -> T | None:
    """The record of a key; None if there is none.

    Raises:
        BlobSyncError: it cannot be read now.
        UnreadableRecordError: it is broken, or of a newer release.
    """
    try:
        return codec.decode(b"".join(store.read(key)), key)
    except BlobNotFoundError:
        return None


def readable_record(store: ObjectStore, key: str, codec: Codec[T]) -> T | None:
    """The record of a key; None if there is none, or if it is unreadable, which is logged. BlobSyncError."""
    try:
        return read_record(store, key, codec)
    except UnreadableRecordError as exc:
        _log.error("record_unreadable", place=exc.place, error=str(exc))
        return None
