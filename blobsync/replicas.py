"""Which hosts have verified which releases, by their own records; and waiting until enough hosts have.

Each host writes one small object, `replicas/<host>`, whenever its syncer has verified or dropped a release,
and again at intervals, so that the record stays young. A publisher makes its release wanted, waits here, and
then activates it, or does not. Hosts fetch only wanted releases, so the wait comes after that.

A record says what its host had verified when it wrote the record. It is no proof: if the host has lost its
disk since then, only its next record, or the age of its last one, shows that.

    release = publish(store, name="flights", files=files)
    ...  # make it wanted
    report = wait_for_replicas(
        ReplicaBoard(store), release.digest, 2, timedelta(minutes=5), ReplicaPolicy.REJECT
    )
    ...  # activate it

Storm calls the same thing `topology.min.replication.count`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from blobsync.bucket import keys
from blobsync.bucket.leases import boottime_s
from blobsync.bucket.ports import ObjectStore
from blobsync.errors import BlobNotFoundError, BlobSyncConfigError, BlobSyncError, ReplicasMissingError
from blobsync.log import LazyLog
from blobsync.names import is_digest, is_release_name

SCHEMA = 1
MAX_DIGESTS = 1_000
"""Limit of releases in one record; each takes about 70 bytes."""
MAX_RECORD_BYTES = 128 << 10

_FIELDS = {"at", "digests", "host", "schema"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


MAX_AGE = timedelta(minutes=10)
"""A record that is older than this does not count."""


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """The releases that one host has verified. Checked when made.

    Args:
        host: Name of the host: letters, digits, dots, dashes and underscores. It must not change when the
            host restarts.
        digests: Digests of the manifests of all releases that are complete and verified on the host; given in
            any order, kept sorted.
        at: When the record was made, by the host's clock, in whole seconds; for people.

    Raises:
        BlobSyncConfigError: a name or digest is not valid, or there are too many digests.
    """

    host: str
    digests: tuple[str, ...]
    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "digests", tuple(sorted(set(self.digests))))
        object.__setattr__(self, "at", self.at.astimezone(UTC).replace(microsecond=0))
        if not is_release_name(self.host):
            raise BlobSyncConfigError(
                f"{self.host[:200]!r} cannot name a host: letters, digits, dot, dash and underscore, at most "
                f"128"
            )
        if not all(map(is_digest, self.digests)):
            raise BlobSyncConfigError(
                f"the record of {self.host} names releases by texts that are no digests"
            )
        if len(self.digests) > MAX_DIGESTS:
            raise BlobSyncConfigError(
                f"the record of {self.host} names {len(self.digests)} releases, more than the {MAX_DIGESTS} "
                f"that are allowed; name only the wanted ones"
            )

    def encode(self) -> bytes:
        """The bytes to store. Equal records give equal bytes."""
        document = {
            "schema": SCHEMA,
            "host": self.host,
            "at": self.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "digests": list(self.digests),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes) -> ReplicaRecord | None:
        """Parse a record from an untrusted source; None: this version cannot read it."""
        try:
            document = json.loads(data.decode())
            record = cls._from(document)
        except (ValueError, RecursionError, BlobSyncConfigError):
            return None
        return record if record is not None and record.encode() == data else None

    @classmethod
    def _from(cls, document: Any) -> ReplicaRecord | None:
        if not isinstance(document, dict) or set(document) != _FIELDS or document["schema"] != SCHEMA:
            return None
        host, digests, at = document["host"], document["digests"], document["at"]
        if not isinstance(host, str) or not isinstance(at, str) or _TIME.fullmatch(at) is None:
            return None
        if not isinstance(digests, list) or not all(isinstance(digest, str) for digest in digests):
            return None
        return cls(host, tuple(digests), datetime.fromisoformat(at))


_log = LazyLog(__name__)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Which hosts have a release, and which do not.

    Attributes:
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
            f"no valid record: {_listed(self.silent)}"
        )


class ReplicaBoard:
    """The records of all hosts, in the object store. Thread-safe, as the store is. One try for each call.

    Args:
        store: The bucket.
        now: The time. Records are dated by the store's clock, so the two clocks may differ by a small part of
            `max_age` only.
    """

    def __init__(self, store: ObjectStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store, self._now = store, now

    def announce(self, record: ReplicaRecord) -> None:
        """Write the record of this host, in place of the one before. Safe to repeat."""
        self._store.write(keys.replica(record.host), record.encode())

    def withdraw(self, host: str) -> None:
        """Delete the record of a host that is removed for good. Safe to repeat."""
        self._store.delete(keys.replica(host))

    def read(self, digest: str, max_age: timedelta = MAX_AGE) -> Replicas:
        """Find out which hosts have a release now."""
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
    """Continue, with a warning in the report."""


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
        board: The records.
        digest: Digest of the release's manifest.
        wanted: Required number of hosts; with 0 there is no wait.
        deadline: How long to wait.
        policy: What to do after the deadline.
        max_age: Older records do not count.
        look_interval: Interval between two reads of the records.
        stopping: When set, the deadline has passed.

    Raises:
        ReplicasMissingError: too few, with `ReplicaPolicy.REJECT`. Names the hosts that have or lack it.
        BlobSyncError: the store refused to answer, and a retry does not help.
    """
    stop = stopping if stopping is not None else threading.Event()
    until_s = boottime_s() + deadline.total_seconds()
    replicas, trouble = Replicas(digest, (), (), ()), ""
    while True:
        try:
            replicas, trouble = board.read(digest, max_age), ""
        except BlobSyncError as exc:
            if not exc.retryable:
                raise
            trouble = f"; at last the store could not be asked: {exc}"
        if len(replicas.holders) >= wanted:
            return ReplicaReport(replicas, wanted, None)
        left_s = until_s - boottime_s()
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
    return ", ".join(hosts) if hosts else "none"
