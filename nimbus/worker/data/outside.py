"""Verifies data from outside that a task reads, if their version has a digest: files and objects in S3.

Thread `worker-fetch-*`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from blobsync import BlobSyncError
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.data.publications import OutsideData
from nimbus.worker.data.ports import DataStore, InputRefusedError

_S3 = "s3://"


class OutsideRefusedError(InputRefusedError):
    """Data from outside are not what was published. This says nothing against the worker."""


def is_verified(of: OutsideData, order: Assignment) -> bool:
    """True if a worker compares them with their digest before each attempt.

    A driver in a cluster may be on any host, so only what all hosts read alike is compared for it.
    """
    places = (_S3,) if order.task.runs_in_cluster else (_S3, "file:///")
    return bool(of.sha256) and of.uri.startswith(places)


def to_verify(order: Assignment) -> Iterator[OutsideData]:
    """The data from outside of an order that must be verified."""
    for versions in order.pins.values():
        for version in versions:
            if version.outside is not None and is_verified(version.outside, order):
                yield version.outside


def verify(of: OutsideData, open_bucket: Callable[[str], DataStore], timeout: timedelta) -> None:
    """Compare every byte with the digest, for an object within `timeout`.

    The digest that the data have is not told: a worker can read files and objects that its tasks cannot, and
    whoever publishes names them.

    Raises:
        OutsideRefusedError: there is no such file or object, it cannot be read with the worker's keys or
            within the time, or it is another one.
        OSError, BucketUnavailableError: it cannot be read now.
    """
    sha256 = _of_object(of.uri, open_bucket, timeout) if of.uri.startswith(_S3) else _of_file(of.uri)
    if sha256 != of.sha256:
        raise OutsideRefusedError(
            f"{of.uri} has another digest, and was published with sha256:{of.sha256}: publish it again"
        )


def _of_file(uri: str) -> str:
    path = Path(unquote(urlsplit(uri).path))
    if not path.is_file():
        raise OutsideRefusedError(f"{uri} is no file on this host, and was published as one with a digest")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of_object(uri: str, open_bucket: Callable[[str], DataStore], timeout: timedelta) -> str:
    bucket, _, key = uri.removeprefix(_S3).partition("/")
    digest, ends_s = hashlib.sha256(), time.monotonic() + timeout.total_seconds()
    try:
        for piece in open_bucket(bucket).read(key):
            digest.update(piece)
            if time.monotonic() > ends_s:
                raise OutsideRefusedError(
                    f"{uri} is so large, or comes so slowly, that it was not compared with its digest within "
                    f"{timeout} (worker.prepare_timeout): publish it in parts, or without a digest"
                )
    except BlobSyncError as exc:
        if exc.retryable:
            raise
        raise OutsideRefusedError(
            f"{uri} was published with a digest, and cannot be compared with it: {exc}. Workers read it with "
            "the keys in `data`, else those in `storage`"
        ) from exc
    return digest.hexdigest()
