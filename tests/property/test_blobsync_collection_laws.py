"""Laws of collections, with publishes, deaths, clocks and other collections in between, at every call.

Never does a visible release lack an object; nothing goes that was not condemned before and is old; and when
all is quiet, whatever nobody needs is gone within two periods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from blobsync import ObjectInfo
from blobsync.collection import reach
from blobsync.collection.collector import collect_garbage
from blobsync.collection.policy import CollectionPolicy
from blobsync.storage import keys
from blobsync.storage.ports import GoingOn, go_on
from blobsync.storage.tombstones import tombstones
from blobsync.testing.memory import MemoryObjectStore
from tests.collection_samples import (
    DAY,
    QUICK,
    Clock,
    LapsedError,
    Sample,
    publishing,
    sample,
)

POLICY = CollectionPolicy(keep_age=DAY, keep_newest=0, max_share=1.0, patience=timedelta(0))
PARTS = ["a", "b", "c"]


class KilledError(BaseException):
    """The collector dies here."""


class Hooked(MemoryObjectStore):
    """What one collector sees of a store: something may happen before each of its calls."""

    def __init__(self, store: MemoryObjectStore, before: Callable[[], None], clock: Clock) -> None:
        super().__init__(now=clock)
        self._store, self._before, self._clock = store, before, clock

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        self._before()
        return self._store.read(key, start=start, size_bytes=size_bytes)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._before()
        return self._store.list(prefix, start_after)

    def write(self, key: str, data: object, *, going_on: GoingOn = go_on) -> None:
        self._before()
        self._store.write(key, data)  # type: ignore[arg-type]

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)

    def delete(self, key: str) -> None:
        self._before()
        if not key.startswith(("gc/", keys.COLLECT_LEASES)):
            self._check(key)
        self._store.delete(key)

    def _check(self, key: str) -> None:
        """It is old, and was condemned a grace ago as what it is now."""
        there = [info for info in self._store.list(key) if info.key == key]
        marks = [
            mark
            for stored in tombstones(self._store)
            for mark in (stored.tombstone.condemned if stored.tombstone else ())
            if mark.key == key and self._clock.now - mark.since >= POLICY.grace
        ]
        for info in there:
            assert self._clock.now - info.modified >= POLICY.min_age
            assert any((mark.size_bytes, mark.modified) == (info.size_bytes, info.modified) for mark in marks)

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
        """What may be condemned, or due."""
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

        def before() -> None:
            nonlocal calls, is_dead
            if is_dead:
                raise KilledError
            actions = meanwhile.get(calls, [])
            calls += 1
            for action, number in actions:
                if action == "publish":
                    self.step(number)
                elif action == "tick":
                    self.clock.forward(timedelta(minutes=number))
                elif action == "collect":
                    self.collect_from(Hooked(self.store, lambda: None, self.clock))
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
        """Quiet: no publisher is left; two runs, a period apart, once all is old."""
        self.running.clear()
        self.clock.forward(100 * DAY)  # more than it can have been set back
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
def one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that calls come in one order."""
    monkeypatch.setattr(reach, "THREADS", 1)


CollectionsTest = Collections.TestCase
CollectionsTest.settings = settings(deadline=None, max_examples=200, stateful_step_count=30)
