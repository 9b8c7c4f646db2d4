"""What the leader does about an open attempt, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Holder, Slots
from nimbus.domain.attempts.supervision import (
    Action,
    Close,
    FenceClaim,
    FenceEnd,
    Idle,
    Reap,
    Timings,
    supervise,
)
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.ids import HostId, WorkerId
from nimbus.domain.runs.task_run import Attempt, Outcome

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TIMINGS = Timings(
    claim_timeout=timedelta(minutes=2),
    beat_grace=timedelta(seconds=3),
    host_lost_after=timedelta(seconds=30),
)
ATTEMPT = Attempt(number=1, worker=WorkerId("w1"), opened_at=NOW, opened_by_epoch=1)
CLAIM = Claim(attempt="r.t.1", worker=WorkerId("w1"), host=HostId("h1"), pid=7, start_ticks=9, claimed_at=NOW)
END = End(attempt="r.t.1", outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW)


def worker(name: str, host: str) -> WorkerInfo:
    return WorkerInfo(
        id=WorkerId(name),
        host=HostId(host),
        hostname=host,
        pid=1,
        slots=1,
        version="1",
        started_at=NOW,
        reported_at=NOW,
    )


W1, NEIGHBOUR, STRANGER = worker("w1", "h1"), worker("w0", "h1"), worker("w2", "h2")


def judge(
    slots: Slots,
    *workers: WorkerInfo,
    silent_s: float | None = None,
    after_s: float = 0,
    attempt: Attempt = ATTEMPT,
) -> Action:
    now = NOW + timedelta(seconds=after_s)
    silent_for = None if silent_s is None else timedelta(seconds=silent_s)
    return supervise(attempt, slots, silent_for=silent_for, workers=workers, timings=TIMINGS, now=now)


def test_an_end_is_believed_whatever_else_is_known() -> None:
    assert judge(Slots(claim=CLAIM, end=END), silent_s=999) == Close(END)
    assert judge(Slots(end=END), silent_s=999) == Close(END)


def test_an_unclaimed_attempt_is_left_to_its_live_worker_for_the_claim_timeout() -> None:
    assert judge(Slots(), W1, after_s=119) == Idle(
        "worker w1 is preparing it since 2026-03-01 12:00:00Z", NOW + timedelta(minutes=2)
    )
    assert isinstance(judge(Slots(), W1, after_s=120), FenceClaim)


def test_an_unclaimed_attempt_of_a_dead_worker_is_fenced_soon() -> None:
    assert judge(Slots(), STRANGER, silent_s=2) == Idle(
        "worker w1, which has it, is not registered: it is given to another one soon",
        after=timedelta(seconds=1),
    )
    assert isinstance(judge(Slots(), STRANGER, silent_s=3), FenceClaim)


def test_a_beating_attempt_is_adopted_though_its_worker_is_dead() -> None:
    assert judge(Slots(claim=CLAIM, has_heartbeat=True), after_s=9999) == Idle("")


def test_a_silent_attempt_is_looked_for_by_a_worker_on_its_own_host() -> None:
    silent = Slots(claim=CLAIM)

    assert isinstance(judge(silent, W1, STRANGER, silent_s=1), Idle)
    assert judge(silent, NEIGHBOUR, STRANGER, silent_s=3) == Reap(WorkerId("w0"), CLAIM)


def test_its_own_worker_is_asked_before_a_neighbour() -> None:
    assert judge(Slots(claim=CLAIM), NEIGHBOUR, W1, silent_s=3) == Reap(WorkerId("w1"), CLAIM)


def test_a_worker_that_was_asked_is_given_time_while_it_lives() -> None:
    asked = replace(ATTEMPT, reaper=WorkerId("w0"))

    assert isinstance(judge(Slots(claim=CLAIM), NEIGHBOUR, silent_s=999, attempt=asked), Idle)
    assert judge(Slots(claim=CLAIM), W1, silent_s=999, attempt=asked) == Reap(WorkerId("w1"), CLAIM)


def test_a_lost_host_is_told_from_a_lost_process_and_waits_longer() -> None:
    silent = Slots(claim=CLAIM)

    assert isinstance(judge(silent, STRANGER, silent_s=29), Idle)
    lost = judge(silent, STRANGER, silent_s=30)
    assert isinstance(lost, FenceEnd)
    assert "host h1 is lost" in lost.why


def test_a_worker_on_another_boot_of_the_host_cannot_speak_for_it() -> None:
    rebooted = replace(W1, host=HostId("h1-second-boot"))

    assert isinstance(judge(Slots(claim=CLAIM), rebooted, silent_s=30), FenceEnd)


def test_a_fence_that_was_left_half_done_is_finished() -> None:
    fenced = Slots(claim=Claim(attempt="r.t.1", fenced_by_epoch=3, claimed_at=NOW))

    assert judge(fenced, W1) == FenceEnd("closed before a driver claimed it", Outcome.FENCED)


IN_CLUSTER = replace(CLAIM, holder=Holder.APPLICATION, driver=ClusterDriver(target="big", id="driver-1"))
ABLE = replace(STRANGER, targets={"big": 4}, submits=("big",))
ONLY_RUNS = replace(NEIGHBOUR, targets={"big": 4})
"""It has the target only for drivers on its own host."""


def test_submitted_attempt_waits_for_its_cluster_beyond_the_claim_timeout() -> None:
    submitted = Slots(submitted=IN_CLUSTER.driver, has_heartbeat=True)

    assert isinstance(judge(submitted, W1, after_s=9999), Idle)


def test_submitted_attempt_that_nobody_follows_is_taken_up_by_a_worker_with_its_target() -> None:
    submitted = Slots(submitted=IN_CLUSTER.driver)

    assert isinstance(judge(submitted, W1, ABLE, silent_s=2, after_s=9999), Idle)
    assert judge(submitted, W1, ABLE, silent_s=3, after_s=9999) == Reap(WorkerId("w2"), None)
    assert isinstance(judge(submitted, W1, silent_s=999, after_s=9999), Idle)


def test_driver_in_a_cluster_that_nobody_follows_is_looked_for_by_a_worker_with_its_target() -> None:
    silent = Slots(claim=IN_CLUSTER)

    assert isinstance(judge(silent, W1, ABLE, silent_s=2), Idle)
    assert judge(silent, W1, ABLE, ONLY_RUNS, silent_s=3) == Reap(WorkerId("w2"), IN_CLUSTER)


def test_driver_in_a_cluster_is_never_fenced_for_want_of_a_worker() -> None:
    action = judge(Slots(claim=IN_CLUSTER), W1, silent_s=9999)

    assert isinstance(action, Idle)
    assert "target big" in action.why


def test_worker_that_looks_for_a_driver_in_a_cluster_is_replaced_when_it_dies() -> None:
    silent, asked = Slots(claim=IN_CLUSTER), replace(ATTEMPT, reaper=WorkerId("w2"))

    assert isinstance(judge(silent, ABLE, silent_s=999, attempt=asked), Idle)
    another = replace(ABLE, id=NEIGHBOUR.id)
    assert judge(silent, another, silent_s=999, attempt=asked) == Reap(WorkerId("w0"), IN_CLUSTER)
