"""Which hosts have verified which releases, by their own records; and waiting until enough hosts have.

Each host writes one small object, `replicas/<host>`, whenever its syncer has verified or dropped a release,
and again in intervals, so that the record stays young. A publisher makes its release wanted, waits here, and
then activates it, or does not. Hosts fetch only wanted releases, so the wait comes after that.

A record says what its host found when it wrote it; it is no proof. A host that has lost its disk since then
is noticed by its next record, or by the age of the last.

    release = publish(store, name="flights", files=files)
    ...  # make it wanted
    report = wait_for_replicas(
        ReplicaBoard(store), release.digest, 2, timedelta(minutes=5), ReplicaPolicy.REJECT
    )
    ...  # activate it

Storm calls the same thing `topology.min.replication.count`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore
from blobsync.errors import BlobNotFoundError, BlobSyncError, ReplicasMissingError
from blobsync.log import Log
from blobsync.names import is_release_name
from blobsync.release.replica import MAX_RECORD_BYTES, ReplicaRecord

MAX_AGE = timedelta(minutes=10)
"""A record that is older than this does not count."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Which hosts have a release, and which do not.

    Attributes:
        digest: Of the release.
        holders: Hosts whose record names it, sorted.
        lacking: Hosts whose record does not name it, sorted.
        silent: Hosts whose record is too old, or cannot be read, sorted.
    """

    digest: str
    holders: tuple[str, ...]
    lacking: tuple[str, ...]
    silent: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.digest[:12]} is at {_listed(self.holders)}; not yet at {_listed(self.lacking)}; "
            f"not heard of: {_listed(self.silent)}"
        )


class ReplicaBoard:
    """The records of all hosts, in the object store. Thread-safe, as the store is. One try for each call.

    Args:
        store: Where they are.
        now: The time. Records are dated by the store's clock, so the two clocks may differ by a small part of
            `max_age` only.
    """

    def __init__(self, store: ObjectStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store, self._now = store, now

    def announce(self, record: ReplicaRecord) -> None:
        """Write the record of this host, in place of the one before. Safe to repeat.

        Raises:
            BlobSyncError: as of `ObjectStore.write`.
        """
        self._store.write(keys.replica(record.host), record.encode())

    def withdraw(self, host: str) -> None:
        """Delete the record of a host that is removed for good. Safe to repeat.

        Raises:
            BlobSyncError: as of `ObjectStore.delete`.
        """
        self._store.delete(keys.replica(host))

    def look(self, digest: str, max_age: timedelta = MAX_AGE) -> Replicas:
        """Find out which hosts have a release now.

        Raises:
            BlobSyncError: as of `ObjectStore.list` and `ObjectStore.read`.
        """
        oldest = self._now() - max_age
        hosts: dict[str, list[str]] = {"holders": [], "lacking": [], "silent": []}
        for info in self._store.list(keys.REPLICAS):
            host = info.key.removeprefix(keys.REPLICAS)
            if not is_release_name(host):
                continue
            record = self._record(host, info.size_bytes) if info.modified >= oldest else None
            if record is None or record.host != host:
                hosts["silent"].append(host)
            else:
                hosts["holders" if digest in record.digests else "lacking"].append(host)
        return Replicas(digest, **{kind: tuple(sorted(names)) for kind, names in hosts.items()})

    def holders(self, digest: str, max_age: timedelta = MAX_AGE) -> frozenset[str]:
        """Hosts whose record says that they have verified a release.

        Raises:
            BlobSyncError: as of `look`.
        """
        return frozenset(self.look(digest, max_age).holders)

    def _record(self, host: str, size_bytes: int) -> ReplicaRecord | None:
        if size_bytes > MAX_RECORD_BYTES:
            return None
        try:
            data = b"".join(self._store.read(keys.replica(host), size_bytes=MAX_RECORD_BYTES + 1))
        except BlobNotFoundError:
            return None  # withdrawn meanwhile
        return ReplicaRecord.parse(data)


class ReplicaPolicy(StrEnum):
    """What happens when too few hosts have a release in time."""

    REJECT = "reject"
    """`ReplicasMissingError`: do not activate it."""
    PROCEED = "proceed"
    """Go on, with a warning in the report."""


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """How the wait ended. `warning` says which hosts are missing; None: enough hosts have it."""

    replicas: Replicas
    wanted: int
    warning: str | None


def wait_for_replicas(
    board: ReplicaBoard,
    digest: str,
    wanted: int,
    deadline: timedelta,
    policy: ReplicaPolicy,
    *,
    max_age: timedelta = MAX_AGE,
    look_interval: timedelta = timedelta(seconds=1),
    stopping: threading.Event | None = None,
) -> ReplicaReport:
    """Wait until enough hosts say that they have verified a release.

    Looks at least once. A store that cannot be reached meanwhile is asked again until the deadline.

    Args:
        board: Where the records are.
        digest: Of the release's manifest.
        wanted: How many hosts are enough; with 0 there is no wait.
        deadline: How long to wait.
        policy: What to do when it has passed.
        max_age: Older records do not count.
        look_interval: How often to look.
        stopping: When set, the deadline has passed.

    Raises:
        ReplicasMissingError: too few, with `ReplicaPolicy.REJECT`; says who has it and who has not.
        BlobSyncError: the store refused to answer, in a way that does not heal.
    """
    stop = stopping if stopping is not None else threading.Event()
    until_s = time.clock_gettime(time.CLOCK_BOOTTIME) + deadline.total_seconds()
    replicas, trouble = Replicas(digest, (), (), ()), ""
    while True:
        try:
            replicas, trouble = board.look(digest, max_age), ""
        except BlobSyncError as exc:
            if not exc.retryable:
                raise
            trouble = f"; at last the store could not be asked: {exc}"
        if len(replicas.holders) >= wanted:
            return ReplicaReport(replicas, wanted, None)
        left_s = until_s - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left_s <= 0 or stop.wait(min(left_s, look_interval.total_seconds())):
            break
    had = len(replicas.holders)
    missing = f"{had} of {wanted} hosts have verified it after {deadline}: {replicas}{trouble}"
    if policy is ReplicaPolicy.REJECT:
        raise ReplicasMissingError(
            f"{missing}. Look at the hosts that lack it, wait longer, or proceed with fewer"
        )
    _log.warning("replicas_missing", digest=digest, wanted=wanted, holders=had)
    return ReplicaReport(replicas, wanted, missing)


def _listed(hosts: tuple[str, ...]) -> str:
    return ", ".join(hosts) if hosts else "nobody"
