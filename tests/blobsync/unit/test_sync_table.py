"""The decisions of the syncer, without threads or time."""

from __future__ import annotations

from datetime import timedelta

from blobsync import DiskCondition, DiskState, Readiness, ReleaseState, RetryPolicy
from blobsync.local.objects import MissingObjects
from blobsync.local.releases import Release
from blobsync.release.layout import StoredObject
from blobsync.sync.readiness import Failure
from blobsync.sync.table import Fetch, FindMissing, Job, SyncTable
from tests.blobsync.local_store_samples import Sample, sample

POLICY = RetryPolicy(first_wait=timedelta(seconds=1), max_wait=timedelta(seconds=8))
DOWN = Failure(ReleaseState.UNAVAILABLE, "down")
GONE = Failure(ReleaseState.ABSENT, "gone")
FULL = Failure(ReleaseState.SYNCING, "full", of_disk=True)
SEVERAL = 5 << 20


def release(name: str, *contents: str) -> Sample:
    """A release of files that are so large that each is an object. A file's content begins with its name."""
    return sample({text: text.encode().ljust(SEVERAL, b".") for text in contents}, name=name)


def known(of: Sample) -> Release:
    return of.known


def nothing_of(of: Sample) -> MissingObjects:
    return MissingObjects(tuple(of.objects), of.manifest.artifacts)


def table(*wanted: Sample) -> SyncTable:
    made = SyncTable(POLICY, 100.0, rng=lambda: 1.0)
    made.want({each.manifest.ref for each in wanted}, 0.0)
    return made


def start(made: SyncTable, now_s: float, free: int = 100) -> list[Job]:
    return made.start_due(now_s, free, free)


def seen(made: SyncTable) -> Readiness:
    return made.readiness(DiskState())


def all_missing(made: SyncTable, of: Sample, now_s: float = 0.0) -> list[Job]:
    """Look at a release of which this host has no object. Returns its fetches, started."""
    start(made, now_s)
    made.looked(of.manifest.ref, known(of), nothing_of(of), now_s)
    return start(made, now_s)


def fetch(of: Sample, place: int, order: int = 0) -> Fetch:
    blob = of.manifest.artifacts[place].blob
    found: StoredObject = next(item for item in of.objects if item.name == blob.name)
    return Fetch(found, order)


def test_new_release_is_looked_at_then_fetched_then_looked_at_again_before_it_is_ready() -> None:
    p = release("p", "a", "b")
    ref, made = p.manifest.ref, table(p)

    assert start(made, 0) == [FindMissing(ref, None)]
    assert start(made, 0) == []  # the look is already running
    made.looked(ref, known(p), nothing_of(p), 0)
    assert set(start(made, 0)) == {fetch(p, 0), fetch(p, 1)}
    assert seen(made).missing_bytes == 2 * SEVERAL
    made.fetched(fetch(p, 0).item.name, 1)
    assert seen(made).missing_bytes == SEVERAL
    assert made.objects() == (2, 2 * SEVERAL, 1, SEVERAL)
    made.fetched(fetch(p, 1).item.name, 1)
    assert not seen(made).is_ready(ref)  # all objects are here, but the release is not kept yet
    assert start(made, 1) == [FindMissing(ref, known(p))]
    made.looked(ref, known(p), MissingObjects(), 1)

    assert seen(made).is_ready(ref)
    assert made.next_due_s() == 101


def test_object_shared_by_releases_is_fetched_once() -> None:
    p, q = release("p", "shared"), release("q", "shared", "own")
    made = table(p, q)
    start(made, 0)
    made.looked(p.manifest.ref, known(p), nothing_of(p), 0)
    made.looked(q.manifest.ref, known(q), nothing_of(q), 0)

    assert len(start(made, 0)) == 2
    assert seen(made).missing_bytes == seen(made).total_bytes == 2 * SEVERAL
    assert seen(made).missing_count == 2


def test_failing_object_waits_longer_each_time_up_to_the_bound() -> None:
    p = release("p", "a")
    made = table(p)
    all_missing(made, p)
    waits, now = [], 0.0
    for _ in range(6):
        made.failed(fetch(p, 0), GONE, now)
        due = made.next_due_s(looks=-1)
        assert due is not None
        waits.append(due - now)
        now = due
        start(made, now)

    assert waits == [1, 2, 4, 8, 8, 8]


def test_failing_object_does_not_hold_up_the_others() -> None:
    p = release("p", "a", "b")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), GONE, 0)
    made.fetched(fetch(p, 1).item.name, 0)

    found = seen(made).releases[p.manifest.ref]
    assert [(item.path, item.state) for item in found.missing] == [("a", ReleaseState.ABSENT)]
    assert (found.state, found.reason) == (ReleaseState.ABSENT, "gone")


def test_each_file_is_told_with_the_state_of_its_own_object() -> None:
    p = release("p", "a", "b", "c")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), GONE, 0)
    made.failed(fetch(p, 1), DOWN, 0)

    found = seen(made).releases[p.manifest.ref]
    assert [item.state for item in found.missing] == [
        ReleaseState.ABSENT,
        ReleaseState.UNAVAILABLE,
        ReleaseState.SYNCING,
    ]


def test_file_in_one_of_several_packs_is_absent_only_when_all_of_them_are() -> None:
    p = sample({"a": b"1", "b": b"2"}, members=1)
    made = table(p)
    first, second = all_missing(made, p)
    assert isinstance(first, Fetch)
    assert isinstance(second, Fetch)
    made.failed(first, GONE, 0)

    found = seen(made).releases[p.manifest.ref]
    assert found.state is ReleaseState.ABSENT
    assert {item.state for item in found.missing} == {ReleaseState.SYNCING}

    made.failed(second, GONE, 0)
    assert {item.state for item in seen(made).releases[p.manifest.ref].missing} == {ReleaseState.ABSENT}


def test_pack_that_is_gone_lets_the_layout_be_read_again_once_for_each_try() -> None:
    p = sample({"a": b"1"})
    ref, made = p.manifest.ref, table(p)
    (job,) = all_missing(made, p)

    made.failed(job, GONE, 0)
    assert start(made, 0) == [FindMissing(ref, known(p), fresh_layout=True)]
    made.looked(ref, known(p), nothing_of(p), 0)
    assert start(made, 0.5) == []  # the new layout names the same pack, whose back-off continues
    assert start(made, 1) == [job]
    made.failed(job, GONE, 1)
    assert start(made, 1) == [FindMissing(ref, known(p), fresh_layout=True)]


def test_new_layout_replaces_what_the_old_one_let_fetch() -> None:
    old, new = sample({"a": b"1", "b": b"2"}, members=1), sample({"a": b"1", "b": b"2"}, members=2)
    ref, made = old.manifest.ref, table(old)
    for job in all_missing(made, old):
        made.failed(job, GONE, 0)
    start(made, 0)

    made.looked(ref, known(new), nothing_of(new), 0)

    assert start(made, 0) == [Fetch(new.packs[0], 0)]
    assert made.objects() == (1, new.packs[0].size_bytes, 1, new.packs[0].size_bytes)
    assert start(made, 9) == []


def test_what_another_process_receives_is_asked_for_again_soon_and_is_no_failure() -> None:
    p = release("p", "a")
    made = table(p)
    all_missing(made, p)
    for turn in range(1, 50):
        made.elsewhere(fetch(p, 0).item.name, turn)
        due = made.next_due_s(looks=-1)
        assert due == turn + 0.1
        assert start(made, due) == [fetch(p, 0)]

    assert seen(made).releases[p.manifest.ref].state is ReleaseState.SYNCING


def test_what_failed_goes_after_what_did_not() -> None:
    p = release("p", "a", "b")
    made = table(p)
    start(made, 0)
    made.looked(p.manifest.ref, known(p), nothing_of(p), 0)
    made.start_due(0, 0, 1)
    failing = fetch(p, 0)
    made.failed(failing, GONE, 0)

    assert made.start_due(5, 0, 1) == [fetch(p, 1)]
    assert made.start_due(5, 0, 1) == [failing]


def test_earlier_releases_of_an_ordered_want_come_first_also_when_the_order_changes() -> None:
    p, q = release("p", "a", "shared"), release("q", "b", "shared")
    made = SyncTable(POLICY, 100.0, rng=lambda: 1.0)
    made.want([p.manifest.ref, q.manifest.ref], 0)
    assert start(made, 0) == [FindMissing(p.manifest.ref, None), FindMissing(q.manifest.ref, None)]
    made.looked(q.manifest.ref, known(q), nothing_of(q), 0)
    made.looked(p.manifest.ref, known(p), nothing_of(p), 0)

    assert made.start_due(0, 0, 1)[0] in {fetch(p, 0), fetch(p, 1)}
    made.want([q.manifest.ref, p.manifest.ref], 0)
    rest = made.start_due(0, 0, 1)
    assert rest[0] in {fetch(q, 0), fetch(q, 1)}


def test_first_answer_after_an_outage_makes_all_due_but_not_a_key_that_fails_by_itself() -> None:
    p = release("p", "a", "b", "poison")
    made = table(p)
    all_missing(made, p)
    poison = fetch(p, 2)
    assert p.manifest.artifacts[2].path == "poison"
    made.failed(poison, DOWN, 1)
    made.back_offs.store_answered(2)  # to another request, while "poison" was failing
    start(made, 2)
    made.failed(poison, DOWN, 3)
    for place in (0, 1):
        made.failed(fetch(p, place), DOWN, 3.5)
    assert made.back_offs.in_outage

    made.back_offs.store_answered(3.6)

    assert not made.back_offs.in_outage
    assert set(start(made, 3.6)) == {fetch(p, 0), fetch(p, 1)}


def test_what_the_disk_refused_is_due_as_soon_as_it_takes_something() -> None:
    p = release("p", "a", "b", "c")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), FULL, 0)
    made.failed(fetch(p, 1), GONE, 0)
    assert start(made, 0.1) == []

    made.fetched(fetch(p, 2).item.name, 0.1)

    assert start(made, 0.1) == [fetch(p, 0)]


def test_disk_is_told_in_readiness() -> None:
    full = DiskState(DiskCondition.FULL, "no room")

    assert table().readiness(full).disk == full


def test_wanting_something_new_ends_every_back_off_and_wanting_the_same_does_not() -> None:
    p, q = release("p", "a"), release("q", "b")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), GONE, 0)

    made.want({p.manifest.ref}, 0.1)
    assert start(made, 0.1) == []
    made.want({p.manifest.ref, q.manifest.ref}, 0.1)
    assert set(start(made, 0.1)) == {FindMissing(q.manifest.ref, None), fetch(p, 0)}


def test_retry_now_ends_every_back_off() -> None:
    p = release("p", "a")
    made = table(p)
    start(made, 0)
    made.failed(FindMissing(p.manifest.ref, None), DOWN, 0)
    assert start(made, 0.5) == []

    made.back_offs.retry_now(0.5)

    assert start(made, 0.5) == [FindMissing(p.manifest.ref, None)]
    assert seen(made).releases[p.manifest.ref].state is ReleaseState.UNAVAILABLE  # until the next look


def test_look_that_is_asked_for_while_one_is_under_way_is_made_after_it() -> None:
    p = release("p", "a")
    ref, made = p.manifest.ref, table(p)
    start(made, 0)

    made.damaged(ref.digest, 1)
    made.looked(ref, known(p), MissingObjects(), 2)

    assert seen(made).is_ready(ref)
    assert start(made, 2) == [FindMissing(ref, known(p))]
    made.looked(ref, known(p), MissingObjects(), 3)
    assert start(made, 3) == []


def test_damage_lets_those_who_need_the_object_be_looked_at() -> None:
    p, q = release("p", "a"), release("q", "b")
    made = table(p, q)
    start(made, 0)
    for each in (p, q):
        made.looked(each.manifest.ref, known(each), MissingObjects(), 0)

    made.damaged(fetch(p, 0).item.name, 1)

    assert start(made, 1) == [FindMissing(p.manifest.ref, known(p))]
    assert seen(made).quarantined_count == 1


def test_only_what_changed_is_told_anew() -> None:
    p, q = release("p", "a"), release("q", "b")
    made = table(p, q)
    start(made, 0)
    for each in (p, q):
        made.looked(each.manifest.ref, known(each), MissingObjects(), 0)
    before = seen(made)
    assert made.turned

    made.damaged(fetch(p, 0).item.name, 1)
    start(made, 1)
    made.looked(p.manifest.ref, known(p), nothing_of(p), 1)

    after = seen(made)
    assert after.releases[q.manifest.ref] is before.releases[q.manifest.ref]
    assert not after.is_ready(p.manifest.ref)


def test_release_that_is_not_wanted_any_more_is_forgotten_with_its_fetches() -> None:
    p, q = release("p", "a", "shared"), release("q", "shared")
    made = table(p, q)
    start(made, 0)
    made.looked(p.manifest.ref, known(p), nothing_of(p), 0)
    made.looked(q.manifest.ref, known(q), nothing_of(q), 0)

    made.want({q.manifest.ref}, 1)

    assert start(made, 1) == [fetch(q, 0)]
    assert set(seen(made).releases) == {q.manifest.ref}
    made.looked(p.manifest.ref, known(p), nothing_of(p), 1)  # the result of an older look
    made.fetched(fetch(p, 0).item.name, 1)
    made.failed(fetch(p, 0), GONE, 1)
    assert set(seen(made).releases) == {q.manifest.ref}
    assert made.objects() == (1, SEVERAL, 1, SEVERAL)


def test_release_state_is_the_worst_of_its_files() -> None:
    p = release("p", "a", "b", "c")
    made = table(p)
    all_missing(made, p)
    ref = p.manifest.ref

    made.failed(fetch(p, 0), DOWN, 0)
    assert seen(made).releases[ref].state is ReleaseState.UNAVAILABLE
    made.failed(fetch(p, 1), Failure(ReleaseState.CORRUPT, "wrong"), 0)
    assert seen(made).releases[ref].state is ReleaseState.CORRUPT
    made.failed(fetch(p, 2), GONE, 0)
    assert seen(made).releases[ref].state is ReleaseState.ABSENT


def test_nothing_wanted_is_ready_and_an_unwanted_release_is_not() -> None:
    made = table()

    assert seen(made).all_ready
    assert not seen(made).is_ready(release("p").manifest.ref)


def test_thousands_are_handed_out_a_few_at_a_time_and_each_once() -> None:
    p = sample({f"f{number}": b"%d" % number for number in range(3000)}, members=1)
    made = table(p)
    start(made, 0, 0)
    made.start_due(0, 1, 0)
    made.looked(p.manifest.ref, known(p), nothing_of(p), 0)
    taken: set[str] = set()
    while jobs := made.start_due(0, 0, 8):
        for job in jobs:
            assert isinstance(job, Fetch)
            taken.add(job.item.name)
            made.fetched(job.item.name, 0)

    assert len(taken) == 3000
    assert made.objects()[2:] == (0, 0)


def test_release_that_somebody_waits_for_goes_first_beyond_the_places_of_others() -> None:
    p, q = release("p", "a", "b"), release("q", "c", "d")
    ref, made = q.manifest.ref, table(p)
    start(made, 0)
    made.looked(p.manifest.ref, known(p), nothing_of(p), 0)

    made.ensure(ref, 0)

    assert made.next_due_s(0, 0) == 0
    assert made.start_due(0, 0, 0) == [FindMissing(ref, None)]
    made.looked(ref, known(q), nothing_of(q), 0)
    (first,) = made.start_due(0, 0, 0)  # an urgent fetch starts even if no other may
    assert first in {fetch(q, 0, -1), fetch(q, 1, -1)}
    assert made.start_due(0, -1, -1) == []
    assert made.next_due_s(-1, -1) is None
    (second,) = made.start_due(0, 0, 1)
    assert {first, second} == {fetch(q, 0, -1), fetch(q, 1, -1)}


def test_places_that_are_full_are_not_due_for_what_nobody_waits_for() -> None:
    p = release("p", "a")
    made = table(p)

    assert made.start_due(0, 0, 0) == []
    assert made.next_due_s(0, 0) is None
    assert made.next_due_s(1, 0) == float("-inf")


def test_release_is_forgotten_with_its_last_wait_unless_it_is_wanted() -> None:
    p, q = release("p", "a"), release("q", "b")
    made = table(p)
    for of in (p, q):
        made.ensure(of.manifest.ref, 0)
    start(made, 0)
    for of in (p, q):
        made.looked(of.manifest.ref, known(of), nothing_of(of), 0)
    assert seen(made).releases.keys() == {p.manifest.ref}
    assert seen(made).total_bytes == SEVERAL
    assert made.needing(fetch(q, 0).item.name) == {q.manifest.ref}

    for of in (p, q):
        made.end_ensure(of.manifest.ref, 0)
        made.end_ensure(of.manifest.ref, 0)

    assert start(made, 0) == [fetch(p, 0, 0)]
    assert made.objects() == (1, SEVERAL, 1, SEVERAL)


def test_release_that_is_not_wanted_any_more_stays_while_somebody_waits_for_it() -> None:
    p = release("p", "a")
    made = table(p)
    made.ensure(p.manifest.ref, 0)

    made.want([], 0)

    assert seen(made).releases == {}
    assert start(made, 0) == [FindMissing(p.manifest.ref, None)]
    made.want([p.manifest.ref], 0)
    made.end_ensure(p.manifest.ref, 0)
    assert seen(made).releases.keys() == {p.manifest.ref}


def test_waiting_for_a_release_ends_its_back_offs_and_no_others() -> None:
    p, q = release("p", "a"), release("q", "b")
    made = table(p, q)
    for of in (p, q):
        all_missing(made, of)
        made.failed(fetch(of, 0), GONE, 0)

    made.ensure(p.manifest.ref, 0.1)

    assert start(made, 0.1) == [FindMissing(p.manifest.ref, known(p)), fetch(p, 0, -1)]
