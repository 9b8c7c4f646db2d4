"""Deletes what is below a prefix of a bucket, while this scheduler leads.

S3 takes no fencing token, so leadership is asked for right before each request that deletes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import islice

from blobsync import ObjectStore

_AT_A_TIME = 1000
"""Keys: leadership is asked for again before each such batch."""


def delete_below(
    store: ObjectStore,
    prefix: str,
    leads: Callable[[], bool],
    deleted: Callable[[int, int], None],
    start_after: str | None = None,
) -> bool:
    """Delete the objects that are there now.

    Args:
        store: Where.
        prefix: Of the keys.
        leads: Whether we lead now.
        deleted: Told how many objects of which size were deleted.
        start_after: Only keys after this one.

    Returns:
        False: we do not lead any more, and something may be left.
    """
    found = store.list(prefix, start_after)
    while batch := list(islice(found, _AT_A_TIME)):
        if not leads():
            return False
        store.delete_many([info.key for info in batch])
        deleted(len(batch), sum(info.size_bytes for info in batch))
    return True


def delete_with_uploads(
    store: ObjectStore, prefix: str, leads: Callable[[], bool], deleted: Callable[[int, int], None]
) -> bool:
    """As `delete_below`, and abandon uploads that are not finished."""
    if not delete_below(store, prefix, leads, deleted) or not leads():
        return False
    store.abandon_uploads(prefix, timedelta(0))
    return True
