"""Laws of collections, with publishes, kills, clock steps and other collections between any two calls.

No visible release ever lacks an object. No young object is deleted, and none that was not condemned for a
grace period when the deleting collection had its lease. Without disturbances, unneeded objects are deleted
within two periods.

The sequences are always the same. `make chaos-blobsync` runs random ones, NIMBUS_LAW_EXAMPLES of them. Add a
test for each fault that it finds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from blobsync import ObjectInfo
from blobsync.bucket import keys
from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.bucket.tombstones import tombstones
from blobsync.collection import reach, run
from blobsync.collection.collector import collect_garbage
from blobsync.collection.decision import CollectionPolicy
from blobsync.collection.deletion import TTL
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.collection_samples import (
    DAY,
    QUICK,
    Clock,
    LapsedError,
    Sample,
    publishing,
    sample,
)
from tests.thorough import examples

POLICY = CollectionPolicy(keep_age=DAY, keep_newest=0, max_share=1.0, patience=timedelta(0))
PARTS = ["a", "b", "c"]
EXAMPLES = int(os.environ.get("NIMBUS_LAW_EXAMPLES", "0"))
pytestmark = pytest.mark.timeout(300 + EXAMPLES)


class KilledError(BaseException):
    """The collector dies here."""


class Hooked(MemoryObjectStore):
    """A store as one collector uses it: other actions may happen before each of its calls.

    Args:
        store: The store.
        before: Called with the time until which it may advance the clock; None: no limit.
        clock: The common clock.
    """

    def __init__(
        self, store: MemoryObjectStore, before: Callable[[datetime | None], None], clock: Clock
    ) -> None:
        super().__init__(now=clock)
        self._store, self._before, self._clock = store, before, clock
        self._condemned: list[set[tuple[str, int, datetime]]] | None = None
        """The objects that each tombstone had condemned for a grace period when the collector listed them."""
        self._leased_at: datetime | None = None

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        self._before(None)
        return self._store.read(key, start=start, size_bytes=size_bytes)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._before(None)
        if prefix == keys.TOMBSTONES and self._leased_at:
            self._condemned = [
                {
                    (mark.key, mark.size_bytes, mark.modified)
                    for mark in stored.tombstone.condemned
                    if self._clock.now - mark.since >= POLICY.grace
                }
                for stored in tombstones(self._store)
                if stored.tombstone is not None
            ]
        return self._store.list(prefix, start_after)

    def write(self, key: str, data: object, *, on_progress: OnProgress = ignore_progress) -> None:
        self._before(None)
        self._store.write(key, data)  # type: ignore[arg-type]
        if key.startswith(keys.COLLECT_LEASES):
            self._leased_at = self._clock.now

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        for key in keys:
            if before_each is not None:
                before_each()
            self.delete(key)

    def delete(self, key: str) -> None:
        if key.startswith(("gc/", keys.COLLECT_LEASES)):
            self._before(None)
        else:
            # A request that takes longer than the lease cannot be stopped, so this is not guaranteed.
            assert self._leased_at is not None
            self._before(self._leased_at + TTL)
            self._check(key)
        self._store.delete(key)

    def _check(self, key: str) -> None:
        """Check that it is old, and that every tombstone had condemned its current version.

        A tombstone need not condemn it any more: another collection may pardon it while this one deletes. But
        no publish continues.
        """
        for info in self._store.list(key):
            if info.key == key:
                assert self._clock.now - info.modified >= POLICY.min_age
                assert self._condemned
                assert all((key, info.size_bytes, info.modified) in marks for marks in self._condemned)

    def unfinished_uploads(self, prefix: str) -> Iterator[object]:  # type: ignore[override]
        return iter(())


ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 3)),
    st.tuples(st.just("tick"), st.integers(1, 12)),
    st.tuples(st.just("collect"), st.just(0)),
    st.tuples(st.just("die"), st.just(0)),
)

MEANWHILE = st.dictionaries(st.integers(0, 45), st.lists(ACTIONS, min_size=1), max_size=4)


class Collections(RuleBasedStateMachine):
    """One bucket, several publishers, several collectors."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = MemoryObjectStore(now=self.clock)
        self.wanted: dict[str, Sample] = {}
        self.known: dict[str, Sample] = {}
        self.running: list[Iterator[str]] = []
        self.leases = 0

    @rule(
        name=st.sampled_from(["p", "q"]),
        packs=st.sets(st.sampled_from(PARTS), min_size=1),
        large=st.sets(st.sampled_from(PARTS)),
        steps=st.integers(0, 12),
    )
    def begin_publish(self, name: str, packs: set[str], large: set[str], steps: int) -> None:
        self.begin(sample(name, sorted(packs), sorted(large)), steps)

    @rule(picked=st.integers(0, 100), steps=st.integers(0, 12))
    def begin_publish_again(self, picked: int, steps: int) -> None:
        """Publish again a release whose objects may be condemned or due."""
        if self.known:
            self.begin(self.known[sorted(self.known)[picked % len(self.known)]], steps)

    def begin(self, release: Sample, steps: int) -> None:
        self.known[keys.manifest(release.ref.name, release.ref.digest)] = release
        self.leases += 1
        self.running.append(publishing(self.store, release, self.clock, f"{self.leases:032x}"))
        for _ in range(steps):
            self.step(len(self.running) - 1)

    def step(self, which: int) -> None:
        if self.running:
            which %= len(self.running)
            try:
                next(self.running[which])
            except (StopIteration, LapsedError):
                del self.running[which]

    @rule(which=st.integers(0, 3), steps=st.integers(1, 12))
    def go_on_publishing(self, which: int, steps: int) -> None:
        for _ in range(steps):
            self.step(which)

    @rule(which=st.integers(0, 3))
    def publisher_dies(self, which: int) -> None:
        if self.running:
            del self.running[which % len(self.running)]

    @rule(picked=st.integers(0, 100))
    def want(self, picked: int) -> None:
        visible = self.visible()
        if visible:
            key = sorted(visible)[picked % len(visible)]
            self.wanted[key] = visible[key]

    @rule(picked=st.integers(0, 100))
    def drop(self, picked: int) -> None:
        if self.wanted:
            del self.wanted[sorted(self.wanted)[picked % len(self.wanted)]]

    @rule(hours=st.sampled_from([0.1, 1, 12, 24, 25, 49]))
    def time_passes(self, hours: float) -> None:
        self.clock.forward(timedelta(hours=hours))

    @rule()
    def everything_becomes_due(self) -> None:
        self.wanted.clear()
        self.clock.forward(2 * DAY)
        self.collect({})
        self.clock.forward(POLICY.grace)

    @rule(picked=st.integers(0, 100), steps=st.integers(0, 8), meanwhile=MEANWHILE)
    def what_is_due_is_published_again(
        self, picked: int, steps: int, meanwhile: dict[int, list[tuple[str, int]]]
    ) -> None:
        self.everything_becomes_due()
        self.running.clear()
        self.begin_publish_again(picked, steps)
        self.collect(meanwhile)
        for _ in range(20):
            self.step(0)

    @rule(hours=st.sampled_from([0.1, 1, 30]))
    def clock_is_set_back(self, hours: float) -> None:
        self.clock.forward(timedelta(hours=-hours))

    @rule(meanwhile=MEANWHILE)
    def collect(self, meanwhile: dict[int, list[tuple[str, int]]]) -> None:
        calls, is_dead = 0, False

        def before(until: datetime | None) -> None:
            nonlocal calls, is_dead
            if is_dead:
                raise KilledError
            actions = meanwhile.get(calls, [])
            calls += 1
            for action, number in actions:
                if action == "publish":
                    self.step(number)
                elif action == "tick":
                    far = timedelta(minutes=number)
                    if until is None or self.clock.now + far < until:
                        self.clock.forward(far)
                elif action == "collect":
                    self.collect_from(Hooked(self.store, lambda _until: None, self.clock))
                else:
                    is_dead = True
                    raise KilledError
                self.check_visible()

        self.collect_from(Hooked(self.store, before, self.clock))

    def collect_from(self, store: Hooked) -> None:
        wanted = {release.ref for release in self.wanted.values()}
        with suppress(KilledError):
            collect_garbage(
                store,
                wanted,
                policy=POLICY,
                allow_empty=True,
                retry=QUICK,
                clock=self.clock,
                clock_s=lambda: self.clock.boot_s,
            )

    def visible(self) -> dict[str, Sample]:
        return {info.key: self.known[info.key] for info in self.store.list(keys.RELEASES)}

    @invariant()
    def check_visible(self) -> None:
        there = {info.key for info in self.store.list("")}
        for release in self.visible().values():
            assert release.keys <= there, f"{release.ref} lacks {release.keys - there}"
        assert self.wanted.keys() <= there

    def teardown(self) -> None:
        """Without publishers: two collections, a period apart, once all objects are old."""
        self.running.clear()
        self.clock.forward(100 * DAY)  # more than all backward steps together
        self.collect({})
        self.clock.forward(POLICY.grace)
        self.collect({})
        left = {info.key for info in self.store.list("") if not info.key.startswith("gc/")}
        kept = self.wanted.values()
        needed = set[str]().union(*(release.keys for release in kept))
        assert needed <= left
        histories = {
            key
            for key in left
            for ref in (release.ref for release in kept)
            if key.startswith(keys.histories(ref.name)) and key.endswith(ref.digest)
        }
        assert left - needed - histories == set()


@pytest.fixture(autouse=True)
def quick_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls in a fixed order, without real waits."""
    monkeypatch.setattr(reach, "THREADS", 1)
    monkeypatch.setattr(run, "PAUSE_S", 0.0)


def test_publish_waits_for_a_collection_while_another_pardons_what_is_due() -> None:
    """Found by random sequences."""
    for call in range(46):
        laws = Collections()
        laws.clock_is_set_back(hours=0.1)
        laws.begin_publish(name="p", packs={"a"}, large=set(), steps=0)
        laws.collect({0: [("publish", 0)] * 3})
        laws.go_on_publishing(which=0, steps=12)
        laws.what_is_due_is_published_again(
            picked=0, steps=0, meanwhile={call: [("publish", 0), ("collect", 0)]}
        )
        laws.check_visible()
        laws.teardown()


@pytest.mark.parametrize("minutes", [4, 5, 10, 30])
def test_collection_whose_requests_take_long_postpones(minutes: int) -> None:
    """Found by random sequences, at the first write of its lease."""
    for call in range(46):
        laws = Collections()
        laws.begin_publish(name="p", packs={"a"}, large={"b"}, steps=12)
        laws.what_is_due_is_published_again(picked=0, steps=0, meanwhile={call: [("tick", minutes)]})
        laws.check_visible()
        laws.teardown()


CollectionsTest = Collections.TestCase
CollectionsTest.settings = settings(
    deadline=None, max_examples=EXAMPLES or examples(50), stateful_step_count=30, derandomize=not EXAMPLES
)
