"""Each law of the history checker: a history that breaks it is found, and a similar valid one is not."""

from __future__ import annotations

from datetime import timedelta

from tests.leader.election.history import Kind, Law, Moment
from tests.leader.election.laws import check

_BOUND = timedelta(seconds=10)


def _m(
    at: float,
    who: str,
    kind: Kind,
    epoch: int | None = None,
    *,
    until: float | None = None,
    order: int | None = None,
    boot: str = "",
) -> Moment:
    end = None if until is None else timedelta(seconds=until)
    return Moment(timedelta(seconds=at), who, kind, epoch, end, boot, order)


def _broken(*moments: Moment) -> list[Law]:
    return [violation.law for violation in check(list(moments), bound=_BOUND)]


def test_leaders_that_overlap_break_the_law() -> None:
    seen = [(1, "a", 1), (3, "a", 1), (2, "b", 2), (4, "b", 2)]

    assert _broken(*[_m(at, who, Kind.OBSERVED, epoch) for at, who, epoch in seen]) == [Law.ONE_LEADER]


def test_leader_that_encloses_another_breaks_the_law() -> None:
    seen = [(1, "a", 1), (5, "a", 1), (2, "b", 2)]

    assert _broken(*[_m(at, who, Kind.OBSERVED, epoch) for at, who, epoch in seen]) == [Law.ONE_LEADER]


def test_leaders_that_follow_one_another_are_allowed() -> None:
    seen = [(1, "a", 1), (2, "a", 1), (3, "b", 2), (4, "b", 2), (5, "a", 3)]

    assert _broken(*[_m(at, who, Kind.OBSERVED, epoch) for at, who, epoch in seen]) == []


def test_leaders_whose_intervals_only_touch_are_not_certainly_two() -> None:
    a = _m(1.0, "a", Kind.OBSERVED, 1, until=3.0)
    b = _m(2.0, "b", Kind.OBSERVED, 2, until=4.0)

    assert _broken(a, b) == []


def test_leader_asked_for_long_while_another_certainly_leads_breaks_the_law() -> None:
    asked_for_long = _m(1.0, "a", Kind.OBSERVED, 1, until=9.0)
    before, after = _m(0.5, "b", Kind.OBSERVED, 2, until=0.6), _m(10.0, "b", Kind.OBSERVED, 2, until=10.1)

    assert _broken(asked_for_long, before, after) == [Law.ONE_LEADER]


def test_two_starts_of_one_participant_are_two_leaders() -> None:
    old = [_m(1, "a", Kind.OBSERVED, 1, boot="x"), _m(3, "a", Kind.OBSERVED, 1, boot="x")]

    assert _broken(*old, _m(2, "a", Kind.OBSERVED, 2, boot="y")) == [Law.ONE_LEADER]


def test_overlap_is_excused_only_until_the_deposed_leader_can_know() -> None:
    deposed = _m(1.5, "a", Kind.DEPOSED, 1, until=3.0)
    seen = [_m(1, "a", Kind.OBSERVED, 1), _m(2, "b", Kind.OBSERVED, 2), _m(4, "b", Kind.OBSERVED, 2)]

    assert _broken(*seen, deposed, _m(2.9, "a", Kind.OBSERVED, 1)) == []
    assert _broken(*seen, deposed, _m(3.1, "a", Kind.OBSERVED, 1)) == [Law.ONE_LEADER]


def test_epoch_confirmed_twice_breaks_the_law() -> None:
    assert _broken(_m(1, "a", Kind.CONFIRMED, 1), _m(2, "b", Kind.CONFIRMED, 1)) == [Law.EPOCHS_RISE]


def test_epochs_may_begin_anew_after_a_wipe_but_not_for_who_saw_them() -> None:
    old, reborn = _m(1, "a", Kind.CONFIRMED, 5), _m(2, "", Kind.REBORN)

    assert _broken(old, reborn, _m(3, "b", Kind.CONFIRMED, 1)) == []
    fallen = _broken(old, _m(1.5, "a", Kind.REVOKED, 5), reborn, _m(3, "a", Kind.CONFIRMED, 1))
    assert fallen == [Law.EPOCHS_RISE]


def test_elected_twice_without_revoked_breaks_the_law() -> None:
    assert _broken(_m(1, "a", Kind.CONFIRMED, 1), _m(2, "a", Kind.CONFIRMED, 2)) == [Law.TOLD_IN_TURN]


def test_revoked_without_elected_breaks_the_law() -> None:
    elected, revoked = _m(1, "a", Kind.CONFIRMED, 1), _m(2, "a", Kind.REVOKED, 1)

    assert _broken(elected, revoked) == []
    assert _broken(elected, revoked, _m(3, "a", Kind.REVOKED, 1)) == [Law.TOLD_IN_TURN]


def test_death_of_the_process_needs_no_revoked() -> None:
    assert _broken(_m(1, "a", Kind.CONFIRMED, 1, boot="x"), _m(2, "a", Kind.CONFIRMED, 2, boot="y")) == []


def test_saying_leader_after_being_revoked_breaks_the_law() -> None:
    told = [_m(1, "a", Kind.CONFIRMED, 1), _m(2, "a", Kind.REVOKED, 1)]

    assert _broken(*told, _m(1.9, "a", Kind.OBSERVED, 1)) == []
    assert _broken(*told, _m(2.1, "a", Kind.OBSERVED, 1)) == [Law.REVOKED_IS_OVER]


def test_leading_before_the_guard_said_yes_breaks_the_law() -> None:
    refused, yes = _m(1, "a", Kind.REFUSED, 1), _m(2, "a", Kind.APPROVED, 2)

    assert _broken(refused, yes, _m(3, "a", Kind.OBSERVED, 2)) == []
    assert _broken(refused, yes, _m(3, "a", Kind.OBSERVED, 1)) == [Law.GUARDED]
    assert _broken(refused, yes, _m(1.5, "a", Kind.PUBLISHED, 2)) == [Law.GUARDED]
    assert _broken(_m(3, "b", Kind.OBSERVED, 1)) == []  # its guard's answers are not known


def test_write_accepted_after_a_newer_epoch_was_taken_breaks_the_law() -> None:
    taken, late = _m(1, "b", Kind.TAKEN, 2), _m(2, "a", Kind.WROTE, 1)

    assert _broken(taken, late) == [Law.FENCED]
    assert _broken(taken, _m(0.5, "a", Kind.WROTE, 1)) == []
    assert _broken(taken, _m(0.5, "a", Kind.WROTE, 1, until=2.0)) == []  # it may have been earlier


def test_transaction_ids_decide_where_times_do_not() -> None:
    taken = _m(1, "b", Kind.TAKEN, 2, until=3, order=10)

    assert _broken(taken, _m(2, "a", Kind.WROTE, 1, until=4, order=11)) == [Law.FENCED]
    assert _broken(taken, _m(2, "a", Kind.WROTE, 1, until=4, order=9)) == []


def test_nobody_leading_within_the_bound_breaks_the_law() -> None:
    healed, end = _m(1, "", Kind.HEALED), _m(12, "a", Kind.DENIED)

    assert _broken(healed, end) == [Law.SOMEBODY_LEADS]
    assert _broken(healed, end, _m(11, "a", Kind.OBSERVED, 1)) == []
    assert _broken(healed, end, _m(11.5, "a", Kind.OBSERVED, 1)) == [Law.SOMEBODY_LEADS]
    assert _broken(healed, end, _m(5, "a", Kind.FAULT)) == []  # another fault
    assert _broken(healed, _m(9, "a", Kind.DENIED)) == []  # ends too early to be checked


def test_orphan_breaks_the_law() -> None:
    assert _broken(_m(1, "a", Kind.ORPHAN)) == [Law.NO_ORPHANS]
