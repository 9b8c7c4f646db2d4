"""The calls in SQLite are complete: they implement every call of the other store."""

from __future__ import annotations

from nimbus.adapters.sqlite.calls import SqliteCalls
from nimbus.adapters.zookeeper.calls import Calls


def test_every_call_is_answered_but_those_that_are_made_of_others() -> None:
    public = {name for name in vars(Calls) if not name.startswith("_")}

    assert public - set(vars(SqliteCalls)) == {"records"}
