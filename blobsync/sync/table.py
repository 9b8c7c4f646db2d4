"""What is wanted, what is here, and what to do next. Pure: time comes in, jobs go out; one thread owns it.

Two kinds of jobs. A *look* reads a release's manifest, asks the local store what it lacks and, when nothing,
keeps the manifest there: only a look makes a release ready. A *fetch* brings one blob. Each has a back-off
of its own, so what fails harms nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from blobsync.release.manifest import Manifest, ReleaseRef
from blobsync.retry import RetryPolicy
from blobsync.sync.readiness import (
    Failure,
    Readiness,
    ReleaseReadiness,
    ReleaseState,
    distinct_bytes,
    missing_artifact,
)

_WORST_FIRST = (ReleaseState.ABSENT, ReleaseState.CORRUPT, ReleaseState.UNAVAILABLE, ReleaseState.SYNCING)


@dataclass(frozen=True, slots=True)
class Look:
    """Find out what a release lacks. `manifest` is given when it is known already."""

    ref: ReleaseRef
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring one blob."""

    sha256: str
    size_bytes: int


Job = Look | Fetch


@dataclass(slots=True)
class _Task:
    """When a job is due, and how it went so far."""

    due_s: float
    running: bool = False
    failures: int = 0
    first_failed_s: float = 0.0
    failure: Failure | None = None


@dataclass(slots=True)
class _Release:
    look: _Task
    manifest: Manifest | None = None
    complete: bool = False
    missing: set[str] = field(default_factory=set)
    sizes: Mapping[str, int] = field(default_factory=dict)


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
        self._fetches: dict[str, _Task] = {}
        self._last_answer_s = self._last_outage_s = float("-inf")
        self.quarantined_count = 0

    @property
    def wanted(self) -> Set[ReleaseRef]:
        """The releases that are wanted."""
        return self._releases.keys()

    @property
    def in_outage(self) -> bool:
        """Whether the object store has failed since it last answered."""
        return self._last_outage_s > self._last_answer_s

    def complete(self) -> list[Manifest]:
        """Manifests of all ready releases."""
        return [found.manifest for found in self._releases.values() if found.complete and found.manifest]

    def want(self, refs: Set[ReleaseRef], now_s: float) -> None:
        """Replace the wanted set. Something new resets every back-off: what it needs may heal the rest."""
        new = refs - self._releases.keys()
        for ref in self._releases.keys() - refs:
            del self._releases[ref]
        for ref in new:
            self._releases[ref] = _Release(_Task(now_s))
        self._drop_unneeded()
        if new:
            self.retry_now(now_s)

    def retry_now(self, now_s: float) -> None:
        """Make everything that waits for a back-off due."""
        for task in self._tasks():
            if task.failures:
                task.due_s = now_s
                task.failures = 0

    def look_now(self, ref: ReleaseRef, now_s: float) -> None:
        """Somebody brought this release here: look."""
        if (release := self._releases.get(ref)) is not None:
            release.look.due_s = now_s

    def start_due(self, now_s: float, free: int) -> list[Job]:
        """Jobs to start now, at most `free`, looks first, then what failed least. They count as running."""
        jobs: list[tuple[int, float, _Task, Job]] = []
        for ref, release in self._releases.items():
            jobs += _if_due(release.look, Look(ref, release.manifest), now_s)
        if len(jobs) < free:  # looks go first: they are few, and say what to fetch
            for sha256, size in self._sizes().items():
                jobs += _if_due(self._fetches[sha256], Fetch(sha256, size), now_s)
        jobs.sort(key=lambda item: (isinstance(item[3], Fetch), *item[:2]))
        for _, _, task, _ in jobs[:free]:
            task.running = True
        return [job for _, _, _, job in jobs[:free]]

    def next_due_s(self) -> float | None:
        """When `start_due` has something again, as far as time alone decides."""
        return min((task.due_s for task in self._tasks() if not task.running), default=None)

    def looked(self, ref: ReleaseRef, manifest: Manifest, missing: Iterable[str], now_s: float) -> None:
        """A look, or a scrub, found what the release lacks; nothing: it is complete, manifest included."""
        release = self._releases.get(ref)
        if release is None:  # not wanted any more
            return
        release.manifest, release.missing = manifest, set(missing)
        release.complete = not release.missing
        release.sizes = {sha256: blob.size_bytes for sha256, blob in manifest.blobs.items()}
        release.look = _Task(now_s + self._look_every_s)
        for sha256 in release.missing:
            self._fetches.setdefault(sha256, _Task(now_s))
        self._drop_unneeded()

    def fetched(self, job: Fetch, now_s: float) -> None:
        """A blob is here and verified."""
        self._fetches.pop(job.sha256, None)
        for release in self._releases.values():
            if job.sha256 in release.missing:
                release.missing.discard(job.sha256)
                if not release.missing:
                    release.look.due_s = now_s

    def store_answered(self, now_s: float) -> None:
        """The object store works. What failed since its last answer was an outage, and is due now.

        Not what failed before that answer too: such a key fails by itself, and keeps its back-off.
        """
        if self.in_outage:
            for task in self._tasks():
                outage = task.failure is not None and task.failure.state is ReleaseState.UNAVAILABLE
                if outage and task.first_failed_s > self._last_answer_s:
                    task.due_s = min(task.due_s, now_s)
        self._last_answer_s = now_s

    def failed(self, job: Job, failure: Failure, now_s: float) -> None:
        """A job failed: it is due again after its back-off."""
        if isinstance(job, Fetch):
            task = self._fetches.get(job.sha256)
        else:
            release = self._releases.get(job.ref)
            task = None
            if release is not None:
                task, release.complete = release.look, False
        if task is None:
            return
        task.running = False
        if task.failure is None or task.failure.state is not failure.state:
            task.first_failed_s = now_s
        if failure.state is ReleaseState.UNAVAILABLE:
            self._last_outage_s = max(self._last_outage_s, task.first_failed_s)
        task.failures += 1
        task.failure = failure
        task.due_s = now_s + self._retry.wait_s(task.failures, self._rng)

    def readiness(self) -> Readiness:
        """How things stand."""
        known = [found.sizes for found in self._releases.values()]
        return Readiness(
            {
                ref: self._of(ref, found)
                for ref, found in sorted(self._releases.items(), key=lambda i: str(i[0]))
            },
            total_bytes=sum({sha: size for sizes in known for sha, size in sizes.items()}.values()),
            quarantined_count=self.quarantined_count,
        )

    def _of(self, ref: ReleaseRef, release: _Release) -> ReleaseReadiness:
        if release.complete:
            return ReleaseReadiness(ref, ReleaseState.READY)
        items = release.manifest.artifacts if release.manifest is not None else ()
        missing = tuple(missing_artifact(item) for item in items if item.sha256 in release.missing)
        tasks = [release.look, *(self._fetches[sha] for sha in release.missing if sha in self._fetches)]
        failures = [task.failure for task in tasks if task.failure is not None]
        worst = min(failures, key=lambda item: _WORST_FIRST.index(item.state), default=None)
        if worst is None:
            reason = (
                f"{len(missing)} of {len(items)} files to fetch" if items else "its manifest is being read"
            )
            worst = Failure(ReleaseState.SYNCING, reason)
        return ReleaseReadiness(ref, worst.state, missing, distinct_bytes(missing), worst.reason)

    def _tasks(self) -> Iterator[_Task]:
        yield from (release.look for release in self._releases.values())
        yield from self._fetches.values()

    def _sizes(self) -> dict[str, int]:
        """Blobs to fetch. Shape `{sha256: size_bytes}`."""
        return {
            sha256: release.sizes[sha256]
            for release in self._releases.values()
            for sha256 in release.missing
            if sha256 in self._fetches
        }

    def _drop_unneeded(self) -> None:
        needed = {sha256 for release in self._releases.values() for sha256 in release.missing}
        for sha256 in [sha for sha in self._fetches if sha not in needed]:
            del self._fetches[sha256]


def _if_due(task: _Task, job: Job, now_s: float) -> list[tuple[int, float, _Task, Job]]:
    return [] if task.running or task.due_s > now_s else [(task.failures, task.due_s, task, job)]
