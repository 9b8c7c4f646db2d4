"""Laws of what is known of a leader, checked with random histories of reads, losses and reconnects."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from leader.flink.view import Knowledge, LeaderView, ViewState

AT = timedelta(seconds=1)

NOBODY = LeaderView(ViewState.CURRENT, AT)

leaders = st.builds(
    LeaderView,
    state=st.just(ViewState.CURRENT),
    as_of=st.just(AT),
    id=st.sampled_from("ab"),
    address=st.none() | st.just("h:1"),
    epoch=st.integers(0, 4),
    session=st.just("0x1"),
)
readings = st.tuples(leaders, st.integers(0, 4))
happenings = st.one_of(
    st.tuples(st.just("read"), readings | st.just((NOBODY, 0))),
    st.tuples(st.sampled_from(["doubted", "forgot"]), st.just((NOBODY, 0))),
)
History = list[tuple[str, tuple[LeaderView, int]]]


def _after(known: Knowledge, what: str, reading: tuple[LeaderView, int]) -> Knowledge:
    if what == "read":
        return known.read(*reading)
    return known.doubted("why") if what == "doubted" else known.forgot("why", AT)


@given(st.lists(happenings, max_size=30))
def test_views_never_go_backwards_and_unknown_names_nobody(history: History) -> None:
    known = Knowledge.none(AT)
    highest, epoch = (-1, -1), -1
    for what, reading in history:
        before, known = known, _after(known, what, reading)
        view = known.view
        if view.state is ViewState.CURRENT:
            assert what == "read"
        if view.state is ViewState.STALE:
            assert what == "doubted"
            assert before.view.state in (ViewState.CURRENT, ViewState.STALE)
        if view.state is not ViewState.CURRENT:
            assert view.reason
        if view.state is ViewState.UNKNOWN:
            assert (view.id, view.address, view.epoch, view.session) == (None, None, None, None)
        assert known.highest >= highest
        highest = known.highest
        if view.epoch is not None:
            assert view.epoch >= epoch
            epoch = view.epoch


@given(st.lists(happenings, max_size=30), readings)
def test_a_reading_that_is_not_older_is_always_believed(
    history: History, newest: tuple[LeaderView, int]
) -> None:
    known = Knowledge.none(AT)
    for what, reading in history:
        known = _after(known, what, reading)
    view, created_zxid = newest
    after = known.read(view, created_zxid)

    believed = view.epoch is not None and (view.epoch, created_zxid) >= known.highest
    assert (after.view.state is ViewState.CURRENT) == believed
    assert after.view.id == (view.id if believed else None)
