"""Checks data that tasks wait for: objects in S3, files of this host, HTTP responses.

Any thread may call `DataLooker.look`. Each check has a time limit, except checks of files, which the kernel
may block; they have their own threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from pathlib import Path

from blobsync import BlobSyncError, S3ObjectStore
from nimbus.adapters.http_look import UnfitAnswerError, status_of
from nimbus.domain.waits import DataSource, Look, Seen

MOST_BUCKETS = 16
"""Most buckets whose clients are cached."""


class DataLooker:
    """Checks one thing at a time in each thread.

    Args:
        open_bucket: Opens a bucket by its name.
        http_allow: See `nimbus.adapters.http_look.status_of`.
    """

    def __init__(self, *, open_bucket: Callable[[str], S3ObjectStore], http_allow: Collection[str]) -> None:
        self._bucket = lru_cache(MOST_BUCKETS)(open_bucket)
        self._http_allow = frozenset(host.strip("[]").lower() for host in http_allow)

    def look(self, look: Look) -> Seen:
        """Check once. An error counts as "not there"."""
        try:
            match look.source:
                case DataSource.S3:
                    return self._in_s3(look.address)
                case DataSource.FILE:
                    return _file(look.address)
                case DataSource.HTTP:
                    status = status_of(look.address, self._http_allow)
                    return Seen(status == look.status, str(status))
        except (BlobSyncError, UnfitAnswerError, OSError, ValueError) as exc:  # ValueError: not a host name
            return Seen(False, str(exc) or type(exc).__name__)

    def _in_s3(self, address: str) -> Seen:
        bucket, _, key = address.removeprefix("s3://").partition("/")
        store = self._bucket(bucket)
        if key.endswith("/"):
            return Seen(next(iter(store.list(key)), None) is not None, "no object with this prefix")
        return Seen(store.size(key) is not None, "no such object")


def _file(path: str) -> Seen:
    try:
        Path(path).stat()
    except FileNotFoundError:
        return Seen(False, "no such file")
    return Seen(True, "")
