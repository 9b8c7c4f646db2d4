"""Commands with a condition: the leader compares revisions in the turn that decides."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from nimbus.domain import commands as c
from nimbus.domain.cluster import revisions
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.commands import Command, SetVariable
from nimbus.domain.pipelines.backfill import BackfillState
from nimbus.engine.rules.commands.checks import target_of
from tests.nimbus.command_cases import CASES, Case
from tests.nimbus.property.test_command_kills import a_bench

DAY = SetVariable(name="day", value="1")
EMPTY = Case(DAY, lambda _: True)


def conditional() -> list[type[Command]]:
    return [one for part in get_args(c.ConditionalCommand) for one in get_args(part) or (part,)]


CHANGING = {
    name: case
    for name, case in CASES.items()
    if isinstance(case.command, c.ConditionalCommand)
    and name not in ("set_pool", "set_variable", "create_token")
}
"""Commands about existing objects."""


@pytest.mark.parametrize("case", CHANGING.values(), ids=CHANGING.keys())
def test_every_command_about_a_record_with_a_revision_is_refused_once_that_has_changed(case: Case) -> None:
    bench = a_bench(case)
    standing = target_of(bench.term.state, case.command).revision
    assert standing is not None

    stale = bench.submit(case.command, if_match=("0" * 32,))
    bench.decide()

    assert bench.cluster.world.outcomes[stale].code == "changed"
    assert target_of(bench.term.state, case.command).revision == standing


def test_every_type_of_conditional_command_is_tried() -> None:
    tried = {type(case.command) for case in CHANGING.values()}

    assert set(conditional()) - tried == {c.SetPool, c.CreateToken}  # tested below


@pytest.mark.parametrize(
    "command",
    [
        DAY,
        c.SetPool(pool="db", size=1),
        c.CreateToken(id="0123456789ab", name="bob", role=AccessRole.VIEWER, sha256="0" * 64),
        c.PausePipeline(pipeline=c.PipelineName("none")),
        c.ControlBackfill(backfill=c.BackfillId("none"), to=BackfillState.PAUSED),
    ],
    ids=lambda command: command.type,
)
def test_what_is_not_there_matches_nothing(command: Command) -> None:
    bench = a_bench(EMPTY)

    refused = bench.submit(command, if_match=(revisions.ANY,))
    bench.decide()

    assert bench.cluster.world.outcomes[refused].code == "changed"


def test_one_of_several_revisions_is_enough_and_a_star_is_any() -> None:
    bench = a_bench(replace(EMPTY, before=(DAY,)))

    first = bench.submit(
        replace(DAY, value="2"),
        if_match=(revisions.of_variable("day", "0"), revisions.of_variable("day", "1")),
    )
    second = bench.submit(replace(DAY, value="3"), if_match=(revisions.ANY,))
    bench.decide()

    world = bench.cluster.world
    assert [world.outcomes[key].code for key in (first, second)] == ["ok", "ok"]
    assert world.settings.variables == {"day": "3"}


def test_of_two_with_the_same_revision_in_one_batch_the_first_is_done() -> None:
    bench = a_bench(replace(EMPTY, before=(DAY,)))
    before, tag = len(bench.cluster.commits), (revisions.of_variable("day", "1"),)

    keys = [bench.submit(replace(DAY, value=value), if_match=tag) for value in ("2", "3")]
    bench.decide()

    world = bench.cluster.world
    assert [world.outcomes[key].code for key in keys] == ["ok", "changed"]
    assert world.settings.variables == {"day": "2"}
    assert len(bench.cluster.commits) == before + 1
