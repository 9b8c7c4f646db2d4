"""Deletes objects below a prefix of a bucket, while this scheduler leads.

S3 has no fencing tokens, so leadership is checked right before each request that deletes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import islice

from blobsync import ObjectStore, valid_objects

_AT_A_TIME = 1000
"""Number of keys in a batch. Leadership is checked before each batch."""


def delete_below(
    store: ObjectStore,
    prefix: str,
    leads: Callable[[], bool],
    deleted: Callable[[int, int], None],
    start_after: str | None = None,
) -> bool:
    """Delete the objects that exist now, except those under keys that only other programs make.

    Args:
        store: The bucket.
        prefix: Prefix of the keys.
        leads: Returns True while we lead.
        deleted: Called with the number and the total bytes of deleted objects.
        start_after: Only keys after this one.

    Returns:
        False: we no longer lead, and objects may be left.
    """
    found = valid_objects(store, prefix, start_after)
    while batch := list(islice(found, _AT_A_TIME)):
        if not leads():
            return False
        store.delete_many([info.key for info in batch])
        deleted(len(batch), sum(info.size_bytes for info in batch))
    return True


def delete_with_uploads(
    store: ObjectStore, prefix: str, leads: Callable[[], bool], deleted: Callable[[int, int], None]
) -> bool:
    """As `delete_below`, and abort unfinished uploads."""
    if not delete_below(store, prefix, leads, deleted) or not leads():
        return False
    store.abandon_uploads(prefix, timedelta(0))
    return True
