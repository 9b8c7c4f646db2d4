"""Samples for tests of collections: a store with its own clock, and releases of a few bytes.

Collections never read packs or blobs, so here these contain arbitrary bytes. Only names and sizes are right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from blobsync import Artifact, Manifest, ReleaseRef, RetryPolicy, Role
from blobsync.bucket import keys
from blobsync.bucket.leases import Lease, live_leases, store_time
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import stored_manifest
from blobsync.collection.collector import CollectionReport, collect_garbage
from blobsync.collection.decision import CollectionPolicy
from blobsync.release.layout import Layout, Pack
from blobsync.testing.memory import MemoryObjectStore

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
QUICK = RetryPolicy(
    first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=2), deadline=timedelta(seconds=0.02)
)
POLICY = CollectionPolicy(keep_age=DAY, keep_newest=1, max_share=1.0, patience=timedelta(0))
LARGE_BYTES = 5 << 20


@dataclass
class Clock:
    """The clock of store and collector. It does not advance by itself."""

    now: datetime = START
    boot_s: float = 0.0
    """A clock that is never set back."""

    def __call__(self) -> datetime:
        return self.now

    def forward(self, time: timedelta) -> None:
        self.now += time
        self.boot_s += max(0.0, time.total_seconds())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Sample:
    """A release, and the objects that it needs, key to bytes, without the objects that name it."""

    manifest: Manifest
    layout: Layout
    objects: dict[str, bytes] = field(hash=False)

    @property
    def ref(self) -> ReleaseRef:
        return self.manifest.ref

    @property
    def keys(self) -> set[str]:
        own = {keys.manifest(self.ref.name, self.ref.digest), keys.layout(self.ref.name, self.ref.digest)}
        return own | self.objects.keys()


def sample(name: str, packs: Iterable[str] = (), large: Iterable[str] = ()) -> Sample:
    """A release with a small file in each of the given packs, and the given large files."""
    artifacts = [Artifact(f"small/{pack}", 3, digest(f"in {pack}"), Role.CODE, False) for pack in packs]
    artifacts += [Artifact(f"large/{blob}", LARGE_BYTES, digest(blob), Role.CODE, False) for blob in large]
    stored = {digest(f"pack {pack}"): f"{pack:>50}".encode() for pack in packs}
    layout = Layout(tuple(Pack(own, len(data)) for own, data in stored.items()), "me", START)
    objects = {keys.pack(own): data for own, data in stored.items()}
    objects |= {keys.blob(digest(blob)): blob.encode() for blob in large}
    return Sample(Manifest(name, tuple(artifacts)), layout, objects)


def put(store: ObjectStore, release: Sample, at: datetime) -> None:
    """Publish it at once, without a lease or checks."""
    for key, data in [*release.objects.items(), *last_writes(release, at)]:
        store.write(key, data)


def last_writes(release: Sample, at: datetime) -> list[tuple[str, bytes]]:
    ref = release.ref
    return [
        (keys.layout(ref.name, ref.digest), release.layout.encode()),
        (keys.history(ref.name, at, ref.digest), b""),
        (keys.manifest(ref.name, ref.digest), stored_manifest(release.manifest)),
    ]


class LapsedError(Exception):
    """A publish ends because it could not renew its lease in time."""


def publishing(
    store: ObjectStore, release: Sample, clock: Clock, lease_id: str, known: Sequence[str] = ()
) -> Iterator[str]:
    """A publish, step by step: each `next` runs one step.

    Args:
        store: Where it publishes.
        release: What it publishes.
        clock: The clock of publisher and store.
        lease_id: Id of its lease.
        known: Keys that it considers absent.
    """
    lease = keys.publish_lease(lease_id)
    renewed_s = clock.boot_s

    def renew() -> None:
        nonlocal renewed_s
        if clock.boot_s - renewed_s >= 1800:
            raise LapsedError
        store.write(lease, Lease(release.ref.name, "me", clock.now, timedelta(minutes=30)).encode(clock.now))
        renewed_s = clock.boot_s

    renew()
    yield "lease"
    renew()
    while live_leases(store, keys.COLLECT_LEASES, store_time(store, lease)):
        yield "wait"
        renew()
    for key, data in release.objects.items():
        renew()
        there = key not in known and store.size(key) == len(data)
        yield "looked"
        if not there:
            renew()
            store.write(key, data)
            yield "object"
    for key, data in last_writes(release, clock.now):
        renew()
        store.write(key, data)
        yield "last"
    store.delete(lease)


class World:
    """A store in memory, collected by one collector."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryObjectStore(now=self.clock)

    def put(self, name: str, packs: Iterable[str] = (), large: Iterable[str] = ()) -> Sample:
        made = sample(name, packs, large)
        put(self.store, made, self.clock.now)
        self.clock.forward(timedelta(minutes=1))
        return made

    def collect(
        self, *keep: Sample, policy: CollectionPolicy = POLICY, **options: object
    ) -> CollectionReport:
        given = {
            "retry": QUICK,
            "clock": self.clock,
            "clock_s": lambda: self.clock.boot_s,
            "allow_empty": True,
            **options,
        }
        wanted = {release.ref for release in keep}
        return collect_garbage(self.store, wanted, policy=policy, **given)  # type: ignore[arg-type]

    def twice(self, *keep: Sample, policy: CollectionPolicy = POLICY, **options: object) -> CollectionReport:
        """Two collections, with the grace period between them."""
        self.collect(*keep, policy=policy, **options)
        self.clock.forward(policy.grace)
        return self.collect(*keep, policy=policy, **options)

    def names(self) -> set[str]:
        """Keys of all objects, except those that collections write for themselves."""
        return {info.key for info in self.store.list("") if not info.key.startswith("gc/")}

    def tombstones(self) -> list[str]:
        return [info.key for info in self.store.list(keys.TOMBSTONES)]


def a_lease(world: World, subject: str) -> str:
    """Write the lease of a publish, for half an hour. Returns its key."""
    key, now = keys.publish_lease("a" * 32), world.clock.now
    world.store.write(key, Lease(subject, "ci@host", now, HOUR / 2).encode(now))
    return key
