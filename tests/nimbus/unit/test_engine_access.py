"""The leader's own check of the caller: token, roles and owners, in the turn that decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.access.oidc import Grants, GroupRole
from nimbus.domain import writes as w
from nimbus.domain.cluster.access import (
    MAX_GRANTS,
    MAX_TOKENS,
    AccessGrant,
    AccessRole,
    Principal,
    PrincipalSource,
    Token,
)
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import (
    Abdicate,
    Command,
    CommandOutcome,
    CreateToken,
    GrantAccess,
    PausePipeline,
    PublishRelease,
    QueuedCommand,
    RemovePipeline,
    RevokeAccess,
    RevokeToken,
    SetOwner,
)
from nimbus.domain.ids import CommandId, PipelineName, ReleaseDigest, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.engine.decision import Decision
from nimbus.engine.policy import Policy
from nimbus.engine.rules import ask, next_key
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant
from tests.nimbus.definitions import active

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SUMS = PipelineName("sums")
SPEC = PipelineSpec(name=SUMS, tasks=(TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py"),))
DIGEST = ReleaseDigest("b" * 64)
PUBLISH = PublishRelease(pipeline=SUMS, digest=DIGEST)
TOKEN = Token(id="0" * 12, name="ada", role=AccessRole.AUTHOR, sha256="0" * 64, created_at=NOW)


def instant() -> Instant:
    return Instant(NOW, 0.0)


def a_state(
    *,
    owner: str | None = None,
    token: Token | None = TOKEN,
    known: bool = True,
    grants: tuple[AccessGrant, ...] = (),
) -> State:
    state = State(epoch=3, schema=1)
    tokens = {} if token is None else {token.id: token}
    state.put_settings(ClusterSettings(tokens=tokens, grants=grants), instant())
    if known:
        state.put_pipeline(replace(active(SPEC, updated_at=NOW), owner=owner))
    state.finish_loading()
    return state


def asked(
    state: State, command: Command, role: AccessRole = AccessRole.AUTHOR, **fields: object
) -> CommandOutcome:
    principal = Principal(
        name="ada", role=role, source=PrincipalSource.TOKEN, token_id=TOKEN.id, address="10.0.0.7"
    )
    queued = QueuedCommand(
        id=CommandId(f"cmd-{len(state.settings.tokens):010d}"),
        command=command,
        submitted_at=NOW,
        submitted_by="ada",
        asked_by=replace(principal, **fields),  # type: ignore[arg-type]
    )
    state.commands.put(queued)
    state.commands.releases.results[ReleaseOf(SUMS, DIGEST)] = SPEC
    while (key := next_key(state)) is not None:
        answer = ask(state, key, instant())
        if not isinstance(answer, Decision):
            state.postpone(key, answer)
            continue
        state.apply(answer, instant())
        for write in answer.writes:
            if isinstance(write, w.ConsumeCommand):
                return write.outcome
    raise AssertionError("nothing was decided")


def test_outcome_says_who_asked_from_where_and_why() -> None:
    outcome = asked(a_state(), PausePipeline(pipeline=SUMS), reason="incident 7")

    assert outcome.accepted
    assert outcome.asked_by is not None
    assert (outcome.asked_by.address, outcome.asked_by.token_id, outcome.asked_by.reason) == (
        "10.0.0.7",
        TOKEN.id,
        "incident 7",
    )


@pytest.mark.parametrize("token", [None, replace(TOKEN, expires_at=NOW)])
def test_command_is_refused_when_its_token_was_revoked_or_expired_before_the_decision(
    token: Token | None,
) -> None:
    state = a_state(token=token)

    outcome = asked(state, PausePipeline(pipeline=SUMS))

    assert (outcome.accepted, outcome.code) == (False, "token_revoked")
    assert state.catalog.pipelines[SUMS].state == "active"


def test_role_counts_that_the_token_has_at_the_decision() -> None:
    lowered = replace(TOKEN, role=AccessRole.VIEWER)

    outcome = asked(a_state(token=lowered), PausePipeline(pipeline=SUMS), AccessRole.ADMIN)

    assert outcome.code == "role_too_low"


@pytest.mark.parametrize("command", [Abdicate(reason="x"), RevokeToken(id=TOKEN.id)])
def test_author_may_not_do_what_admins_do(command: Command) -> None:
    assert asked(a_state(), command).code == "role_too_low"


@pytest.mark.parametrize(("owner", "code"), [("ada", "ok"), ("data", "not_owner"), (None, "not_owner")])
@pytest.mark.parametrize("command", [PUBLISH, RemovePipeline(pipeline=SUMS)])
def test_author_changes_own_pipelines_alone(command: Command, owner: str | None, code: str) -> None:
    assert asked(a_state(owner=owner), command).code == code


def test_pipeline_belongs_to_who_publishes_it_first_or_to_their_first_team() -> None:
    alone, member = a_state(known=False), a_state(known=False, token=replace(TOKEN, teams=("data", "ml")))
    asked(alone, PUBLISH)
    asked(member, PUBLISH, teams=("data", "ml"))

    assert [one.catalog.pipelines[SUMS].owner for one in (alone, member)] == ["ada", "data"]


def test_admin_gives_a_pipeline_to_another_owner_and_a_later_release_does_not_change_it() -> None:
    state = a_state(token=replace(TOKEN, role=AccessRole.ADMIN))

    assert asked(state, SetOwner(pipeline=SUMS, owner="data")).accepted
    assert asked(state, PUBLISH).accepted
    assert state.catalog.pipelines[SUMS].owner == "data"


ISSUER = "https://login.example.com"
GRANTS = Grants(
    issuer=ISSUER,
    by_group={
        "ops": GroupRole(role=AccessRole.OPERATOR),
        "sales": GroupRole(role=AccessRole.AUTHOR, teams=("sales",)),
    },
)


def asked_by_login(
    state: State, grants: Grants | None, command: Command, *, issuer: str = ISSUER, **fields: object
) -> CommandOutcome:
    """A command of a person with a provider's login, accepted as from an admin with the team `root`."""
    state.policy = Policy(grants=grants)
    login: dict[str, object] = {
        "source": PrincipalSource.OIDC,
        "token_id": "",
        "issuer": issuer,
        "groups": ("sales",),
        "teams": ("root",),
        "expires_at": NOW - timedelta(minutes=1),
    }
    return asked(state, command, AccessRole.ADMIN, **login | fields)


def test_role_and_teams_count_that_the_leader_gives_to_the_groups_of_a_login() -> None:
    state = a_state(owner="sales")

    outcome = asked_by_login(state, GRANTS, PUBLISH)
    assert outcome.accepted, "though the login has expired since: it had not when the command was taken"
    assert outcome.asked_by is not None
    assert (outcome.asked_by.role, outcome.asked_by.teams) == (AccessRole.AUTHOR, ("sales",))
    assert asked_by_login(state, GRANTS, Abdicate(reason="x")).code == "role_too_low"
    assert asked_by_login(state, GRANTS, PUBLISH, groups=("ops",)).code == "role_too_low"
    assert asked_by_login(a_state(owner="root"), GRANTS, PUBLISH).code == "not_owner"


def test_pipeline_that_a_login_publishes_first_belongs_to_the_team_that_the_leader_knows() -> None:
    state = a_state(known=False)
    asked_by_login(state, GRANTS, PUBLISH)

    assert state.catalog.pipelines[SUMS].owner == "sales"


@pytest.mark.parametrize(
    ("grants", "fields"),
    [
        (None, {}),
        (GRANTS, {"issuer": "https://other.example.com"}),
        (GRANTS, {"issuer": ""}),
        (None, {"issuer": ""}),
        (GRANTS, {"groups": ()}),
        (GRANTS, {"groups": ("admins",)}),
        (replace(GRANTS, by_group={}), {}),
        (replace(GRANTS, default_role=AccessRole.ADMIN), {"issuer": "https://other.example.com"}),
    ],
)
def test_login_that_has_no_role_with_the_leader_is_refused(
    grants: Grants | None, fields: dict[str, object]
) -> None:
    state = a_state()

    outcome = asked_by_login(state, grants, PausePipeline(pipeline=SUMS), **fields)  # type: ignore[arg-type]

    assert (outcome.accepted, outcome.code) == (False, "no_role")
    assert state.catalog.pipelines[SUMS].state == "active"


def test_login_without_a_known_group_has_the_default_role_of_the_leader() -> None:
    grants = replace(GRANTS, default_role=AccessRole.VIEWER)

    outcome = asked_by_login(a_state(), grants, PausePipeline(pipeline=SUMS), groups=())

    assert outcome.code == "role_too_low"


def test_token_is_made_once_and_revoked_by_commands() -> None:
    state = a_state(token=replace(TOKEN, role=AccessRole.ADMIN))
    create = CreateToken(id="1" * 12, name="bob", role=AccessRole.VIEWER, sha256="1" * 64)

    assert asked(state, create).accepted
    assert asked(state, create).message == "token 111111111111 was made before"
    assert asked(state, replace(create, sha256="2" * 64)).code == "token_exists"
    assert state.settings.tokens["1" * 12].created_by == "ada"
    assert asked(state, RevokeToken(id="1" * 12)).accepted
    assert asked(state, RevokeToken(id="1" * 12)).code == "unknown_token"
    assert list(state.settings.tokens) == [TOKEN.id]


def test_tokens_are_bounded_and_expired_ones_make_room() -> None:
    admin = replace(TOKEN, role=AccessRole.ADMIN)
    state = a_state(token=admin)
    others = {f"{n:012x}": replace(admin, id=f"{n:012x}") for n in range(1, MAX_TOKENS)}
    state.put_settings(ClusterSettings(tokens={admin.id: admin, **others}), instant())
    create = CreateToken(id="f" * 12, name="bob", role=AccessRole.VIEWER, sha256="1" * 64)
    assert asked(state, create).code == "too_many_tokens"

    others["1".rjust(12, "0")] = replace(admin, id="1".rjust(12, "0"), expires_at=NOW - timedelta(1))
    state.put_settings(ClusterSettings(tokens={admin.id: admin, **others}), instant())

    assert asked(state, create).accepted
    assert len(state.settings.tokens) == MAX_TOKENS


def test_command_that_the_api_did_not_queue_is_decided() -> None:
    state = a_state()
    queued = QueuedCommand(
        id=CommandId("cmd-0000000001"), command=PausePipeline(pipeline=SUMS), submitted_at=NOW
    )
    state.commands.put(queued)
    key = next_key(state)
    assert key is not None
    answer = ask(state, key, instant())

    assert isinstance(answer, Decision)
    assert answer.name == "command_accepted"


NOBODY = replace(TOKEN, role=AccessRole.NONE, teams=("finance",))
ON_ALL_KINDS = ("pipeline:sums", "team:finance", "su*")


def a_grant(on: str, role: AccessRole, who: str = "finance") -> AccessGrant:
    return AccessGrant(who=who, role=role, on=on, at=NOW)


@pytest.mark.parametrize("on", ON_ALL_KINDS)
@pytest.mark.parametrize("who", ["ada", "finance"])
def test_grant_lets_a_principal_without_a_role_do_what_it_says_and_no_more(on: str, who: str) -> None:
    def code(command: Command, role: AccessRole) -> str:
        state = a_state(owner="finance", token=NOBODY, grants=(a_grant(on, role, who),))
        return asked(state, command).code

    assert code(PausePipeline(pipeline=SUMS), AccessRole.VIEWER) == "role_too_low"
    assert code(PausePipeline(pipeline=SUMS), AccessRole.OPERATOR) == "ok"
    assert code(RemovePipeline(pipeline=SUMS), AccessRole.OPERATOR) == "role_too_low"
    assert code(RemovePipeline(pipeline=SUMS), AccessRole.AUTHOR) == "ok"
    assert code(SetOwner(pipeline=SUMS, owner="ada"), AccessRole.AUTHOR) == "role_too_low"


@pytest.mark.parametrize(
    "grant",
    [
        a_grant("pipeline:sum", AccessRole.AUTHOR),
        a_grant("dataset:sums", AccessRole.AUTHOR),
        a_grant("team:sales", AccessRole.AUTHOR),
        a_grant("sums_*", AccessRole.AUTHOR),
        a_grant("pipeline:sums", AccessRole.AUTHOR, "bob"),
    ],
)
def test_grant_on_something_else_or_to_somebody_else_gives_nothing(grant: AccessGrant) -> None:
    outcome = asked(a_state(owner="finance", token=NOBODY, grants=(grant,)), PausePipeline(pipeline=SUMS))

    assert outcome.code == "role_too_low"


def test_owner_without_a_grant_may_do_what_its_role_says() -> None:
    assert asked(a_state(owner="finance", token=NOBODY), PausePipeline(pipeline=SUMS)).code == "role_too_low"


def test_grant_of_author_lets_publish_a_pipeline_of_another_owner() -> None:
    state = a_state(owner="sales", token=NOBODY, grants=(a_grant("pipeline:sums", AccessRole.AUTHOR),))

    assert asked(state, PUBLISH).code == "ok"
    assert state.catalog.pipelines[SUMS].owner == "sales"


def test_author_of_a_team_publishes_its_first_pipeline_and_owns_it() -> None:
    state = a_state(known=False, token=NOBODY, grants=(a_grant("team:finance", AccessRole.AUTHOR),))

    assert asked(state, PUBLISH).code == "ok"
    assert state.catalog.pipelines[SUMS].owner == "finance"


def test_names_of_another_prefix_cannot_be_taken() -> None:
    theirs, own = a_grant("su*", AccessRole.AUTHOR, "sales"), a_grant("team:finance", AccessRole.AUTHOR)

    assert asked(a_state(known=False, token=NOBODY, grants=(theirs, own)), PUBLISH).code == "name_reserved"
    assert asked(a_state(known=False, grants=(theirs, own)), PUBLISH).code == "name_reserved"
    lower = replace(theirs, role=AccessRole.OPERATOR)
    assert asked(a_state(known=False, token=NOBODY, grants=(lower, own)), PUBLISH).code == "ok"


ADMIN = replace(TOKEN, role=AccessRole.ADMIN, teams=("finance",))
GRANT = GrantAccess(who="finance", role=AccessRole.LOGS, on="pipeline:sums", reason="on call")


def test_grant_is_kept_with_who_gave_it_when_and_why_and_replaces_the_former() -> None:
    former = a_grant("pipeline:sums", AccessRole.AUTHOR)
    state = a_state(token=ADMIN, grants=(former, a_grant("team:finance", AccessRole.STATUS)))

    assert asked(state, GRANT).code == "ok"

    assert state.settings.grants == (
        AccessGrant(
            who="finance", role=AccessRole.LOGS, on="pipeline:sums", reason="on call", by="ada", at=NOW
        ),
        a_grant("team:finance", AccessRole.STATUS),
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (replace(GRANT, who="nobody"), "unknown_principal"),
        (replace(GRANT, who="oidc:eve"), "ok"),
        (replace(GRANT, who="ada"), "ok"),
        (replace(GRANT, on="pipeline:sum"), "unknown_pipeline"),
        (replace(GRANT, on="dataset:sums"), "unknown_dataset"),
        (replace(GRANT, on="variable:sums"), "unknown_variable"),
        (replace(GRANT, on="team:sums"), "unknown_team"),
        (replace(GRANT, on="team:finance"), "ok"),
        (replace(GRANT, on="to_come_*"), "ok"),
        (replace(GRANT, role=AccessRole.ADMIN), "bad_grant"),
        (replace(GRANT, role=AccessRole.NONE), "bad_grant"),
        (RevokeAccess(who="finance", on="pipeline:sums", reason="left"), "unknown_grant"),
    ],
)
def test_grant_on_what_does_not_exist_is_refused_and_changes_nothing(command: Command, code: str) -> None:
    state = a_state(token=ADMIN)

    assert asked(state, command).code == code
    assert bool(state.settings.grants) == (code == "ok")


def test_grants_are_limited_and_a_known_one_can_still_be_changed() -> None:
    full = tuple(a_grant(f"n{number}_*", AccessRole.LOGS) for number in range(MAX_GRANTS))
    state = a_state(token=ADMIN, grants=full)

    assert asked(state, GRANT).code == "too_many_grants"
    state = a_state(token=ADMIN, grants=full)
    assert asked(state, replace(GRANT, on="n1_*")).code == "ok"


def test_grant_that_is_taken_away_before_the_decision_gives_nothing() -> None:
    state = a_state(owner="finance", token=replace(ADMIN, role=AccessRole.NONE))

    assert asked(state, PausePipeline(pipeline=SUMS)).code == "role_too_low"


@pytest.mark.parametrize("command", [GRANT, RevokeAccess(who="finance", on="x_*", reason="left")])
def test_only_admins_give_and_take_grants(command: Command) -> None:
    state = a_state(owner="finance", grants=(a_grant("team:finance", AccessRole.AUTHOR, "ada"),))

    assert asked(state, command).code == "role_too_low"
