"""The wanted releases, their missing objects, and the jobs that are due. Pure; one thread owns it.

A *look* finds what a release lacks; if nothing is missing, the release is ready. A *fetch* gets one object, a
pack or a large blob. Each has its own back-off, so a failing one does not delay others. A release is in the
table because it is wanted, because a call of `ensure` waits for it, or both; readiness contains only the
wanted ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from blobsync.local.disk_state import DiskState
from blobsync.local.objects import MissingObjects
from blobsync.local.releases import Release
from blobsync.release.layout import Pack, StoredObject
from blobsync.release.manifest import Artifact, ReleaseRef
from blobsync.retry import RetryPolicy
from blobsync.sync.readiness import (
    Failure,
    Readiness,
    ReleaseReadiness,
    ReleaseState,
    readiness_of,
    total_bytes,
)
from blobsync.sync.task_queue import URGENT, BackOffs, TaskQueue

_ELSEWHERE_S = 0.1
"""Delay of the next try if another process receives the object."""
_RECOUNT_S = 1.0
"""Interval between looks at a release while its packs arrive; each look finds which files arrived."""


@dataclass(frozen=True, slots=True)
class FindMissing:
    """Find what a release lacks.

    `known` None: manifest and layout are read, from the disk if it was kept. `fresh_layout`: read the layout
    from the object store again, because a pack in it cannot be fetched.
    """

    ref: ReleaseRef
    known: Release | None
    fresh_layout: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch one object. The lowest `order` is fetched first."""

    item: StoredObject
    order: int = 0


Job = FindMissing | Fetch


class ObjectCounts(NamedTuple):
    """Counts of the distinct objects of all releases in the table, and of the missing ones."""

    total: int = 0
    total_bytes: int = 0
    missing: int = 0
    missing_bytes: int = 0


@dataclass(slots=True)
class _Release:
    wanted: int | None = None
    """Its order among the wanted releases; None: it is not wanted."""
    awaited: bool = False
    known: Release | None = None
    is_complete: bool = False
    """True if the last look found nothing missing."""
    missing_files: tuple[Artifact, ...] = ()
    """Missing files at the last look that succeeded. Empty also if there was none."""
    missing: set[str] = field(default_factory=set)
    """Names of the objects that are missing now."""
    fresh_layout: bool = False

    @property
    def order(self) -> int:
        return URGENT if self.awaited or self.wanted is None else self.wanted


@dataclass(slots=True)
class _Missing:
    item: StoredObject
    needed_by: set[ReleaseRef] = field(default_factory=set)


class SyncTable:
    """The state of one syncer.

    Args:
        look_every_s: Interval between two looks at a ready release: a file may have been removed.
        urgent_fetches: Number of fetches beyond the limit of `start_due`, if calls of `ensure` wait for
            them. For looks the number is one.
    """

    def __init__(
        self,
        retry: RetryPolicy,
        look_every_s: float,
        *,
        urgent_fetches: int = 1,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._look_every_s = look_every_s
        self._releases: dict[ReleaseRef, _Release] = {}
        self._looks: TaskQueue[ReleaseRef] = TaskQueue(urgent=1)
        self._fetches: TaskQueue[str] = TaskQueue(urgent=urgent_fetches)
        self.back_offs = BackOffs(retry, rng, self._looks, self._fetches)
        self._missing: dict[str, _Missing] = {}
        self._quarantined_count = 0
        self._told: dict[ReleaseRef, ReleaseReadiness] = {}
        self._dirty: set[ReleaseRef] = set()
        self._sizes: dict[str, int] | None = None
        self._total_bytes = 0
        self.turned = False
        """True if a release became ready, or stopped being ready, since this was set to False."""

    def needing(self, name: str) -> Set[ReleaseRef]:
        """The releases that lack this object."""
        missing = self._missing.get(name)
        return frozenset() if missing is None else missing.needed_by

    def want(self, refs: Collection[ReleaseRef], now_s: float) -> None:
        """Replace the wanted set. A new release ends every back-off, since its objects may help the others.

        Of a sequence, the objects of earlier releases are fetched first.
        """
        ordered = isinstance(refs, Sequence)
        orders = {ref: place if ordered else 0 for place, ref in reversed(list(enumerate(refs)))}
        wanted = {ref for ref, release in self._releases.items() if release.wanted is not None}
        for ref in wanted - orders.keys():
            self._told.pop(ref, None)
            self._releases[ref].wanted = None
            if not self._releases[ref].awaited:
                self._forget(ref)
        for ref, order in orders.items():
            release = self._releases.setdefault(ref, _Release())
            release.wanted = order
            self._looks.add(ref, release.order, now_s)
        self._reorder(self._missing, now_s)
        self._dirty |= orders.keys() - wanted
        self._sizes = None
        if orders.keys() - wanted:
            self.back_offs.retry_now(now_s)

    @property
    def refs(self) -> list[ReleaseRef]:
        """All wanted or awaited releases."""
        return list(self._releases)

    def ensure(self, ref: ReleaseRef, now_s: float) -> None:
        """Note that a call waits for a release, wanted or not: look at it now, fetch its objects first."""
        release = self._releases.setdefault(ref, _Release())
        release.awaited = True
        self._looks.add(ref, URGENT, now_s).failures = 0
        self._looks.move(ref, now_s)
        self._reorder(release.missing, now_s)
        for name in release.missing:
            self._fetches.retry(name, now_s)

    def end_ensure(self, ref: ReleaseRef, now_s: float) -> None:
        """Note that no call waits for a release any more. If it is not wanted, remove it."""
        release = self._releases.get(ref)
        if release is None or release.wanted is None:
            self._forget(ref)
        else:
            release.awaited = False
            self._looks.add(ref, release.order, now_s)
            self._reorder(release.missing, now_s)

    def damaged(self, name: str, now_s: float) -> None:
        """Note damage in an object, or in manifest or layout of the release of that digest: look again."""
        self._quarantined_count += 1
        for ref, release in self._releases.items():
            objects = () if release.known is None else release.known.objects
            if name == ref.digest or any(item.name == name for item in objects):
                self._looks.move(ref, now_s)

    def start_due(self, now_s: float, looks: int, fetches: int) -> list[Job]:
        """Jobs to start now: at most this many of each kind, plus urgent ones; see `TaskQueue.take`."""
        due = ((ref, self._releases[ref]) for ref in self._looks.take(now_s, looks))
        jobs: list[Job] = [FindMissing(ref, release.known, release.fresh_layout) for ref, release in due]
        names = self._fetches.take(now_s, fetches)
        return [*jobs, *(Fetch(self._missing[name].item, self._fetches[name].order) for name in names)]

    def next_due_s(self, looks: int = 1, fetches: int = 1) -> float | None:
        """When `start_due` with these arguments returns a job. None: not before another method is called."""
        times = (self._looks.next_due_s(looks), self._fetches.next_due_s(fetches))
        return min((due for due in times if due is not None), default=None)

    def looked(self, ref: ReleaseRef, known: Release, missing: MissingObjects, now_s: float) -> None:
        """Note the result of a look. If `missing` is empty, the release is complete and kept."""
        release = self._releases.get(ref)
        if release is None:  # not wanted any more
            return
        if release.known != known:
            self._sizes = None
        release.known, release.fresh_layout = known, False
        self._set_missing_files(ref, release, missing.artifacts, is_complete=not missing)
        self._set_missing_objects(ref, release, missing.objects, now_s)
        self._looks[ref].failures, self._looks[ref].failure = 0, None
        self._looks.ended(ref, now_s + self._look_every_s)

    def fetched(self, name: str, now_s: float) -> None:
        """Note that an object is here and verified."""
        for ref in self.needing(name):
            release = self._releases[ref]
            release.missing.discard(name)
            self._dirty.add(ref)
            task, due_s = self._looks[ref], now_s + _RECOUNT_S if release.missing else now_s
            self._looks.move(ref, due_s if task.running else min(task.due_s, due_s))
        self._drop(name)
        self.back_offs.disk_answered(now_s)

    def elsewhere(self, name: str, now_s: float) -> None:
        """Note that another process of this host receives the object. That is no failure."""
        if name in self._fetches:
            self._fetches.ended(name, now_s + _ELSEWHERE_S)

    def failed(self, job: Job, failure: Failure, now_s: float) -> None:
        """Note that a job failed. It is due again after its back-off."""
        if isinstance(job, Fetch):
            self._fetch_failed(job.item, failure, now_s)
            return
        release = self._releases.get(job.ref)
        if release is not None:
            self._set_missing_files(job.ref, release, release.missing_files, is_complete=False)
            self.back_offs.failed(self._looks, job.ref, failure, now_s)

    def readiness(self, disk: DiskState) -> Readiness:
        """State of the wanted releases. An unchanged release is the same object as in the last result."""
        for ref in self._dirty & self._releases.keys():
            release = self._releases[ref]
            if release.wanted is None:
                continue
            self._told[ref] = readiness_of(
                ref,
                release.known,
                None if release.is_complete else release.missing_files,
                self._looks[ref].failure,
                {name: self._fetches[name].failure for name in release.missing},
                {name for name in release.missing if isinstance(self._missing[name].item, Pack)},
            )
        self._dirty.clear()
        releases = dict(sorted(self._told.items(), key=lambda item: (item[0].name, item[0].digest)))
        self._count()
        return Readiness(releases, self._total_bytes, self._quarantined_count, disk)

    def objects(self) -> ObjectCounts:
        """Count the objects."""
        sizes = self._count()
        missing_bytes = sum(missing.item.size_bytes for missing in self._missing.values())
        return ObjectCounts(len(sizes), sum(sizes.values()), len(self._missing), missing_bytes)

    def _count(self) -> dict[str, int]:
        """Sizes of all objects, by name. Also updates `Readiness.total_bytes`, if the releases changed."""
        if self._sizes is None:
            counts = [(each.known, each.wanted) for each in self._releases.values() if each.known is not None]
            self._sizes = {item.name: item.size_bytes for known, _ in counts for item in known.objects}
            self._total_bytes = total_bytes(known for known, wanted in counts if wanted is not None)
        return self._sizes

    def _set_missing_files(
        self, ref: ReleaseRef, release: _Release, files: tuple[Artifact, ...], *, is_complete: bool
    ) -> None:
        self.turned = self.turned or is_complete != release.is_complete
        release.is_complete, release.missing_files = is_complete, files
        self._dirty.add(ref)

    def _set_missing_objects(
        self, ref: ReleaseRef, release: _Release, items: tuple[StoredObject, ...], now_s: float
    ) -> None:
        names = [item.name for item in items]  # in the order of the layout
        for name in release.missing.difference(names):
            self._unneed(name, ref)
        new = set(names) - release.missing
        for name, item in zip(names, items, strict=True):
            missing = self._missing.setdefault(name, _Missing(item))
            missing.needed_by.add(ref)
            if missing.item != item and self._fetches[name].failure is not None:
                missing.item = item  # the size in this release may be the right one
        release.missing = set(names)
        self._reorder(names, now_s)
        if release.awaited:
            for name in new:  # it may have a long back-off, because another release failed to get it
                self._fetches.retry(name, now_s)

    def _unneed(self, name: str, ref: ReleaseRef) -> None:
        self._missing[name].needed_by.discard(ref)
        if not self._missing[name].needed_by:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._missing.pop(name, None)
        self._fetches.drop(name)

    def _forget(self, ref: ReleaseRef) -> None:
        release = self._releases.pop(ref, _Release())
        for name in release.missing:
            self._unneed(name, ref)
        self._looks.drop(ref)
        self._dirty.discard(ref)
        self._sizes = None

    def _reorder(self, names: Iterable[str], now_s: float) -> None:
        for name in names:
            order = min(self._releases[ref].order for ref in self._missing[name].needed_by)
            self._fetches.add(name, order, now_s)

    def _fetch_failed(self, item: StoredObject, failure: Failure, now_s: float) -> None:
        if item.name not in self._fetches:
            return
        self.back_offs.failed(self._fetches, item.name, failure, now_s)
        replaced = isinstance(item, Pack) and failure.state in {ReleaseState.ABSENT, ReleaseState.CORRUPT}
        for ref in self._missing[item.name].needed_by:
            self._dirty.add(ref)
            if replaced:  # the layout may name other packs now
                self._releases[ref].fresh_layout = True
                if not self._looks[ref].running and not self._looks[ref].failures:
                    self._looks.move(ref, now_s)
