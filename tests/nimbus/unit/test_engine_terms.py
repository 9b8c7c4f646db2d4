"""A leader's records of its own term and of the previous one, and the information about the next leader."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from leader import FencedOutError
from nimbus.domain import writes as w
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.cluster.terms import (
    TERMS_KEPT,
    Adopted,
    Candidate,
    EndCause,
    FailoverTimes,
    Leader,
    Term,
    begun,
    ended,
    gap,
    in_words,
)
from nimbus.domain.commands import Abdicate, Abdication
from nimbus.domain.ids import RunId
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import ArchiveTerms, ResignLeadership
from nimbus.engine.events import TermsArchived
from nimbus.engine.term_upkeep import SEEN_EVERY_S
from tests.nimbus.engine_bench import ATTEMPT, NOW, RUN, START, WORKER, Bench

LEADER = Leader(id="s9", host="h", boot_id="b9", version="1")


def a_scheduler(name: str, boot_id: str, **changes: object) -> SchedulerInfo:
    found = SchedulerInfo(
        id=name,
        boot_id=boot_id,
        host=WORKER.host,
        hostname="h",
        address="http://h",
        pid=1,
        version="1",
        started_at=NOW,
        reported_at=NOW,
        role=ElectionRole.QUEUED,
        ready=True,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def terms_of(bench: Bench) -> dict[int, Term]:
    return bench.cluster.world.terms


def test_first_leader_says_that_there_is_no_record_before() -> None:
    bench = Bench()
    bench.decide()

    (term,) = terms_of(bench).values()
    assert (term.epoch, term.leader.id, term.before, term.gap_s, term.end) == (1, "s1", None, None, None)


def test_nothing_is_written_before_the_term_and_what_was_adopted_is_in_the_same_transaction() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()

    first, *later = bench.cluster.commits
    assert [type(write) for write in first] == [w.CreateTerm, w.PutTerm]
    assert not any(isinstance(write, w.CreateTerm | w.PutTerm) for commit in later for write in commit)


def test_successor_counts_what_it_found_and_what_it_gave_up() -> None:
    bench = Bench()
    bench.submit(START)
    bench.submit(replace(START, run_id=RunId("p-2")))
    bench.decide()
    bench.claim(has_heartbeat=False)
    bench.cluster.change(workers={})
    bench.elect(2)
    bench.decide()

    assert terms_of(bench)[2].adopted == Adopted(runs=2, claimed=1, unclaimed=1)
    bench.clocks.pass_s(40)
    bench.decide()
    bench.decide()
    assert bench.outcome() is Outcome.LOST
    bench.term.tend()
    assert terms_of(bench)[2].adopted == Adopted(runs=2, claimed=1, unclaimed=1, fenced=2)


def test_ends_that_came_without_a_leader_are_believed_and_counted() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()
    bench.claim()
    bench.end(ATTEMPT, Outcome.SUCCEEDED)
    bench.elect(2)
    bench.decide()

    assert terms_of(bench)[2].adopted == Adopted(runs=1, ended=1)
    assert bench.run(RUN).state.is_final


def test_successor_closes_the_term_of_a_leader_that_died_with_its_last_sign_of_life() -> None:
    bench = Bench()
    bench.decide()
    bench.clocks.pass_s(SEEN_EVERY_S)
    bench.term.tend()
    bench.clocks.pass_s(3)
    bench.elect(2)
    bench.decide()

    end = terms_of(bench)[1].end
    assert end is not None
    assert (end.cause, end.at, end.noted_by) == (EndCause.DIED, NOW + timedelta(seconds=SEEN_EVERY_S), 2)
    assert (terms_of(bench)[2].before, terms_of(bench)[2].gap_s) == (1, 3)


@pytest.mark.parametrize(
    ("boot_id", "cause", "reason"),
    [("b1", EndCause.LOST, "connection lost" + "!" * 485), ("another", EndCause.DIED, "")],
)
def test_successor_tells_a_leader_that_lives_from_one_that_was_started_again(
    boot_id: str, cause: EndCause, reason: str
) -> None:
    bench = Bench()
    bench.decide()
    bench.cluster.change(
        schedulers=(a_scheduler("s1", boot_id, last_abdication="connection lost" + "!" * 9999),)
    )
    bench.elect(2)
    bench.decide()

    end = terms_of(bench)[1].end
    assert end is not None
    assert (end.cause, end.reason) == (cause, reason)


def test_wish_that_was_recorded_is_the_cause_though_the_leader_could_not_close_its_term() -> None:
    bench = Bench()
    bench.submit(Abdicate(reason="update"), by="ann")
    bench.decide()
    bench.elect(2)
    bench.decide()

    end = terms_of(bench)[1].end
    assert end is not None
    assert (end.cause, end.reason, end.by) == (EndCause.RESIGNED, "update", "ann")


def test_leader_closes_its_own_term_once_and_a_deposed_one_does_not() -> None:
    bench = Bench()
    bench.decide()
    bench.clocks.pass_s(60)
    bench.term.upkeep.end(EndCause.STOPPED)
    closed = terms_of(bench)[1]
    bench.term.upkeep.end(EndCause.FAILED)
    bench.term.tend()
    deposed = bench.term
    bench.elect(2)
    bench.decide()

    assert closed.end is not None
    assert (closed.end.cause, closed.end.at) == (EndCause.STOPPED, NOW + timedelta(seconds=60))
    assert terms_of(bench)[1] == closed
    bench.elect(3)
    bench.decide()
    assert deposed._terms.own == closed
    second = bench.term
    bench.elect(4)
    with pytest.raises(FencedOutError):
        second.upkeep.end(EndCause.STOPPED)


def test_epochs_without_a_term_are_counted_and_a_clock_that_is_behind_makes_no_overlap() -> None:
    bench = Bench()
    bench.decide()
    bench.term.upkeep.end(EndCause.STOPPED)
    bench.clocks.wall -= timedelta(minutes=5)
    bench.elect(4)
    bench.decide()

    term = terms_of(bench)[4]
    assert (term.before, term.unrecorded, term.gap_s) == (1, 2, 0)
    assert term.began_at == NOW


def test_terms_beyond_those_that_are_kept_are_forgotten_once_history_has_them() -> None:
    bench = Bench()
    bench.decide()
    old = {number: ended(begun(LEADER, number, None, NOW), EndCause.STOPPED, NOW) for number in range(1, 203)}
    bench.cluster.change(terms=old)
    bench.elect(300)
    bench.decide()
    bench.clocks.pass_s(SEEN_EVERY_S)
    bench.term.tend()

    (effect,) = [effect for effect in bench.effects if isinstance(effect, ArchiveTerms)]
    assert [term.epoch for term in effect.terms] == [1, 2, 3]
    assert len(terms_of(bench)) == TERMS_KEPT + 3
    bench.term.apply((TermsArchived((1, 2, 3)),))
    bench.clocks.pass_s(SEEN_EVERY_S)
    bench.term.tend()
    assert len(terms_of(bench)) == TERMS_KEPT
    assert min(terms_of(bench)) == 4


def test_leader_goes_on_when_its_term_was_deleted_by_hand() -> None:
    bench = Bench()
    bench.decide()
    bench.cluster.change(terms={})
    bench.clocks.pass_s(SEEN_EVERY_S)
    bench.term.tend()
    bench.submit(START)
    bench.decide()

    assert bench.run().open_attempts() == (ATTEMPT,)


@pytest.mark.parametrize(
    ("to", "code"),
    [("nobody", "unknown_scheduler"), ("s1", "leads_already"), ("s2", "not_ready"), ("s3", "ok")],
)
def test_leader_hands_over_only_to_one_that_may_lead(to: str, code: str) -> None:
    bench = Bench()
    bench.cluster.change(
        schedulers=(
            a_scheduler("s1", "b1"),
            a_scheduler("s2", "b2", ready=False, lacks="p: absent"),
            a_scheduler("s3", "b3"),
        )
    )
    bench.elect(1)
    asked = bench.submit(Abdicate(reason="move", to=to), by="ann")
    bench.decide()

    assert bench.cluster.world.outcomes[asked].code == code
    resigned = [effect for effect in bench.effects if isinstance(effect, ResignLeadership)]
    if code == "ok":
        assert resigned == [ResignLeadership("move", "s3")]
        assert bench.cluster.world.abdication == Abdication(epoch=1, reason="move", to="s3", by="ann", at=NOW)
    else:
        assert resigned == []
    if code == "not_ready":
        message = bench.cluster.world.outcomes[asked].message
        assert message == "s2 cannot lead yet (p: absent): wait until it is ready."


def test_a_leader_whose_successor_left_the_queue_obeys_the_next_abdication() -> None:
    bench = Bench()
    bench.cluster.change(schedulers=(a_scheduler("s1", "b1"), a_scheduler("s3", "b3")))
    bench.elect(1)
    bench.submit(Abdicate(reason="move", to="s3"), by="ann")
    bench.decide()  # the election does not find s3 and drops the request, so this leader continues

    bench.submit(Abdicate(reason="move"), by="ann")
    bench.decide()

    resigned = [effect for effect in bench.effects if isinstance(effect, ResignLeadership)]
    assert resigned == [ResignLeadership("move", "s3"), ResignLeadership("move")]


@pytest.mark.parametrize(
    ("led_on_s", "boot_id", "cause"),
    [
        (SEEN_EVERY_S, "another", EndCause.HANDED_OVER),
        (60, "another", EndCause.DIED),
        (60, "b1", EndCause.LOST),
    ],
)
def test_a_wish_to_hand_over_is_no_cause_of_an_end_that_came_long_after_it(
    led_on_s: float, boot_id: str, cause: EndCause
) -> None:
    bench = Bench()
    bench.cluster.change(schedulers=(a_scheduler("s1", boot_id), a_scheduler("s3", "b3")))
    bench.elect(1)
    bench.submit(Abdicate(reason="move", to="s3"), by="ann")
    bench.decide()
    bench.clocks.pass_s(led_on_s)
    bench.term.tend()
    bench.elect(2)
    bench.decide()

    end = terms_of(bench)[1].end
    assert end is not None
    assert end.cause == cause


def candidate(name: str, *, ready: bool = True) -> Candidate:
    return Candidate(id=name, ready=ready, missing_count=0 if ready else 3)


def test_gap_is_made_of_the_time_to_notice_and_of_the_takeovers_that_were_measured() -> None:
    terms = [replace(begun(LEADER, 1, None, NOW), takeover_s=took) for took in (0.2, 0.1, 0.6, None)]
    times = FailoverTimes(session_timeout_s=10, has_sentinel=True)

    found = gap(times, terms)
    without = gap(replace(times, has_sentinel=False), terms)

    assert (found.expected_s, found.at_most_s, found.takeovers) == (0.2, 10.6, 3)
    assert (without.expected_s, without.at_most_s) == (10.2, 10.6)
    assert "the last 3 take-overs took 0.200 s (median), 0.600 s at most" in found.made_of
    assert gap(times, ()).expected_s is None
    assert "no take-over has been measured yet" in gap(times, ()).made_of
    assert in_words(candidate("b"), found, 1) == (
        "If the leader died now, b, which is ready, would lead after about 0.2 s and adopt 1 open attempt."
    )
    assert "it lacks 3 files, 0 B. It would adopt 2 open attempts" in in_words(
        candidate("b", ready=False), None, 2
    )
    absent = replace(candidate("b", ready=False), missing_count=0, lacks="p: absent")
    assert "b would be next, but it is not ready (p: absent). It would" in in_words(absent, None, 2)
    assert "it is not ready. It would" in in_words(replace(absent, lacks=""), None, 2)
    assert "nobody would lead" in in_words(None, None, 0)
    assert in_words(candidate("b"), None, 0, is_led=False) == (
        "Nobody leads now: b, which is ready, would lead and adopt 0 open attempts."
    )
    unknown = replace(candidate("b", ready=False), registered=False)
    assert "b would be next, but it is not registered" in in_words(unknown, None, 0)


def test_gap_of_a_successor_that_fetches_is_as_long_as_that_takes() -> None:
    terms = [replace(begun(LEADER, 1, None, NOW), takeover_s=0.5)]
    times = FailoverTimes(session_timeout_s=10, has_sentinel=False)
    fetches = replace(candidate("b", ready=False), missing_eta_s=95.0)

    found = gap(times, terms, fetches.ready_in_s or 0.0)

    assert (found.expected_s, found.at_most_s) == (95.5, None)
    assert gap(times, terms, 4.0).expected_s == 10.5, "it fetches while the death is not noticed yet"
    assert (
        "which take about 95 s at the present speed. It would adopt 2 open attempts after about 95.5 s"
        in (in_words(fetches, found, 2))
    )
    assert candidate("b", ready=False).ready_in_s is None
    assert candidate("b").ready_in_s == 0.0


def test_term_says_how_much_its_leader_has_decided() -> None:
    bench = Bench()
    bench.submit(START)
    bench.decide()
    bench.clocks.pass_s(SEEN_EVERY_S)
    bench.term.tend()
    before = terms_of(bench)[1].decisions
    bench.submit(replace(START, run_id=RunId("p-2")))
    bench.decide()
    bench.term.upkeep.end(EndCause.STOPPED)

    after = terms_of(bench)[1].decisions
    assert before is not None
    assert after is not None
    assert 0 < before < after
