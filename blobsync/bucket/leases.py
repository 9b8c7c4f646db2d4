"""Leases in the object store: records of running publishes and collections. Only the store's clock counts.

The store need not support conditional writes. A publisher writes its lease and then looks for leases of
collectors; a collector that is about to delete writes its lease and then looks for leases of publishers. So
at least one sees the other: the publisher waits, the collector does not delete. A lease is valid until its
time to live has passed since the store last saw it written; its holder renews it long before.

A lease is JSON:

    {"expires":"2026-01-02T03:34:05Z","holder":"ci@host","schema":1,"started":"2026-01-02T03:04:05Z",
     "subject":"flights","ttl_s":1800}

`started` and `expires` are by the holder's clock, for people only.
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
from blobsync.errors import BlobNotFoundError, BlobSyncError, BucketUnavailableError, PublishLapsedError
from blobsync.log import LazyLog

SCHEMA = 1
MAX_TTL = timedelta(hours=1)
"""Longest time to live. A lease that cannot be read is valid for as long."""
PUBLISH_TTL = timedelta(minutes=30)
RENEWALS_PER_TTL = 6
COLLECTION_PATIENCE = timedelta(minutes=10)
"""How long a publish waits for a collection that is deleting. That takes seconds."""
_MAX_LEASE_BYTES = 4 << 10
_TIME = "%Y-%m-%dT%H:%M:%SZ"

_log = LazyLog(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a lease, valid for `ttl` after it was written, at most `MAX_TTL`.

    The rest is for people.

    `subject` is what is published, `holder` the user or program; `started` is by the holder's clock.
    """

    subject: str
    holder: str
    started: datetime
    ttl: timedelta

    def encode(self, now: datetime) -> bytes:
        """The bytes to store at the holder's time `now`."""
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
        """Parse a lease from an untrusted source; None: this version cannot read it."""
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
    """A lease that is valid now. `lease` is None if it cannot be read; it is valid nevertheless."""

    key: str
    lease: Lease | None


def boottime_s() -> float:
    """Seconds since the host started, sleep included. This clock is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BucketLease:
    """A context in which a lease is held. Not reusable.

    Args:
        lapsed: Makes the error for a lease that was not written for a number of seconds.
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
        """Write it."""
        self._written_s = self._clock_s()
        try:
            self.write()
        except BaseException:
            self._delete()  # the store may have it even so
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete it. If that fails, it expires."""
        self._delete()

    def others(self, prefix: str) -> tuple[datetime, list[LiveLease]]:
        """The store's time, and the leases that are valid now. Call it after the write, never before.

        BucketUnavailableError also if the store does not list this lease.
        """

        def ask(store: ObjectStore) -> tuple[datetime, list[LiveLease]]:
            try:
                now = store_time(store, self.key)
            except BlobNotFoundError as exc:
                # Seen once with rclone under load. A lease that is not listed has no effect.
                self.write_once(store)
                raise BucketUnavailableError(
                    f"the store does not list the lease {self.key}, written a moment ago; it was "
                    f"written again"
                ) from exc
            return now, live_leases(store, prefix, now)

        return self._store.call(ask, "look for leases")

    @contextmanager
    def renewed(self, thread_name: str) -> Iterator[None]:
        """Renew it on a thread meanwhile. If the thread fails to, `check` raises."""
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
        """Check that it was held without a gap, and renew it if a quarter of its time to live has passed."""
        self.check()
        if self._clock_s() - self._written_s > self._lease.ttl.total_seconds() / 4:
            self.write()

    def check(self) -> None:
        """Raise the error of `lapsed` unless it was held without a gap until now."""
        self._check(self._lease.ttl)

    def write(self) -> None:
        """Write it, with retries."""
        self.check()  # writing again does not close a gap
        self._store.call(self.write_once, "write lease")
        self._check(self._lease.ttl / 2)  # the last try may have taken long

    def write_once(self, store: ObjectStore) -> None:
        """Write it in one try. It is valid from the beginning of the try."""
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
    """Hold a lease while a release is published, so that no object that the publish relies on is collected.

    Waits until no collection deletes. The thread `blobsync-publish-lease` renews the lease.
    BucketUnavailableError also if a collection takes too long.
    """
    data = Lease(subject, holder, datetime.now(UTC), ttl)
    lapsed = partial(_publish_lapsed, subject)
    lease = BucketLease(store, keys.publish_lease(uuid.uuid4().hex), data, lapsed, clock_s)
    with lease, lease.renewed("blobsync-publish-lease"):
        until_s = clock_s() + COLLECTION_PATIENCE.total_seconds()
        while lease.others(keys.COLLECT_LEASES)[1]:
            store.stopping.wait(1.0)
            store.raise_if_stopped()
            if clock_s() > until_s:
                raise BucketUnavailableError(
                    f"a collection has been deleting for {COLLECTION_PATIENCE} in the bucket; publish again "
                    f"when the leases below {keys.COLLECT_LEASES} are gone"
                )
            lease.write()  # `others` takes the store's time from it
        yield lease


def _publish_lapsed(subject: str, gap_s: float) -> PublishLapsedError:
    return PublishLapsedError(
        f"publish of {subject} could not renew its lease for {gap_s:.0f} s, so what it counts on may have "
        f"been collected; nothing became visible. Publish again: what is still there is not sent again"
    )


def live_leases(store: ObjectStore, prefix: str, now: datetime) -> list[LiveLease]:
    """The leases that are valid at `now`. After an error there may be leases: do not delete."""
    live = []
    for info in list(store.list(prefix)):
        is_lease = keys.LEASE_ID.fullmatch(info.key.removeprefix(prefix)) is not None
        if not is_lease or info.modified + MAX_TTL <= now:
            continue
        try:
            lease = _read(store, info)
        except BlobNotFoundError:
            continue  # deleted meanwhile
        if info.modified + (lease.ttl if lease is not None else MAX_TTL) > now:
            live.append(LiveLease(info.key, lease))
    return live


def store_time(store: ObjectStore, key: str) -> datetime:
    """When `key` was written, by the store's clock: the store's time, if it was written just before.

    BlobNotFoundError if it does not exist.
    """
    for info in store.list(key):
        if info.key == key:
            return info.modified
    raise BlobNotFoundError(key)


def _read(store: ObjectStore, info: ObjectInfo) -> Lease | None:
    if info.size_bytes > _MAX_LEASE_BYTES:
        return None
    return Lease.parse(b"".join(store.read(info.key, size_bytes=_MAX_LEASE_BYTES)))
