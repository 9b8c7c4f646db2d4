"""Readiness on a real ZooKeeper: what others see, who yields, and who must lead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from leader import Verdict, next_in_line
from tests.leader.integration.curator.participants import Participants

Eventually = Callable[..., None]
NO = Verdict(False, ("not synced",))
DEGRADED = Verdict(True, ("release 3 is nowhere",), degraded=True)


def test_a_change_of_readiness_is_seen_by_the_others_and_changes_who_is_next(
    participants: Participants, eventually: Eventually
) -> None:
    leader, first, second = participants.queued(eventually, "a", "b", "c")
    eventually(leader.queue.is_leader)
    first.queue.publish_readiness(False, missing=2, missing_bytes=10, reasons=("2 files",))
    second.queue.publish_readiness(True)

    def seen() -> dict[str, int]:
        views = leader.queue.get_all_participants()
        return {view.participant.id: view.member.rank.missing for view in views if view.member is not None}

    eventually(lambda: seen() == {"a": 0, "b": 2, "c": 0})
    following = next_in_line(leader.queue.get_all_participants())
    assert following is not None
    assert following.participant.id == "c"

    leader.queue.close(timedelta(seconds=30))
    eventually(second.queue.is_leader, what="the ready one leads")
    assert first.told == []
    assert "yields to c" in (first.queue.status().last_abdication or "")


@pytest.mark.parametrize("verdict", [NO, DEGRADED])
def test_who_lacks_something_does_not_lead_while_another_is_ready_though_it_declines(
    participants: Participants, eventually: Eventually, verdict: Verdict
) -> None:
    ready = participants.candidate("ready")
    ready.guard = lambda: NO
    ready.queue.publish_readiness(True)
    ready.queue.add_to_leader_lock_queue()
    eventually(lambda: ready.queue.status().last_verdict == NO)
    lacks = participants.candidate("lacks")
    lacks.guard = lambda: verdict
    lacks.queue.add_to_leader_lock_queue()

    eventually(lambda: lacks.queue.status().last_abdication is not None, what="it declines, or is refused")
    assert lacks.told == []
    if verdict is DEGRADED:
        assert "ready is ready" in lacks.queue.status().why()
        ready.queue.publish_readiness(False)
        eventually(lacks.queue.is_leader, what="nobody is ready now")


def test_the_best_of_those_that_decline_is_forced_to_lead(
    participants: Participants, eventually: Eventually
) -> None:
    made = [
        participants.candidate(
            name, guard_timeout=timedelta(seconds=1), forced_takeover_after=timedelta(seconds=2)
        )
        for name in ("far", "near")
    ]
    for one, missing in zip(made, (9, 1), strict=True):
        one.guard = lambda: NO
        one.queue.publish_readiness(False, missing=missing)
        one.queue.add_to_leader_lock_queue()

    eventually(made[1].queue.is_leader, within_s=60, what="the one that lacks least leads")
    assert made[0].told == []
