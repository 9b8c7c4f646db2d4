"""What is wanted, what is here, and what to do next. Pure: time comes in, jobs go out; one thread owns it.

Two kinds of jobs. A *look* reads a release's manifest and layout, asks the local store what it lacks and,
when nothing, keeps the release there: only a look makes it ready. A *fetch* brings one object, a pack or a
large blob. Each has a back-off of its own, so what fails harms nothing else. A release is in the table
because it is wanted, because somebody waits for it (`ensure`), or both; readiness tells of the wanted ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from blobsync.local.disk_state import DiskState
from blobsync.local.missing_objects import MissingObjects
from blobsync.local.releases import KeptRelease
from blobsync.release.layout import Pack
from blobsync.release.manifest import ReleaseRef
from blobsync.release.objects import StoredObject
from blobsync.retry import RetryPolicy
from blobsync.sync.agenda import URGENT, Agenda, BackOffs
from blobsync.sync.judgement import judged, total_bytes
from blobsync.sync.readiness import Failure, Readiness, ReleaseReadiness, ReleaseState
from blobsync.sync.release_inspector import Look
from blobsync.sync.transfers import Fetch

_ELSEWHERE_S = 0.1
"""When to ask again for what another process receives."""
_RECOUNT_S = 1.0
"""While packs arrive, a release is looked at so often, to say which files came with them."""


Job = Look | Fetch


@dataclass(slots=True)
class _Release:
    wanted: int | None = None
    """Its order among the wanted ones; None: it is not wanted."""
    awaited: bool = False
    known: KeptRelease | None = None
    complete: bool = False
    fresh_layout: bool = False
    missing_objects: MissingObjects = field(default_factory=MissingObjects)
    missing: set[str] = field(default_factory=set)
    objects: dict[str, int] = field(default_factory=dict)

    @property
    def order(self) -> int:
        return URGENT if self.awaited or self.wanted is None else self.wanted


class SyncTable:
    """The state of one syncer.

    Args:
        retry: Waits after failures.
        look_every_s: How often a ready release is looked at again: someone may have removed a file.
        urgent_fetches: How many more fetches may run than `start_due` is told, if somebody waits for them.
            Of looks, one.
        rng: Uniform in [0, 1).
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
        self._looks: Agenda[ReleaseRef] = Agenda(urgent=1)
        self._fetches: Agenda[str] = Agenda(urgent=urgent_fetches)
        self.back_offs = BackOffs(retry, rng, self._looks, self._fetches)
        self._items: dict[str, StoredObject] = {}
        self._needed_by: dict[str, set[ReleaseRef]] = {}
        self._quarantined_count = 0
        self._told: dict[ReleaseRef, ReleaseReadiness] = {}
        self._dirty: set[ReleaseRef] = set()
        self._objects: dict[str, int] | None = None
        self._total_bytes = self._missing_bytes = 0
        self.turned = False
        """Whether a release became ready, or is so no more, since somebody set this to False."""

    def needing(self, name: str) -> Set[ReleaseRef]:
        """The releases that lack this object."""
        return self._needed_by.get(name, frozenset())

    def want(self, refs: Collection[ReleaseRef], now_s: float) -> None:
        """Replace the wanted set. Something new resets every back-off: what it needs may heal the rest.

        Args:
            refs: If it has an order, what the earlier ones lack is fetched before what the later ones do.
            now_s: The time.
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
        self._reorder(self._items, now_s)
        self._dirty |= orders.keys() - wanted
        self._objects = None
        if orders.keys() - wanted:
            self.back_offs.retry_now(now_s)

    def ensure(self, ref: ReleaseRef, now_s: float) -> None:
        """Somebody waits for a release: look at it now, wanted or not, and fetch what it lacks first."""
        release = self._releases.setdefault(ref, _Release())
        release.awaited = True
        self._looks.add(ref, URGENT, now_s).failures = 0
        self._looks.move(ref, now_s)
        self._reorder(release.missing, now_s)
        for name in release.missing:
            self._fetches.retry(name, now_s)

    def end_ensure(self, ref: ReleaseRef, now_s: float) -> None:
        """Nobody waits for it any more: forget it, unless it is wanted."""
        release = self._releases.get(ref)
        if release is None or release.wanted is None:
            self._forget(ref)
        else:
            release.awaited = False
            self._looks.add(ref, release.order, now_s)
            self._reorder(release.missing, now_s)

    def damaged(self, name: str, now_s: float) -> None:
        """An object, or the manifest of that digest, was damaged and was put away: look at what needs it."""
        self._quarantined_count += 1
        for ref, release in self._releases.items():
            if name in release.objects or name == ref.digest:
                self._looks.move(ref, now_s)

    def start_due(self, now_s: float, looks: int, fetches: int) -> list[Job]:
        """Jobs to start now, at most so many of each kind, and urgent ones beyond that: see `Agenda.take`."""
        found = ((ref, self._releases[ref]) for ref in self._looks.take(now_s, looks))
        jobs: list[Job] = [Look(ref, release.known, release.fresh_layout) for ref, release in found]
        names = self._fetches.take(now_s, fetches)
        return [*jobs, *(Fetch(self._items[name], self._fetches[name].order) for name in names)]

    def next_due_s(self, looks: int = 1, fetches: int = 1) -> float | None:
        """When `start_due` with these has something again, as far as time alone decides."""
        times = (self._looks.next_due_s(looks), self._fetches.next_due_s(fetches))
        return min((due for due in times if due is not None), default=None)

    def looked(
        self, ref: ReleaseRef, known: KeptRelease, missing_objects: MissingObjects, now_s: float
    ) -> None:
        """A look found what the release lacks; nothing: it is complete, and kept."""
        release = self._releases.get(ref)
        if release is None:  # not wanted any more
            return
        if release.known != known:
            found = chain[StoredObject](known.objects, missing_objects.objects)
            release.objects = {item.name: item.size_bytes for item in found}
            self._objects = None
        release.known, release.missing_objects, release.fresh_layout = known, missing_objects, False
        self._set_complete(ref, release, not missing_objects)
        self._set_missing(ref, release, missing_objects, now_s)
        self._looks[ref].failures, self._looks[ref].failure = 0, None
        self._looks.ended(ref, now_s + self._look_every_s)

    def fetched(self, name: str, now_s: float) -> None:
        """An object is here and verified."""
        self._drop(name)
        for ref in self._needed_by.pop(name, ()):
            release = self._releases[ref]
            release.missing.discard(name)
            self._dirty.add(ref)
            task, due_s = self._looks[ref], now_s + _RECOUNT_S if release.missing else now_s
            self._looks.move(ref, due_s if task.running else min(task.due_s, due_s))
        self.back_offs.disk_answered(now_s)

    def elsewhere(self, name: str, now_s: float) -> None:
        """Another process of this host receives the object: no failure."""
        if name in self._fetches:
            self._fetches.ended(name, now_s + _ELSEWHERE_S)

    def failed(self, job: Job, failure: Failure, now_s: float) -> None:
        """A job failed: it is due again after its back-off."""
        if isinstance(job, Fetch):
            self._fetch_failed(job.item, failure, now_s)
            return
        release = self._releases.get(job.ref)
        if release is not None:
            self._set_complete(job.ref, release, False)
            self._dirty.add(job.ref)
            self.back_offs.failed(self._looks, job.ref, failure, now_s)

    def readiness(self, disk: DiskState) -> Readiness:
        """How things stand. What has not changed since the last call is the same object again."""
        for ref in self._dirty & self._releases.keys():
            release = self._releases[ref]
            if release.wanted is None:
                continue
            self._told[ref] = judged(
                ref,
                release.known,
                None if release.complete else release.missing_objects.artifacts,
                self._looks[ref].failure,
                {name: self._fetches[name].failure for name in release.missing},
                {name for name in release.missing if isinstance(self._items[name], Pack)},
            )
        self._dirty.clear()
        releases = dict(sorted(self._told.items(), key=lambda item: (item[0].name, item[0].digest)))
        self._count()
        return Readiness(releases, self._total_bytes, self._quarantined_count, disk)

    def objects(self) -> tuple[int, int, int, int]:
        """Distinct objects of all releases, their bytes; those that are missing, and theirs."""
        objects = self._count()
        return len(objects), sum(objects.values()), len(self._items), self._missing_bytes

    def _count(self) -> dict[str, int]:
        """All objects, and `Readiness.total_bytes`. Only anew when the releases changed."""
        if self._objects is None:
            releases = self._releases.values()
            self._objects = dict(chain.from_iterable(release.objects.items() for release in releases))
            self._total_bytes = total_bytes(
                found.known for found in releases if found.known is not None and found.wanted is not None
            )
        return self._objects

    def _set_complete(self, ref: ReleaseRef, release: _Release, complete: bool) -> None:
        if release.complete != complete:
            release.complete = complete
            self._dirty.add(ref)
            self.turned = True

    def _set_missing(
        self, ref: ReleaseRef, release: _Release, missing_objects: MissingObjects, now_s: float
    ) -> None:
        missing = {item.name: item for item in missing_objects.objects}
        for name in release.missing - missing.keys():
            self._unneed(name, ref)
        new = missing.keys() - release.missing
        for name in new:
            self._needed_by.setdefault(name, set()).add(ref)
        for name, item in missing.items():
            self._put(name, item)
        release.missing = set(missing)
        self._reorder(missing, now_s)  # in the order of the layout
        if release.awaited:
            for name in new:  # another release may have failed to get it, and its back-off may be long
                self._fetches.retry(name, now_s)
        self._dirty.add(ref)

    def _put(self, name: str, item: StoredObject) -> None:
        """Note what to fetch. What is there stays, unless it failed: another release may know better."""
        known = self._items.get(name)
        if known is None or (known != item and self._fetches[name].failure is not None):
            self._items[name] = item
            self._missing_bytes += item.size_bytes - (0 if known is None else known.size_bytes)

    def _unneed(self, name: str, ref: ReleaseRef) -> None:
        needers = self._needed_by.get(name, set())
        needers.discard(ref)
        if not needers:
            self._needed_by.pop(name, None)
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._fetches.drop(name)
        item = self._items.pop(name, None)
        if item is not None:
            self._missing_bytes -= item.size_bytes

    def _forget(self, ref: ReleaseRef) -> None:
        release = self._releases.pop(ref, _Release())
        for name in release.missing:
            self._unneed(name, ref)
        self._looks.drop(ref)
        self._dirty.discard(ref)
        self._objects = None

    def _reorder(self, names: Iterable[str], now_s: float) -> None:
        for name in names:
            order = min(self._releases[ref].order for ref in self._needed_by[name])
            self._fetches.add(name, order, now_s)

    def _fetch_failed(self, item: StoredObject, failure: Failure, now_s: float) -> None:
        if item.name not in self._fetches:
            return
        self.back_offs.failed(self._fetches, item.name, failure, now_s)
        replaced = isinstance(item, Pack) and failure.state in {ReleaseState.ABSENT, ReleaseState.CORRUPT}
        for ref in self._needed_by[item.name]:
            self._dirty.add(ref)
            if replaced:  # the layout may name other packs by now
                self._releases[ref].fresh_layout = True
                if not self._looks[ref].running and not self._looks[ref].failures:
                    self._looks.move(ref, now_s)
