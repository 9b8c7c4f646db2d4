"""The state of a driver that is kept between two checks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from nimbus.domain.attempts.slots import Claim, Slots
from nimbus.worker.application.manager import DriverState, DriverStatus
from nimbus.worker.application.submitted import GONE_S, SILENT_S, Followed

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WAITING = DriverStatus(DriverState.WAITING, "SUBMITTED")
RUNNING = DriverStatus(DriverState.RUNNING, "Running")
GONE = DriverStatus(DriverState.GONE, "ERROR")
SUBMITTED = Slots(has_heartbeat=True)
CLAIMED = Slots(
    claim=Claim(attempt="r.t.1", claimed_at=NOW, nonce="n"), has_heartbeat=True, progress={"number": 1}
)


def followed() -> Followed:
    return Followed(attempt="r.t.1", driver="driver-1", since_s=0.0, ask_at_s=50.0)


def test_one_answer_that_a_driver_is_gone_counts_for_nothing_however_old_it_is() -> None:
    one = followed()

    one.take_report(GONE, 10.0)

    assert one.observed(SUBMITTED, 99.0).gone_for_s == 0.0
    assert one.ask_at_s == 10.0, "it is asked again at once"


def test_driver_is_gone_from_the_first_to_the_last_answer_that_says_so() -> None:
    one = followed()
    for now_s in (10.0, 12.0, 10.0 + GONE_S):
        one.ask_at_s = 50.0
        one.take_report(GONE, now_s)

    assert one.observed(SUBMITTED, 99.0).gone_for_s == GONE_S
    assert one.ask_at_s == 50.0, "there is no hurry any more"
    one.take_report(WAITING, 20.0)
    one.take_report(GONE, 22.0)
    assert one.observed(SUBMITTED, 99.0).gone_for_s == 0.0


def test_kill_is_repeated_after_pauses_that_grow_to_a_minute() -> None:
    one = followed()
    assert one.kill_is_due(0.0)
    assert one.ask_at_s == 0.0, "whether it helped is looked at soon"

    dues = [now_s for now_s in range(1, 600) if one.kill_is_due(float(now_s))]

    assert dues[0] > 1
    assert len(dues) < 25
    assert 30 <= dues[-1] - dues[-2] <= 61


def test_reason_to_kill_is_new_once() -> None:
    one = followed()

    assert [one.is_new(why) for why in ("a", "a", "b", "b")] == [True, False, True, False]


def test_driver_that_waits_is_told_in_the_words_of_the_cluster() -> None:
    one = followed()
    assert one.progress(SUBMITTED, 5.0) == {}
    one.take_report(WAITING, 5.0)

    assert one.progress(SUBMITTED, 5.0) == {"cluster": "SUBMITTED"}


def test_driver_that_has_claimed_is_told_of_while_it_is_not_heard() -> None:
    one = followed()
    one.take_report(RUNNING, 5.0)
    one.take_slots(CLAIMED, 5.0)

    assert one.progress(CLAIMED, 4.0 + SILENT_S) == {}
    assert one.progress(CLAIMED, 5.0 + SILENT_S) == {"silent": "Running"}
    one.take_slots(replace(CLAIMED, progress={"number": 2}), 100.0)
    assert one.progress(CLAIMED, 101.0) == {}
