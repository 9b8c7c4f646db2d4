"""Leases in the object store: who publishes or collects there now. Only the store's own clock counts.

The store need not know conditional writes. A publisher writes its lease and only then looks for collectors; a
collector that is about to delete writes its lease and only then looks for publishers. So at least one sees
the other: the publisher waits, the collector does not delete. A lease counts until its time to live has
passed since the store last saw it written; its holder writes it again long before.

A lease is JSON:

    {"expires":"2026-01-02T03:34:05Z","holder":"ci@host","schema":1,"started":"2026-01-02T03:04:05Z",
     "subject":"flights","ttl_s":1800}

`started` and `expires` are by the holder's clock and for people alone.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectInfo, ObjectStore, PatientStore
from blobsync.errors import BlobNotFoundError, BlobSyncError, PublishLapsedError, StoreUnavailableError
from blobsync.log import Log

SCHEMA = 1
MAX_TTL = timedelta(hours=1)
"""An unreadable lease counts for so long; a longer one is cut to this."""
PUBLISH_TTL = timedelta(minutes=30)
RENEWALS_PER_TTL = 6
COLLECTION_PATIENCE = timedelta(minutes=10)
"""How long a publish waits for a collection that is deleting. That takes seconds."""
_MAX_LEASE_BYTES = 4 << 10
_TIME = "%Y-%m-%dT%H:%M:%SZ"

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lease says.

    Args:
        subject: What is published, for people.
        holder: Who does it, for people.
        started: By the holder's clock, for people.
        ttl: How long it counts after each time it was written; at most `MAX_TTL`.
    """

    subject: str
    holder: str
    started: datetime
    ttl: timedelta

    def encode(self, now: datetime) -> bytes:
        """As it is stored when written at `now` of the holder's clock."""
        document = {
            "schema": SCHEMA,
            "subject": self.subject,
            "holder": self.holder,
            "started": self.started.astimezone(UTC).strftime(_TIME),
            "expires": (now + self.ttl).astimezone(UTC).strftime(_TIME),
            "ttl_s": int(self.ttl.total_seconds()),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def parse(cls, data: bytes) -> Lease | None:
        """Read a lease that may come from anywhere; None: it is not one that this version can read."""
        try:
            document = json.loads(data.decode())
            return cls._from(document) if isinstance(document, dict) else None
        except (ValueError, KeyError, RecursionError):
            return None

    @classmethod
    def _from(cls, document: dict[str, Any]) -> Lease | None:
        ttl_s = document["ttl_s"]
        if document["schema"] != SCHEMA or type(ttl_s) is not int or not ttl_s > 0:
            return None
        started = datetime.strptime(str(document["started"]), _TIME).replace(tzinfo=UTC)
        ttl = timedelta(seconds=min(ttl_s, int(MAX_TTL.total_seconds())))
        return cls(str(document["subject"])[:200], str(document["holder"])[:200], started, ttl)


@dataclass(frozen=True, slots=True)
class LiveLease:
    """A lease that counts now. `lease` is None if it cannot be read; it counts all the same."""

    key: str
    lease: Lease | None


def boottime_s() -> float:
    """Seconds since the host started, sleep included; nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BucketLease:
    """A lease that is held from entering to leaving. Not reusable.

    Args:
        store: Where.
        key: Of the lease.
        lease: What it says.
        lapsed: Makes the error of a lease that was not written for so many seconds.
        clock_s: Never set back; counts sleep of the host.
    """

    def __init__(
        self,
        store: PatientStore,
        key: str,
        lease: Lease,
        lapsed: Callable[[float], BlobSyncError],
        clock_s: Callable[[], float],
    ) -> None:
        self.key = key
        self._store, self._lease, self._lapsed, self._clock_s = store, lease, lapsed, clock_s
        self._written_s = float("-inf")  # never

    def __enter__(self) -> Self:
        """Write it.

        Raises:
            BlobSyncError: as of `ObjectStore.write`, or of `lapsed`.
        """
        self._written_s = self._clock_s()
        try:
            self.write()
        except BaseException:
            self._delete()  # the store may have taken it all the same
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete it. If that fails, it runs out by itself."""
        self._delete()

    def look(self, prefix: str) -> tuple[datetime, list[LiveLease]]:
        """The store's time, and the leases that count there now. Call it after the write, never before.

        Args:
            prefix: Of the others' leases.

        Raises:
            StoreUnavailableError: also if the store does not list this lease.
            BlobSyncError: as of `live_leases`.
        """

        def ask(store: ObjectStore) -> tuple[datetime, list[LiveLease]]:
            try:
                now = store_time(store, self.key)
            except BlobNotFoundError as exc:
                # Seen once with rclone under load. A lease that is not listed protects nothing.
                self.write_once(store)
                raise StoreUnavailableError(
                    f"the store does not list the lease {self.key}, written a moment ago; it was "
                    f"written again"
                ) from exc
            return now, live_leases(store, prefix, now)

        return self._store.call(ask, "look for leases")

    @contextmanager
    def renewed(self, thread_name: str) -> Iterator[None]:
        """Have a thread write it again and again. What the thread fails to do is found by `check`."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(self._lease.ttl.total_seconds() / RENEWALS_PER_TTL):
                try:
                    self.write_once(self._store.store)
                except BlobSyncError as exc:
                    _log.warning("lease_not_renewed", key=self.key, error=str(exc))

        thread = threading.Thread(target=renew, name=thread_name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def keep(self) -> None:
        """Make sure that it was held without a gap, and will be for another half of its time to live.

        Raises:
            BlobSyncError: as of `ObjectStore.write`, or of `lapsed`.
        """
        self.check()
        if self._clock_s() - self._written_s > self._lease.ttl.total_seconds() / 4:
            self.write()

    def check(self) -> None:
        """Raise `lapsed` unless it was held without a gap up to now."""
        self._check(self._lease.ttl)

    def write(self) -> None:
        """Write it, with retries."""
        self.check()  # no retry mends a gap
        self._store.call(self.write_once, "write lease")
        self._check(self._lease.ttl / 2)  # the last try may have taken long

    def write_once(self, store: ObjectStore) -> None:
        """Write it in one try. It counts from the beginning of the try; writing again does not mend a gap."""
        began_s = self._clock_s()
        self.check()
        store.write(self.key, self._lease.encode(datetime.now(UTC)))
        self._written_s = began_s

    def _check(self, limit: timedelta) -> None:
        gap_s = self._clock_s() - self._written_s
        if gap_s >= limit.total_seconds():
            raise self._lapsed(gap_s)

    def _delete(self) -> None:
        with suppress(BlobSyncError):
            self._store.store.delete(self.key)


@contextmanager
def publish_lease(
    store: PatientStore,
    *,
    subject: str,
    holder: str,
    ttl: timedelta = PUBLISH_TTL,
    clock_s: Callable[[], float] = boottime_s,
) -> Iterator[BucketLease]:
    """Hold a lease while a release is published: nothing that the publish found or uploaded is collected.

    Waits until no collection is deleting. The thread `blobsync-publish-lease` renews the lease.

    Args:
        store: Where to.
        subject: What is published.
        holder: Who does it.
        ttl: How long collectors honour it after it was last written.
        clock_s: As of `BucketLease`.

    Raises:
        StoreUnavailableError: also when a collection takes too long.
        BlobSyncError: as of `BucketLease`.
    """
    data = Lease(subject, holder, datetime.now(UTC), ttl)
    lapsed = partial(_publish_lapsed, subject)
    lease = BucketLease(store, keys.publish_lease(uuid.uuid4().hex), data, lapsed, clock_s)
    with lease, lease.renewed("blobsync-publish-lease"):
        until_s = clock_s() + COLLECTION_PATIENCE.total_seconds()
        while lease.look(keys.COLLECT_LEASES)[1]:
            store.stopping.wait(1.0)
            store.raise_if_stopped()
            if clock_s() > until_s:
                raise StoreUnavailableError(
                    f"a collection has been deleting for {COLLECTION_PATIENCE} in the bucket; publish again "
                    f"when the leases below {keys.COLLECT_LEASES} are gone"
                )
            lease.write()  # so that the store says what time it is
        yield lease


def _publish_lapsed(subject: str, gap_s: float) -> PublishLapsedError:
    return PublishLapsedError(
        f"publish of {subject} could not renew its lease for {gap_s:.0f} s, so what it counts on may have "
        f"been collected; nothing became visible. Publish again: what is still there is not sent again"
    )


def live_leases(store: ObjectStore, prefix: str, now: datetime) -> list[LiveLease]:
    """The leases that count at `now`.

    Args:
        store: Where they are.
        prefix: `keys.PUBLISH_LEASES` or `keys.COLLECT_LEASES`.
        now: By the store's clock, as of `store_time`.

    Raises:
        BlobSyncError: as of `ObjectStore.list` and `ObjectStore.read`. Then nothing is known: do not delete.
    """
    live = []
    for info in list(store.list(prefix)):
        if info.modified + MAX_TTL <= now:
            continue
        try:
            lease = _read(store, info)
        except BlobNotFoundError:
            continue  # ended meanwhile
        if info.modified + (lease.ttl if lease is not None else MAX_TTL) > now:
            live.append(LiveLease(info.key, lease))
    return live


def store_time(store: ObjectStore, key: str) -> datetime:
    """When the store says that `key` was written: write it, then ask, and you know what time it is there.

    Raises:
        BlobNotFoundError: it is not there.
        BlobSyncError: as of `ObjectStore.list`.
    """
    for info in store.list(key):
        if info.key == key:
            return info.modified
    raise BlobNotFoundError(key)


def _read(store: ObjectStore, info: ObjectInfo) -> Lease | None:
    if info.size_bytes > _MAX_LEASE_BYTES:
        return None
    return Lease.parse(b"".join(store.read(info.key, size_bytes=_MAX_LEASE_BYTES)))
