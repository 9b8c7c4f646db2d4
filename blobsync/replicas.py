"""Which hosts have verified which releases, as they say themselves; and waiting until enough have.

Each host writes one small object, `replicas/<host>`, whenever its syncer has verified or dropped a release,
and again now and then as a sign of life. Whoever publishes makes the release wanted, waits here, and then
activates it, or does not: hosts fetch only what is wanted, so nothing is waited for before that.

A record is a statement, not a proof: it says what its host found when it wrote it. A host that has lost its
disk since is noticed by its next record, or by the age of the last.

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
"""A record that has not been written again for so long says nothing any more."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Who has a release, and who does not.

    Attributes:
        digest: Of the release.
        holders: Hosts that say that they have verified it, sorted.
        lacking: Hosts that say what they have, and it is not among that, sorted.
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
        now: The time. Records are dated by the store's clock, so the two should not be apart by much of
            `max_age`.
    """

    def __init__(self, store: ObjectStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store, self._now = store, now

    def announce(self, record: ReplicaRecord) -> None:
        """Say what this host has. Replaces what it said before; safe to repeat.

        Raises:
            BlobSyncError: as of `ObjectStore.write`.
        """
        self._store.write(keys.replica(record.host), record.encode())

    def withdraw(self, host: str) -> None:
        """Forget what a host said, when it leaves for good. Safe to repeat.

        Raises:
            BlobSyncError: as of `ObjectStore.delete`.
        """
        self._store.delete(keys.replica(host))

    def look(self, digest: str, max_age: timedelta = MAX_AGE) -> Replicas:
        """Who has a release now.

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
        """Hosts that say that they have verified a release.

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
    """How waiting ended. `warning` says what is missing, if something is."""

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
    """Wait until so many hosts say that they have verified a release.

    Looks at least once. A store that cannot be reached meanwhile is asked again until the deadline.

    Args:
        board: Whom to ask.
        digest: Of the release's manifest.
        wanted: How many hosts; 0 is had at once.
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
