"""The decisions of the syncer, without threads or time."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from blobsync import Artifact, Manifest, ReleaseState, RetryPolicy, Role
from blobsync.sync.readiness import Failure
from blobsync.sync.table import Fetch, Job, Look, SyncTable

POLICY = RetryPolicy(first_wait=timedelta(seconds=1), max_wait=timedelta(seconds=8))
DOWN = Failure(ReleaseState.UNAVAILABLE, "down")
GONE = Failure(ReleaseState.ABSENT, "gone")


def release(name: str, *contents: str) -> Manifest:
    return Manifest(
        name,
        tuple(
            Artifact(text, len(text), hashlib.sha256(text.encode()).hexdigest(), Role.CODE, False)
            for text in contents
        ),
    )


def table(*wanted: Manifest) -> SyncTable:
    made = SyncTable(POLICY, 100.0, rng=lambda: 1.0)
    made.want({manifest.ref for manifest in wanted}, 0.0)
    return made


def all_missing(made: SyncTable, manifest: Manifest, now_s: float = 0.0) -> list[Job]:
    """Look at a release, and find nothing of it here. Gives its fetches, started."""
    made.start_due(now_s, 100)
    made.looked(manifest.ref, manifest, manifest.blobs, now_s)
    return made.start_due(now_s, 100)


def fetch(manifest: Manifest, place: int) -> Fetch:
    item = manifest.artifacts[place]
    return Fetch(item.sha256, item.size_bytes)


def test_new_release_is_looked_at_then_fetched_then_looked_at_again_before_it_is_ready() -> None:
    p = release("p", "a", "bb")
    made = table(p)

    assert made.start_due(0, 10) == [Look(p.ref, None)]
    assert made.start_due(0, 10) == []  # it is running
    made.looked(p.ref, p, p.blobs, 0)
    assert set(made.start_due(0, 10)) == {fetch(p, 0), fetch(p, 1)}
    assert made.readiness().missing_bytes == 3
    made.fetched(fetch(p, 0), 1)
    assert made.readiness().missing_bytes == 2
    made.fetched(fetch(p, 1), 1)
    assert not made.readiness().is_ready(p.ref)  # its manifest is not kept yet
    assert made.start_due(1, 10) == [Look(p.ref, p)]
    made.looked(p.ref, p, [], 1)

    assert made.readiness().is_ready(p.ref)
    assert made.next_due_s() == 101


def test_blob_shared_by_releases_is_fetched_once() -> None:
    p, q = release("p", "shared"), release("q", "shared", "own")
    made = table(p, q)
    made.start_due(0, 10)
    made.looked(p.ref, p, p.blobs, 0)
    made.looked(q.ref, q, q.blobs, 0)

    assert len(made.start_due(0, 10)) == 2
    assert made.readiness().missing_bytes == len("shared") + len("own")
    assert made.readiness().missing_count == 2


def test_failing_blob_waits_longer_each_time_up_to_the_bound() -> None:
    p = release("p", "a")
    made = table(p)
    all_missing(made, p)
    waits, now = [], 0.0
    for _ in range(6):
        made.failed(fetch(p, 0), GONE, now)
        due = made.next_due_s()
        assert due is not None
        waits.append(min(due, 99) - now)
        now = due
        made.start_due(now, 10)

    assert waits == [1, 2, 4, 8, 8, 8]


def test_failing_blob_does_not_hold_up_the_others() -> None:
    p = release("p", "a", "b")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), GONE, 0)
    made.fetched(fetch(p, 1), 0)

    found = made.readiness().releases[p.ref]
    assert [item.path for item in found.missing] == ["a"]
    assert (found.state, found.reason) == (ReleaseState.ABSENT, "gone")


def test_what_failed_goes_after_what_did_not() -> None:
    p, q = release("p", "a"), release("q", "b")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), GONE, 0)
    made.want({p.ref, q.ref}, 5)
    made.start_due(5, 1)
    made.looked(q.ref, q, q.blobs, 5)
    made.failed(fetch(p, 0), GONE, 4)

    assert made.start_due(6, 1) == [fetch(q, 0)]


def test_first_answer_after_an_outage_makes_all_due_but_not_a_key_that_fails_by_itself() -> None:
    p = release("p", "a", "b", "poison")
    made = table(p)
    all_missing(made, p)
    poison = fetch(p, 2)
    assert p.artifacts[2].path == "poison"
    made.failed(poison, DOWN, 1)
    made.store_answered(2)  # of something else, while the poison failed
    made.start_due(2, 10)
    made.failed(poison, DOWN, 3)
    for place in (0, 1):
        made.failed(fetch(p, place), DOWN, 3.5)
    assert made.in_outage

    made.store_answered(3.6)

    assert not made.in_outage
    assert set(made.start_due(3.6, 10)) == {fetch(p, 0), fetch(p, 1)}


def test_wanting_something_new_ends_every_back_off_and_wanting_the_same_does_not() -> None:
    p, q = release("p", "a"), release("q", "b")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), GONE, 0)

    made.want({p.ref}, 0.1)
    assert made.start_due(0.1, 10) == []
    made.want({p.ref, q.ref}, 0.1)
    assert set(made.start_due(0.1, 10)) == {Look(q.ref, None), fetch(p, 0)}


def test_retry_now_ends_every_back_off() -> None:
    p = release("p", "a")
    made = table(p)
    made.start_due(0, 10)
    made.failed(Look(p.ref, None), DOWN, 0)
    assert made.start_due(0.5, 10) == []

    made.retry_now(0.5)

    assert made.start_due(0.5, 10) == [Look(p.ref, None)]
    assert made.readiness().releases[p.ref].state is ReleaseState.UNAVAILABLE  # until it is known better


def test_release_that_is_not_wanted_any_more_is_forgotten_with_its_fetches() -> None:
    p, q = release("p", "a", "shared"), release("q", "shared")
    made = table(p, q)
    made.start_due(0, 10)
    made.looked(p.ref, p, p.blobs, 0)
    made.looked(q.ref, q, q.blobs, 0)

    made.want({q.ref}, 1)

    assert made.start_due(1, 10) == [fetch(q, 0)]
    assert set(made.readiness().releases) == {q.ref}
    made.looked(p.ref, p, p.blobs, 1)  # an answer to an older question
    assert set(made.readiness().releases) == {q.ref}


def test_ready_release_stops_being_ready_when_a_look_fails_or_finds_a_loss() -> None:
    p = release("p", "a")
    made = table(p)
    made.start_due(0, 10)
    made.looked(p.ref, p, [], 0)
    assert made.readiness().is_ready(p.ref)
    assert made.start_due(100, 10) == [Look(p.ref, p)]
    assert made.readiness().is_ready(p.ref)

    made.failed(Look(p.ref, p), Failure(ReleaseState.SYNCING, "disk"), 100)
    assert made.readiness().releases[p.ref].reason == "disk"

    made.looked(p.ref, p, p.blobs, 101)
    assert [item.path for item in made.readiness().releases[p.ref].missing] == ["a"]
    assert made.start_due(101, 10) == [fetch(p, 0)]


def test_worst_news_of_a_release_is_what_is_told() -> None:
    p = release("p", "a", "b", "c")
    made = table(p)
    all_missing(made, p)
    made.failed(fetch(p, 0), DOWN, 0)
    assert made.readiness().releases[p.ref].state is ReleaseState.UNAVAILABLE
    made.failed(fetch(p, 1), Failure(ReleaseState.CORRUPT, "wrong"), 0)
    assert made.readiness().releases[p.ref].state is ReleaseState.CORRUPT
    made.failed(fetch(p, 2), GONE, 0)
    assert made.readiness().releases[p.ref].state is ReleaseState.ABSENT


def test_nothing_wanted_is_ready_and_an_unwanted_release_is_not() -> None:
    made = table()

    assert made.readiness().all_ready
    assert not made.readiness().is_ready(release("p").ref)
