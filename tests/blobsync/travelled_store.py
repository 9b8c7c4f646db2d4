"""A real object store whose clock the test advances, for tests of processes that take days."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from blobsync import ObjectInfo, ObjectStore
from blobsync.bucket.ports import OnProgress, UnfinishedUpload, ignore_progress


class TravelledStore:
    """A store whose clock the test advances, which makes earlier objects older."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._written: dict[str, timedelta] = {}
        self.passed = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.passed

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        return self._store.read(key, start=start, size_bytes=size_bytes)

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        self._store.copy(key, fd, start=start, size_bytes=size_bytes, on_progress=on_progress)

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        self._store.write(key, data, on_progress=on_progress)
        self._written[key] = self.passed

    def size(self, key: str) -> int | None:
        return self._store.size(key)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for info in self._store.list(prefix, start_after):
            shift = self._written.get(info.key, timedelta(0))
            yield ObjectInfo(info.key, info.size_bytes, info.modified + shift)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        self._store.delete_many(keys, before_each)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        return self._store.unfinished_uploads(prefix)

    def abandon_uploads(self, prefix: str, older_than: timedelta) -> int:
        return self._store.abandon_uploads(prefix, older_than)
