"""A run stays with the release that it started with."""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain import writes as w
from nimbus.domain.ids import AttemptId, ReleaseDigest
from nimbus.domain.run import Outcome
from nimbus.domain.slots import End, Slots
from nimbus.domain.workers import AssignmentKind
from nimbus.engine.facts import Facts
from nimbus.engine.rules import next_decision, next_wakeup
from tests.unit.test_engine_rules import DIGEST, NAME, NEWER, NOW, RECORD, SPEC, START, a_worker, facts


def ordered(known: Facts) -> tuple[str, ReleaseDigest, Facts]:
    """Decide until a worker gets an order; the attempt that it names, its release, and what is known then."""
    now = NOW
    for _ in range(20):
        decision = next_decision(known, now)
        if decision is None:
            now = next_wakeup(known, now) or now
            continue
        known = decision.facts
        for write in decision.writes:
            if isinstance(write, w.Assign) and write.assignment.kind is AssignmentKind.RUN:
                return write.assignment.attempt, write.assignment.release, known
    raise AssertionError("no order")


def test_retry_under_a_new_leader_uses_the_release_of_the_run_when_another_is_active_by_then() -> None:
    attempt, release, known = ordered(facts(START, workers=(a_worker("w1"), a_worker("w2"))))
    assert (attempt, release) == ("p-1.a.1", DIGEST)

    lost = End(attempt=attempt, outcome=Outcome.LOST, written_by="worker", ended_at=NOW)
    activated = replace(RECORD, published=NEWER, release=NEWER, spec=replace(SPEC, tasks=()))
    later = replace(
        known, epoch=4, pipelines={NAME: activated}, slots={AttemptId.parse(attempt): Slots(end=lost)}
    )

    attempt, release, _ = ordered(later)
    assert (attempt, release) == ("p-1.a.2", DIGEST)
