"""Decisions about an attempt that was submitted to a cluster, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Holder, Slots
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.application.manager import DriverState, DriverStatus
from nimbus.worker.application.submitted import (
    END_GRACE_S,
    GONE_S,
    HEARD_S,
    Action,
    EndAs,
    EndDriver,
    GoOn,
    Observed,
    StopFollowing,
    decide,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NEVER = float("inf")
CLAIM = Claim(
    attempt="r.t.1",
    holder=Holder.APPLICATION,
    claimed_at=NOW,
    nonce="n",
    driver=ClusterDriver(target="big", id="driver-1"),
)
END = End(attempt="r.t.1", outcome=Outcome.SUCCEEDED, written_by="driver", ended_at=NOW)
WAITING = DriverStatus(DriverState.WAITING, "SUBMITTED")
RUNNING = DriverStatus(DriverState.RUNNING, "RUNNING")
GONE = DriverStatus(DriverState.GONE, "ERROR: not found after master recovery")
UNKNOWN = DriverStatus(DriverState.UNKNOWN, "no master answers")
SUBMITTED = Observed(
    slots=Slots(has_heartbeat=True),
    report=WAITING,
    gone_for_s=-NEVER,
    heard_for_s=NEVER,
    ended_for_s=0.0,
    stopping_for_s=None,
    waiting_for_s=5.0,
)
CLAIMED = replace(SUBMITTED, slots=Slots(claim=CLAIM, has_heartbeat=True), report=RUNNING, heard_for_s=1.0)
ENDED = replace(CLAIMED, slots=Slots(claim=CLAIM, end=END))
LOST = replace(CLAIMED, report=GONE, gone_for_s=GONE_S, heard_for_s=HEARD_S)


def decided(seen: Observed) -> Action:
    return decide(seen, stop_grace_s=20.0, queue_timeout_s=3600.0)


@pytest.mark.parametrize("report", [WAITING, UNKNOWN, None])
def test_driver_that_waits_is_left_alone_within_the_queue_timeout(report: DriverStatus | None) -> None:
    assert decided(replace(SUBMITTED, report=report, waiting_for_s=3600.0)) == GoOn()


def test_driver_that_waits_longer_is_given_up_with_the_words_of_the_cluster() -> None:
    answer = decided(replace(SUBMITTED, waiting_for_s=3601.0))

    assert answer == EndAs("its driver did not start within 3600 s: the cluster says SUBMITTED")


def test_queue_timeout_is_over_once_the_driver_has_claimed() -> None:
    assert decided(replace(CLAIMED, waiting_for_s=99_999.0)) == GoOn()


@pytest.mark.parametrize("report", [RUNNING, WAITING, UNKNOWN, None])
def test_silence_of_a_driver_alone_never_ends_its_attempt(report: DriverStatus | None) -> None:
    assert decided(replace(CLAIMED, report=report, heard_for_s=99_999.0)) == GoOn()


def test_driver_is_lost_when_the_cluster_says_so_for_long_and_it_is_not_heard() -> None:
    answer = decided(LOST)

    assert isinstance(answer, EndAs)
    assert not answer.stopped
    assert "not found after master recovery" in answer.why
    assert decided(replace(LOST, gone_for_s=GONE_S - 0.1)) == GoOn(), "its END may be on the way"
    assert decided(replace(LOST, heard_for_s=HEARD_S - 0.1)) == GoOn(), "the cluster is wrong"


def test_driver_that_ended_before_its_claim_is_told_so() -> None:
    answer = decided(replace(LOST, slots=Slots(has_heartbeat=True)))

    assert isinstance(answer, EndAs)
    assert answer.why.startswith("its driver ended before it could claim the attempt")


def test_driver_that_does_not_obey_a_stop_is_killed_and_counts_as_stopped() -> None:
    assert decided(replace(CLAIMED, stopping_for_s=20.0)) == GoOn()
    assert decided(replace(CLAIMED, stopping_for_s=20.1)) == EndDriver("it did not obey a stop")
    answer = decided(replace(LOST, stopping_for_s=30.0))
    assert isinstance(answer, EndAs)
    assert answer.stopped


@pytest.mark.parametrize("report", [UNKNOWN, RUNNING, WAITING, None])
def test_stopped_attempt_is_closed_when_its_driver_is_not_heard_whatever_the_cluster_says(
    report: DriverStatus | None,
) -> None:
    """The API server reports a pod on a dead node as `Running` without end."""
    silent = replace(CLAIMED, report=report, heard_for_s=HEARD_S, stopping_for_s=80.1)

    answer = decided(silent)

    assert isinstance(answer, EndAs)
    assert answer.stopped
    assert decided(replace(silent, heard_for_s=HEARD_S - 1)) == EndDriver("it did not obey a stop")
    assert decided(replace(silent, stopping_for_s=79.0)) == EndDriver("it did not obey a stop")


def test_driver_gets_time_to_go_after_its_end_and_is_then_killed() -> None:
    assert decided(replace(ENDED, ended_for_s=END_GRACE_S)) == GoOn()
    assert decided(replace(ENDED, ended_for_s=END_GRACE_S + 1)) == EndDriver("its attempt has ended")
    assert decided(replace(ENDED, report=GONE)) == StopFollowing()
