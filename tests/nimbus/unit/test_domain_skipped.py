"""The list of skipped fire times: it grows by entries, and is limited."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nimbus.domain.pipelines.catalog import MAX_LISTED, SkippedFires, Skips

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hours(*numbers: int) -> tuple[datetime, ...]:
    return tuple(NOW + number * HOUR for number in numbers)


def test_fire_times_that_follow_for_the_same_reason_make_one_entry() -> None:
    skips = Skips().with_fires(hours(1, 2), "late", after=NOW, now=NOW + 5 * HOUR)
    skips = skips.with_fires(hours(3, 4), "late", after=NOW + 2 * HOUR, now=NOW + 6 * HOUR)

    entry = SkippedFires(first=NOW + HOUR, last=NOW + 4 * HOUR, count=4, reason="late", at=NOW + 6 * HOUR)
    assert skips == Skips(total=4, listed=(entry,))


def test_another_reason_or_a_run_between_makes_another_entry() -> None:
    skips = Skips().with_fires(hours(1), "late", after=NOW, now=NOW)
    skips = skips.with_fires(hours(2), "refused", after=NOW + HOUR, now=NOW)
    skips = skips.with_fires(hours(4), "refused", after=NOW + 3 * HOUR, now=NOW)

    assert [(entry.reason, entry.count) for entry in skips.listed] == [
        ("late", 1),
        ("refused", 1),
        ("refused", 1),
    ]


def test_list_is_bounded_and_the_total_is_not() -> None:
    skips = Skips()
    for number in range(0, 200, 2):
        skips = skips.with_fires(hours(number), "x" * 9000, after=NOW + (number - 1) * HOUR, now=NOW)

    assert (skips.total, len(skips.listed)) == (100, MAX_LISTED)
    assert skips.listed[-1].last == NOW + 198 * HOUR
    assert len(skips.listed[0].reason) < 600


def test_no_fire_times_change_nothing() -> None:
    assert Skips().with_fires((), "late", after=NOW, now=NOW) == Skips()
