"""Metrics of a participant: counted from its journal, read from its status."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest

from leader import ElectionStatus, FencingToken, Leadership, Participant, Phase, Verdict
from leader.core.latch import model as latch_m
from leader.core.participant import model as m
from leader.journal import DeferredJournal, Entry, Granted, Judged, Move, Revoked
from leader.metrics import ElectionMetrics

MS = timedelta(milliseconds=1)


class Deaf:
    """A journal that only counts what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def record(self, entry: Entry) -> None:
        self.told.append(type(entry).__name__)


class Leader:
    """One that leads."""

    def is_leader(self) -> bool:
        return True

    def status(self) -> ElectionStatus:
        return ElectionStatus(
            Phase.LEADING, epoch=7, position=0, proof_age=250 * MS, time_left=6 * timedelta(seconds=1)
        )


def test_what_the_journal_hears_is_counted_and_passed_on() -> None:
    registry, deaf = CollectorRegistry(), Deaf()
    metrics = ElectionMetrics(registry, deaf)

    term = Leadership(7, FencingToken("/e", 0, 7), Participant("a"))
    metrics.record(Move("participant", m.Guarding(term), m.Leading(term), m.GuardSaid(7, Verdict(True))))
    metrics.record(Judged(7, Verdict(True), 2 * MS))
    metrics.record(Judged(7, Verdict(False), 2 * MS))
    metrics.record(Granted(7, 3 * MS))
    metrics.record(Revoked(7, "closed"))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("leader_transitions_total", machine="participant", now="Leading", on="GuardSaid") == 1
    assert value("leader_guard_verdicts_total", ready="no") == 1
    assert value("leader_granted_total") == value("leader_revoked_total") == 1
    assert value("leader_epoch") == 7
    assert value("leader_confirm_duration_seconds_sum") == 0.003
    assert deaf.told == ["Move", "Judged", "Judged", "Granted", "Revoked"]


def test_states_and_events_keep_their_names_in_logs_and_metrics_whatever_their_classes_are_called() -> None:
    def names(of: object) -> set[str]:
        things = [kind.__new__(kind) for kind in get_args(of)]
        return {
            name for it in things for move in [Move("", it, it, it)] for name in (move.was, move.now, move.on)
        }

    assert names(latch_m.State) == {
        "Latent", "Joining", "Waiting", "Claiming", "Holding", "Suspended", "Withdrawing", "Closed",
    }  # fmt: skip
    assert names(m.State) == {
        "Outside", "InLine", "Guarding", "Leading", "Draining", "Leaving", "BackingOff", "Closed",
    }  # fmt: skip
    assert names(latch_m.Event) == {
        "Started", "LinkUp", "LinkDown", "SessionGone", "WatchFired", "NodeGone", "Due", "CloseAsked",
        "Joined", "SawSelf", "LatchGone", "Claimed", "Postponed", "Barred", "Proven", "Refused",
        "CallFailed", "Withdrawn",
    }  # fmt: skip
    assert names(m.Event) == {
        "AddAsked", "RemoveAsked", "CloseAsked", "AbdicationAsked", "Poked", "LatchGained", "LatchLost",
        "LatchVetoed", "LatchEnded", "GuardSaid", "Drained", "Published", "Refused", "WatchFired", "Due",
        "CallFailed", "Crashed",
    }  # fmt: skip


def test_gauges_are_read_when_somebody_looks() -> None:
    registry = CollectorRegistry()
    ElectionMetrics(registry, Deaf()).watch(Leader())

    page = generate_latest(registry).decode()

    assert "leader_is_leader 1.0" in page
    assert "leader_queue_position 0.0" in page
    assert "leader_proof_age_seconds 0.25" in page
    assert "leader_time_left_seconds 6.0" in page
    assert "leader_paused 0.0" in page


def test_a_deferred_journal_keeps_the_order_and_survives_one_that_raises() -> None:
    deaf = Deaf()

    class Raises(Deaf):
        def record(self, entry: Entry) -> None:
            if isinstance(entry, Granted):
                raise OSError("disk full")
            deaf.record(entry)

    journal = DeferredJournal(Raises())
    journal.record(Granted(1, MS))
    journal.record(Revoked(1, "closed"))
    assert not journal.empty
    assert deaf.told == []

    journal.flush()

    assert journal.empty
    assert deaf.told == ["Revoked"]


def test_why_says_what_keeps_a_participant_from_leading() -> None:
    status = ElectionStatus(
        Phase.QUEUED,
        position=2,
        predecessor="_c_x-latch-0000000003",
        last_verdict=Verdict(False, ("file 7 is missing",)),
        last_abdication="file 7 is missing",
        trouble="no answer",
        everybody_declines=True,
        paused="migration",
    )

    why = status.why()

    for words in (
        "is in the queue",
        "position 2 in the queue, behind _c_x-latch-0000000003",
        "elections are paused: migration",
        "every participant's guard says no",
        "the guard last said no: file 7 is missing",
        "trouble: no answer",
    ):
        assert words in why
