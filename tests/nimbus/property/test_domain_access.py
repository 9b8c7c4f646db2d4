"""Laws of roles and grants."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.cluster.access import (
    AccessGrant,
    AccessRole,
    Principal,
    PrincipalSource,
    Thing,
    grant_on,
    holders,
    role_on,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
names = st.sampled_from(("finance_sums", "finance", "finances", "sums", "sales_sums"))
people = st.sampled_from(("ada", "bob", "finance", "sales"))
roles = st.sampled_from(tuple(AccessRole))
things = st.builds(Thing, st.sampled_from(("pipeline", "dataset", "variable")), names, st.none() | people)
places = st.one_of(
    st.builds("{}:{}".format, st.sampled_from(("pipeline", "dataset", "variable")), names),
    st.builds("team:{}".format, people),
    st.sampled_from(("finance_*", "finance*", "s*")),
)
grants = st.lists(st.builds(AccessGrant, who=people, role=roles, on=places, at=st.just(NOW)), max_size=6)
principals = st.builds(
    Principal,
    name=people,
    role=roles,
    source=st.just(PrincipalSource.TOKEN),
    teams=st.lists(people, max_size=2).map(tuple),
)


def covers(on: str, thing: Thing) -> bool:
    """The words of the documentation, spelled differently."""
    if on[-1] == "*":
        return thing.name[: len(on) - 1] == on[:-1]
    kind, name = on.split(":")
    return (kind, name) in {(thing.kind, thing.name), ("team", thing.owner)}


@given(principals, things, grants)
def test_role_on_something_is_the_highest_of_the_own_and_of_the_grants_that_cover_it(
    who: Principal, thing: Thing, given_: list[AccessGrant]
) -> None:
    fitting = [one.role for one in given_ if one.who in {who.name, *who.teams} and covers(one.on, thing)]

    assert role_on(who, thing, given_) == max((who.role, *fitting), key=list(AccessRole).index)
    assert role_on(who, None, given_) is who.role


@given(principals, things, grants, people, places)
def test_grants_to_others_and_on_other_things_change_nothing(
    who: Principal, thing: Thing, given_: list[AccessGrant], other: str, on: str
) -> None:
    more = AccessGrant(who=other, role=AccessRole.AUTHOR, on=on, at=NOW)
    if not who.owns(other) or not covers(on, thing):
        assert role_on(who, thing, [*given_, more]) == role_on(who, thing, given_)
        assert grant_on(who, thing, [*given_, more]) == grant_on(who, thing, given_)


@given(names, grants)
def test_names_belong_to_the_authors_of_their_prefixes(name: str, given_: list[AccessGrant]) -> None:
    by = {one.who for one in given_ if one.on.endswith("*") and name.startswith(one.on[:-1])}
    authors = {one.who for one in given_ if one.role in (AccessRole.AUTHOR, AccessRole.ADMIN)}

    assert holders("pipeline", name, given_) <= by & authors
    for one in given_:
        if one.role is AccessRole.AUTHOR and one.on.endswith("*") and name.startswith(one.on[:-1]):
            assert one.who in holders("pipeline", name, given_)


@given(roles, roles)
def test_roles_are_in_one_order(one: AccessRole, other: AccessRole) -> None:
    assert one.includes(other) or other.includes(one)
    assert (one.includes(other) and other.includes(one)) == (one is other)
