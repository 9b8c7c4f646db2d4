"""The common coverage of intervals equals a check of every moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.starts.upstream import gaps

START = datetime(2026, 3, 1, tzinfo=UTC)
LAST = 12


@st.composite
def intervals(draw: st.DrawFn) -> DataInterval:
    start = draw(st.integers(0, LAST - 1))
    end = draw(st.integers(start + 1, LAST))
    return DataInterval(start=START + timedelta(hours=start), end=START + timedelta(hours=end))


def within(interval: DataInterval, hour: int) -> bool:
    return interval.start <= START + timedelta(hours=hour) < interval.end


@given(intervals(), st.lists(intervals(), max_size=8))
def test_gaps_are_the_moments_that_no_interval_covers(
    wanted: DataInterval, covered: list[DataInterval]
) -> None:
    found = gaps(wanted, covered)

    bare = [
        hour for hour in range(LAST) if within(wanted, hour) and not any(within(c, hour) for c in covered)
    ]
    assert [hour for hour in range(LAST) for gap in found if within(gap, hour)] == bare
    assert all(gap.start < gap.end for gap in found)
    assert all(one.end < other.start for one, other in pairwise(found))
