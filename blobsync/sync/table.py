"""What is wanted, what is here, and what to do next. Pure: time comes in, jobs go out; one thread owns it.

Two kinds of jobs. A *look* reads a release's manifest and layout, asks the local store what it lacks and,
when nothing, keeps the release there: only a look makes it ready. A *fetch* brings one object, a pack or a
large blob. Each has a back-off of its own, so what fails harms nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from blobsync.local.disk_state import DiskState
from blobsync.local.lacking import Lacking
from blobsync.local.releases import KeptRelease
from blobsync.release.layout import Pack
from blobsync.release.loose import Bundle, LooseBlob
from blobsync.release.manifest import ReleaseRef
from blobsync.release.objects import Fetchable
from blobsync.retry import RetryPolicy
from blobsync.sync.agenda import Agenda, Task
from blobsync.sync.judgement import judged, total_bytes
from blobsync.sync.readiness import Failure, Readiness, ReleaseReadiness, ReleaseState

_ELSEWHERE_S = 0.1
"""When to ask again for what another process receives."""
_RECOUNT_S = 1.0
"""While packs arrive, a release is looked at so often, to say which files came with them."""


@dataclass(frozen=True, slots=True)
class Look:
    """Find out what a release lacks.

    Attributes:
        ref: The release.
        known: What it is, if that is known already.
        fresh_layout: Read its layout anew from the object store: a pack that it names is not to be had.
    """

    ref: ReleaseRef
    known: KeptRelease | None
    fresh_layout: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring one object. What has the lower `order` goes first."""

    item: Fetchable
    order: int = 0


Job = Look | Fetch


@dataclass(slots=True)
class _Release:
    order: int
    known: KeptRelease | None = None
    complete: bool = False
    fresh_layout: bool = False
    lacking: Lacking = field(default_factory=Lacking)
    missing: set[str] = field(default_factory=set)
    objects: dict[str, int] = field(default_factory=dict)


class SyncTable:
    """The state of one syncer.

    Args:
        retry: Waits after failures.
        look_every_s: How often a ready release is looked at again: someone may have removed a file.
        rng: Uniform in [0, 1).
    """

    def __init__(
        self, retry: RetryPolicy, look_every_s: float, rng: Callable[[], float] = random.random
    ) -> None:
        self._retry = retry
        self._look_every_s = look_every_s
        self._rng = rng
        self._releases: dict[ReleaseRef, _Release] = {}
        self._looks: Agenda[ReleaseRef] = Agenda()
        self._fetches: Agenda[str] = Agenda()
        self._items: dict[str, Fetchable] = {}
        self._needed_by: dict[str, set[ReleaseRef]] = {}
        self._last_answer_s = self._last_outage_s = float("-inf")
        self._quarantined_count = 0
        self._told: dict[ReleaseRef, ReleaseReadiness] = {}
        self._dirty: set[ReleaseRef] = set()
        self._objects: dict[str, int] | None = None
        self._total_bytes = self._missing_bytes = 0
        self._disk_refused = False
        self.turned = False
        """Whether a release became ready, or is so no more, since somebody set this to False."""

    @property
    def wanted(self) -> Set[ReleaseRef]:
        """The releases that are wanted."""
        return self._releases.keys()

    @property
    def in_outage(self) -> bool:
        """Whether the object store has failed since it last answered."""
        return self._last_outage_s > self._last_answer_s

    @property
    def waits_for_disk(self) -> bool:
        """Whether something that the disk refused is to be tried again."""
        return any(task.failure is not None and task.failure.of_disk for _, _, task in self._failing())

    def want(self, refs: Collection[ReleaseRef], now_s: float) -> None:
        """Replace the wanted set. Something new resets every back-off: what it needs may heal the rest.

        Args:
            refs: If it has an order, what the earlier ones lack is fetched before what the later ones do.
            now_s: The time.
        """
        ordered = isinstance(refs, Sequence)
        orders: dict[ReleaseRef, int] = {}
        for place, ref in enumerate(refs):
            orders.setdefault(ref, place if ordered else 0)
        new = orders.keys() - self._releases.keys()
        for ref in self._releases.keys() - orders.keys():
            self._forget(ref)
        for ref, order in orders.items():
            if ref in new:
                self._releases[ref] = _Release(order)
                self._dirty.add(ref)
            self._releases[ref].order = order
            self._looks.add(ref, order, now_s)
        self._reorder(now_s)
        self._objects = None
        if new:
            self.retry_now(now_s)

    def retry_now(self, now_s: float) -> None:
        """Make everything that waits for a back-off due."""
        for agenda, key, task in self._failing():
            task.failures = 0
            agenda.move(key, now_s)

    def look_now(self, ref: ReleaseRef, now_s: float) -> None:
        """Somebody brought this release here, or it may have lost something: look."""
        if ref in self._releases:
            self._looks.move(ref, now_s)

    def damaged(self, name: str, now_s: float) -> None:
        """An object, or the manifest of that digest, was damaged and was put away: look at what needs it."""
        self._quarantined_count += 1
        for ref, release in self._releases.items():
            if name in release.objects or name == ref.digest:
                self.look_now(ref, now_s)

    def start_due(self, now_s: float, looks: int, fetches: int) -> list[Job]:
        """Jobs to start now, at most so many of each kind. They count as running."""
        jobs: list[Job] = []
        for ref in self._looks.take(now_s, looks):
            release = self._releases[ref]
            jobs.append(Look(ref, release.known, release.fresh_layout))
        for name in self._fetches.take(now_s, fetches):
            task = self._fetches.get(name)
            assert task is not None  # noqa: S101 - it was taken just now
            jobs.append(Fetch(self._items[name], task.order))
        return jobs

    def next_due_s(self, *, looks: bool = True, fetches: bool = True) -> float | None:
        """When `start_due` has something again, as far as time alone decides."""
        times = [self._looks.next_due_s()] if looks else []
        times += [self._fetches.next_due_s()] if fetches else []
        return min((due for due in times if due is not None), default=None)

    def looked(self, ref: ReleaseRef, known: KeptRelease, lacking: Lacking, now_s: float) -> None:
        """A look found what the release lacks; nothing: it is complete, and kept."""
        release = self._releases.get(ref)
        if release is None:  # not wanted any more
            return
        if release.known != known:
            found = chain[Fetchable](known.objects, lacking.objects)
            release.objects = {item.name: item.size_bytes for item in found}
            self._objects = None
        release.known, release.lacking, release.fresh_layout = known, lacking, False
        self._set_complete(ref, release, not lacking)
        self._set_missing(ref, release, lacking, now_s)
        task = self._looks.get(ref)
        if task is not None:
            task.failures, task.failure = 0, None
            self._looks.ended(ref, now_s + self._look_every_s)

    def fetched(self, name: str, now_s: float) -> None:
        """An object is here and verified."""
        self._drop(name)
        for ref in self._needed_by.pop(name, ()):
            release = self._releases[ref]
            release.missing.discard(name)
            self._dirty.add(ref)
            task = self._looks.get(ref)
            if task is not None:
                due_s = now_s + _RECOUNT_S if release.missing else now_s
                self._looks.move(ref, due_s if task.running else min(task.due_s, due_s))
        self._disk_answered(now_s)

    def elsewhere(self, name: str, now_s: float) -> None:
        """Another process of this host receives the object: no failure."""
        if name in self._fetches:
            self._fetches.ended(name, now_s + _ELSEWHERE_S)

    def store_answered(self, now_s: float) -> None:
        """The object store works. What failed since its last answer was an outage, and is due now.

        Not what failed before that answer too: such a key fails by itself, and keeps its back-off.
        """
        if self.in_outage:
            for agenda, key, task in self._failing():
                outage = task.failure is not None and task.failure.state is ReleaseState.UNAVAILABLE
                if outage and task.first_failed_s > self._last_answer_s and task.due_s > now_s:
                    agenda.move(key, now_s)
        self._last_answer_s = now_s

    def failed(self, job: Job, failure: Failure, now_s: float) -> None:
        """A job failed: it is due again after its back-off."""
        if isinstance(job, Fetch):
            self._fetch_failed(job.item, failure, now_s)
            return
        release = self._releases.get(job.ref)
        if release is not None:
            self._set_complete(job.ref, release, False)
            self._dirty.add(job.ref)
            self._failed(self._looks, job.ref, failure, now_s)

    def readiness(self, disk: DiskState) -> Readiness:
        """How things stand. What has not changed since the last call is the same object again."""
        for ref in self._dirty & self._releases.keys():
            release = self._releases[ref]
            look = self._looks.get(ref)
            self._told[ref] = judged(
                ref,
                release.known,
                None if release.complete else release.lacking.artifacts,
                None if look is None else look.failure,
                {name: self._failure(name) for name in release.missing},
                {name for name in release.missing if isinstance(self._items[name], Pack)},
                self._bundled(release.missing),
            )
        self._dirty.clear()
        releases = dict(sorted(self._told.items(), key=lambda item: (item[0].name, item[0].digest)))
        self._count()
        return Readiness(releases, self._total_bytes, self._quarantined_count, disk)

    def _bundled(self, names: Iterable[str]) -> dict[str, str]:
        """In which of these bundles each small file is, by SHA-256."""
        bundles = (item for name in names if isinstance(item := self._items[name], Bundle))
        return {file.sha256: bundle.name for bundle in bundles for file in bundle.files}

    def objects(self) -> tuple[int, int, int, int]:
        """Distinct objects of the wanted releases, their bytes; those that are missing, and theirs."""
        objects = self._count()
        return len(objects), sum(objects.values()), len(self._items), self._missing_bytes

    def _count(self) -> dict[str, int]:
        """All objects of the wanted releases, and the bytes of their files. Only anew when they changed."""
        if self._objects is None:
            releases = self._releases.values()
            self._objects = dict(chain.from_iterable(release.objects.items() for release in releases))
            self._total_bytes = total_bytes(found.known for found in releases if found.known is not None)
        return self._objects

    def _set_complete(self, ref: ReleaseRef, release: _Release, complete: bool) -> None:
        if release.complete != complete:
            release.complete = complete
            self._dirty.add(ref)
            self.turned = True

    def _set_missing(self, ref: ReleaseRef, release: _Release, lacking: Lacking, now_s: float) -> None:
        missing = {item.name: item for item in lacking.objects}
        for name in release.missing - missing.keys():
            self._unneed(name, ref)
        for name in missing.keys() - release.missing:
            self._needed_by.setdefault(name, set()).add(ref)
        for name, item in missing.items():
            self._put(name, item)
        release.missing = set(missing)
        for name in missing:  # in the order of the layout
            self._fetches.add(name, self._order_of(name), now_s)
        self._dirty.add(ref)

    def _put(self, name: str, item: Fetchable) -> None:
        """Note what is to be fetched. What is there stays, but of a bundle less may be missing by now.

        And where one way to a large file fails, another release may know another.
        """
        known = self._items.get(name)
        if known is None or isinstance(item, Bundle) or (known != item and self._failure(name) is not None):
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
        release = self._releases.pop(ref)
        for name in release.missing:
            self._unneed(name, ref)
        self._looks.drop(ref)
        self._told.pop(ref, None)
        self._dirty.discard(ref)

    def _reorder(self, now_s: float) -> None:
        for name in self._items:
            self._fetches.add(name, self._order_of(name), now_s)

    def _order_of(self, name: str) -> int:
        return min(self._releases[ref].order for ref in self._needed_by[name])

    def _fetch_failed(self, item: Fetchable, failure: Failure, now_s: float) -> None:
        if item.name not in self._fetches:
            return
        self._failed(self._fetches, item.name, failure, now_s)
        replaced = isinstance(item, Pack | Bundle | LooseBlob) and failure.state in {
            ReleaseState.ABSENT,
            ReleaseState.CORRUPT,
        }
        for ref in self._needed_by[item.name]:
            self._dirty.add(ref)
            if replaced:  # the layout may name other packs by now, and other files of a bundle have come
                self._releases[ref].fresh_layout = True
                task = self._looks.get(ref)
                if task is not None and not task.running and not task.failures:
                    self._looks.move(ref, now_s)

    def _failed(self, agenda: Agenda[Any], key: Any, failure: Failure, now_s: float) -> None:
        task = agenda.get(key)
        if task is None:
            return
        if task.failure is None or task.failure.state is not failure.state:
            task.first_failed_s = now_s
        if failure.state is ReleaseState.UNAVAILABLE:
            self._last_outage_s = max(self._last_outage_s, task.first_failed_s)
        self._disk_refused = self._disk_refused or failure.of_disk
        task.failures += 1
        task.failure = failure
        agenda.ended(key, now_s + self._retry.wait_s(task.failures, self._rng))

    def _disk_answered(self, now_s: float) -> None:
        """The disk takes bytes: what it refused is due now."""
        if self._disk_refused:
            self._disk_refused = False
            for agenda, key, task in self._failing():
                if task.failure is not None and task.failure.of_disk and task.due_s > now_s:
                    agenda.move(key, now_s)

    def _failing(self) -> Iterator[tuple[Agenda[Any], Any, Task]]:
        for agenda in (self._looks, self._fetches):
            for key, task in list(agenda.items()):
                if task.failures:
                    yield agenda, key, task

    def _failure(self, name: str) -> Failure | None:
        task = self._fetches.get(name)
        return None if task is None else task.failure
