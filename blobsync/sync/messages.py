"""What is put on the inbox of a syncer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from blobsync.release.manifest import ReleaseRef
from blobsync.sync.arrival import Arrival
from blobsync.sync.looker import Looked
from blobsync.sync.readiness import Failure
from blobsync.sync.table import Fetch, Look


@dataclass(frozen=True, slots=True)
class Want:
    """The wanted set is this now."""

    refs: Collection[ReleaseRef]


@dataclass(frozen=True, slots=True)
class RetryNow:
    """Every back-off ends."""


@dataclass(frozen=True, slots=True)
class LookNow:
    """Somebody brought this release here."""

    ref: ReleaseRef


@dataclass(frozen=True, slots=True)
class Stop:
    """The thread ends."""


@dataclass(frozen=True, slots=True)
class HasLooked:
    """A look has ended."""

    job: Look
    result: Looked | Failure


@dataclass(frozen=True, slots=True)
class HasFetched:
    """A fetch has ended."""

    job: Fetch
    result: Arrival | Failure


@dataclass(frozen=True, slots=True)
class Damaged:
    """The scrub has put an object away."""

    name: str


@dataclass(frozen=True, slots=True)
class DiskTurned:
    """The disk has failed, or takes bytes again."""


@dataclass(frozen=True, slots=True)
class HasAskedDisk:
    """The disk was asked whether it takes bytes again."""


Message = Want | RetryNow | LookNow | Stop | HasLooked | HasFetched | Damaged | DiskTurned | HasAskedDisk
