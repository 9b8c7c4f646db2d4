"""Which calls are retried, and how often."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from blobsync import (
    BlobNotFoundError,
    BlobSyncError,
    BucketUnavailableError,
    CorruptBlobError,
    RetryPolicy,
)
from blobsync.errors import CorruptPackError
from blobsync.retry import WRONG_BYTES_TRIES, call_retrying

PATIENT = RetryPolicy(
    first_wait=timedelta(microseconds=1), max_wait=timedelta(microseconds=1), deadline=timedelta(hours=1)
)


def failing(*errors: BlobSyncError) -> tuple[Callable[[], str], list[BlobSyncError]]:
    """A call that fails with each of these errors, then succeeds; and the raised errors."""
    waiting, raised = list(errors), list[BlobSyncError]()

    def call() -> str:
        if not waiting:
            return "done"
        raised.append(waiting.pop(0))
        raise raised[-1]

    return call, raised


def test_what_may_heal_is_tried_until_it_does() -> None:
    call, raised = failing(*[BucketUnavailableError("busy")] * 20)

    assert call_retrying(call, PATIENT, what="test") == "done"
    assert len(raised) == 20


@pytest.mark.parametrize("error", [CorruptBlobError("wrong"), CorruptPackError("wrong")], ids=repr)
def test_wrong_bytes_are_read_a_few_times_and_no_more(error: CorruptBlobError) -> None:
    call, raised = failing(*[error] * 1000)

    with pytest.raises(type(error), match="wrong"):
        call_retrying(call, PATIENT, what="test")
    assert len(raised) == WRONG_BYTES_TRIES


def test_wrong_bytes_are_counted_whatever_comes_between() -> None:
    wrong, busy = CorruptBlobError("wrong"), BucketUnavailableError("busy")
    call, raised = failing(*[wrong, busy, busy] * 1000)

    with pytest.raises(CorruptBlobError):
        call_retrying(call, PATIENT, what="test")
    assert raised.count(wrong) == WRONG_BYTES_TRIES


def test_bytes_that_were_wrong_in_transit_alone_are_right_the_next_time() -> None:
    call, _ = failing(CorruptBlobError("wrong"))

    assert call_retrying(call, PATIENT, what="test") == "done"


def test_what_does_not_heal_is_not_tried_again() -> None:
    call, raised = failing(*[BlobNotFoundError("k")] * 2)

    with pytest.raises(BlobNotFoundError):
        call_retrying(call, PATIENT, what="test")
    assert len(raised) == 1
