"""Laws of what an observer knows, against random histories of readings, breaks and returns."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from leader.flink.view import Knowledge, Sighting, ViewState

AT = timedelta(seconds=1)

sightings = st.builds(
    Sighting,
    id=st.sampled_from("ab"),
    address=st.none() | st.just("h:1"),
    epoch=st.integers(0, 4),
    session=st.just("0x1"),
    created_zxid=st.integers(0, 4),
)
happenings = st.one_of(
    st.tuples(st.just("saw"), st.none() | sightings),
    st.tuples(st.sampled_from(["doubted", "forgot"]), st.none()),
)


def _after(known: Knowledge, what: str, sighting: Sighting | None) -> Knowledge:
    if what == "saw":
        return known.saw(sighting, AT)
    return known.doubted("why") if what == "doubted" else known.forgot("why", AT)


@given(st.lists(happenings, max_size=30))
def test_views_never_go_backwards_and_unknown_names_nobody(
    history: list[tuple[str, Sighting | None]],
) -> None:
    known = Knowledge.none(AT)
    highest, epoch = (-1, -1), -1
    for what, sighting in history:
        before, known = known, _after(known, what, sighting)
        view = known.view
        if view.state is ViewState.CURRENT:
            assert what == "saw"
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


@given(st.lists(happenings, max_size=30), sightings)
def test_a_reading_that_is_not_older_is_always_believed(
    history: list[tuple[str, Sighting | None]], newest: Sighting
) -> None:
    known = Knowledge.none(AT)
    for what, sighting in history:
        known = _after(known, what, sighting)
    read = known.saw(newest, AT)

    believed = (newest.epoch, newest.created_zxid) >= known.highest
    assert (read.view.state is ViewState.CURRENT) == believed
    assert read.view.id == (newest.id if believed else None)
