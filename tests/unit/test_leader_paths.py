"""Paths of an election."""

from __future__ import annotations

from leader.protocol.paths import ElectionPaths


def test_paths_of_one_root_are_equal_and_name_it() -> None:
    one, same, other = ElectionPaths("/e"), ElectionPaths("/e"), ElectionPaths("/f")

    assert one == same
    assert one != other
    assert one != "/e"
    assert len({one, same, other}) == 2
    assert repr(one) == "ElectionPaths('/e')"
