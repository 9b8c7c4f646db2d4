"""Laws of the syncer's table, for any order of wants, waits, answers and failures."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from blobsync import DiskState, ReleaseRef, ReleaseState, RetryPolicy
from blobsync.local.objects import MissingObjects
from blobsync.sync.readiness import Failure
from blobsync.sync.table import Fetch, FindMissing, Job, SyncTable
from tests.blobsync.local_store_samples import Sample, sample

SAMPLES: list[Sample] = [
    sample({file: file.encode() for file in files}, name=f"p{number}", members=1)
    for number, files in enumerate(("ab", "bc", "cd"))
]
BY_REF = {each.manifest.ref: each for each in SAMPLES}
REFS = list(BY_REF)
FAILURES = [
    Failure(ReleaseState.UNAVAILABLE, "down"),
    Failure(ReleaseState.ABSENT, "gone"),
    Failure(ReleaseState.SYNCING, "full", of_disk=True),
]
ACTIONS = ["want", "ensure", "end", "start", "answer", "fail", "elsewhere", "damage", "lose"]


class World:
    """A table, the jobs that it started, and what is on the disk."""

    def __init__(self) -> None:
        policy = RetryPolicy(first_wait=timedelta(seconds=1), max_wait=timedelta(seconds=8))
        self.table = SyncTable(policy, 100.0, rng=lambda: 1.0)
        self.now_s = 0.0
        self.wanted: set[ReleaseRef] = set()
        self.awaited: set[ReleaseRef] = set()
        self.jobs: list[Job] = []
        self.here: set[str] = set()

    def act(self, action: str, number: int) -> None:
        ref = REFS[number % len(REFS)]
        self.now_s += number % 3
        match action:
            case "want":
                wanted = [each for bit, each in enumerate(REFS) if number >> bit & 1]
                self.wanted = set(wanted)
                self.table.want(wanted if number & 8 else self.wanted, self.now_s)
            case "ensure":
                self.awaited.add(ref)
                self.table.ensure(ref, self.now_s)
            case "end":
                self.awaited.discard(ref)
                self.table.end_ensure(ref, self.now_s)
            case "start":
                self.jobs += self.table.start_due(self.now_s, number % 3, number % 4)
            case "answer" | "fail" | "elsewhere" if self.jobs:
                self.end(self.jobs.pop(number % len(self.jobs)), action, number)
            case "damage":
                self.table.damaged(ref.digest, self.now_s)
            case "lose":
                self.here.clear()

    def end(self, job: Job, how: str, number: int) -> None:
        if how == "fail":
            self.table.failed(job, FAILURES[number % len(FAILURES)], self.now_s)
        elif isinstance(job, FindMissing):
            self.looked(job.ref)
        elif how == "elsewhere":
            self.table.elsewhere(job.item.name, self.now_s)
        else:
            self.here.add(job.item.name)
            self.table.fetched(job.item.name, self.now_s)

    def looked(self, ref: ReleaseRef) -> None:
        release = BY_REF[ref]
        missing = tuple(item for item in release.objects if item.name not in self.here)
        files = release.manifest.artifacts if missing else ()
        self.table.looked(ref, release.known, MissingObjects(missing, files), self.now_s)

    def check(self) -> None:
        seen = self.table.readiness(DiskState())
        assert seen.releases.keys() == self.wanted
        objects, size_bytes, missing, missing_bytes = self.table.objects()
        assert 0 <= missing <= objects
        assert 0 <= missing_bytes <= size_bytes
        for item in (item for each in SAMPLES for item in each.objects):
            assert self.table.needing(item.name) <= self.wanted | self.awaited

    def settle(self) -> None:
        """Let all fetches succeed from now on."""
        for _ in range(60):
            self.now_s += 10
            self.jobs += self.table.start_due(self.now_s, 2, 2)
            while self.jobs:
                self.end(self.jobs.pop(0), "answer", 0)


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 63)), max_size=60))
def test_table_tells_of_what_is_wanted_alone_and_all_of_it_is_ready_in_the_end(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    for action, number in steps:
        world.act(action, number)
        world.check()
    world.settle()
    world.check()

    assert world.table.readiness(DiskState()).all_ready
    assert world.table.objects()[2:] == (0, 0)


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 63)), max_size=40), st.integers(0, 2))
def test_what_somebody_waits_for_is_never_behind_what_nobody_waits_for(
    steps: list[tuple[str, int]], number: int
) -> None:
    world, ref = World(), REFS[number]
    for action, value in steps:
        world.act(action, value)
    world.table.ensure(ref, world.now_s)
    started = world.table.start_due(world.now_s, 9, 9)

    urgent = [job.order < 0 for job in started if isinstance(job, Fetch)]
    assert urgent == sorted(urgent, reverse=True)
