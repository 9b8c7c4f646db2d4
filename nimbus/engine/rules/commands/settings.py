"""Commands that change the settings of the cluster: pools, shares, calendars, variables, tokens, grants."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar, assert_never

from nimbus.access.oidc import NAME_PREFIX
from nimbus.domain.cluster.access import MAX_GRANTS, MAX_TOKENS, AccessGrant, AccessRole, Token
from nimbus.domain.cluster.settings import (
    MAX_CALENDARS,
    MAX_CORDONED,
    MAX_HOLDS,
    MAX_POOLS,
    MAX_SHARES,
    MAX_VARIABLE_BYTES,
    ClusterCalendar,
    ClusterSettings,
    TeamShare,
    checked_weight,
)
from nimbus.domain.commands import (
    AccessCommand,
    CordonWorker,
    CreateToken,
    GrantAccess,
    RemovePool,
    RemoveVariable,
    RevokeAccess,
    RevokeToken,
    SetCalendar,
    SetHold,
    SetPool,
    SetShare,
    SettingsCommand,
    SetVariable,
    TokenCommand,
    UncordonWorker,
)
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId
from nimbus.domain.pipelines.catalog import followers
from nimbus.domain.wording import counted, some_of
from nimbus.domain.writes import PutSettings
from nimbus.engine.decision import Answer, Decision, NoDecision
from nimbus.engine.state import State

K = TypeVar("K")
V = TypeVar("V")


def changed(  # noqa: C901 - one branch for each group of commands
    state: State, command: SettingsCommand | TokenCommand | AccessCommand, by: str, now: datetime
) -> tuple[ClusterSettings, str]:
    """The settings after a command by `by`, and the answer to its client.

    Raises RefusedError: the command cannot be carried out.
    """
    before = state.settings
    match command:
        case CreateToken() | RevokeToken():
            return _changed_tokens(before, command, by, now)
        case GrantAccess() | RevokeAccess():
            return _changed_grants(state, command, by, now)
        case SetPool(pool=pool, size=size):
            said = f"pool {pool} has {size}" + ("" if size else ": no new attempt gets room in it")
            return _with_pool(before, pool, size), said
        case RemovePool(pool=pool):
            return _without_pool(state, pool), f"pool {pool} is removed"
        case SetShare(team=team):
            return _with_share(before, command, by, now), _said_of_share(state, team, command.weight)
        case SetCalendar():
            return _with_calendar(state, command, by, now)
        case SetHold():
            return _with_hold(state, command, by, now)
        case SetVariable(name=name, value=value):
            return _with_variable(before, name, value), f"vars.{name} is set; runs from now on take it"
        case RemoveVariable(name=name):
            if name not in before.variables:
                raise RefusedError("unknown_variable", f"there is no variable {name}: see `nimbus var list`.")
            variables = _without(before.variables, name)
            return replace(before, variables=variables), f"vars.{name} is removed; existing runs keep it"
        case CordonWorker() | UncordonWorker():
            return _with_cordon(before, command)
        case _:
            assert_never(command)


def _without(entries: Mapping[K, V], name: K) -> dict[K, V]:
    return {other: entry for other, entry in entries.items() if other != name}


def _with_pool(before: ClusterSettings, pool: str, size: int) -> ClusterSettings:
    if pool not in before.pools and len(before.pools) >= MAX_POOLS:
        raise RefusedError("too_many_pools", f"there are {MAX_POOLS} pools: remove one first.")
    return replace(before, pools={**before.pools, pool: size})


def _with_cordon(
    before: ClusterSettings, command: CordonWorker | UncordonWorker
) -> tuple[ClusterSettings, str]:
    worker = command.worker
    cordoned = _without(before.cordoned, worker)
    drained = tuple(other for other in before.drained if other != worker)
    if isinstance(command, UncordonWorker):
        return replace(before, cordoned=cordoned, drained=drained), f"worker {worker} is given tasks"
    if len(cordoned) >= MAX_CORDONED:
        raise RefusedError("too_many_cordoned", f"{MAX_CORDONED} workers are cordoned: uncordon one.")
    drained = tuple(sorted((*drained, worker))) if command.drain else drained
    moved = ", but tasks that are kept running move" if command.drain else ""
    said = f"worker {worker} gets no new attempts; its open attempts go on{moved}"
    return replace(before, cordoned={**cordoned, worker: command.reason}, drained=drained), said


def _with_calendar(state: State, command: SetCalendar, by: str, now: datetime) -> tuple[ClusterSettings, str]:
    before, name = state.settings, command.name
    calendars = _without(before.calendars, name)
    users = sorted(record.name for record in followers(state.catalog.pipelines.values(), name))
    if command.days is not None:
        if len(calendars) >= MAX_CALENDARS:
            raise RefusedError("too_many_calendars", f"there are {MAX_CALENDARS} calendars: remove one.")
        calendar = ClusterCalendar(days=command.days, reason=command.reason, set_by=by, set_at=now)
        said = f"; fire times from now on follow it in {some_of(users)}" if users else ""
        return replace(before, calendars={**calendars, name: calendar}), f"calendar {name} is set{said}"
    if name not in before.calendars:
        raise RefusedError("unknown_calendar", f"there is no calendar {name}: see `nimbus calendar list`.")
    if users:
        raise RefusedError(
            "calendar_in_use",
            f"pipelines follow calendar {name} ({some_of(users)}): set it, or activate releases that do not.",
        )
    return replace(before, calendars=calendars), f"calendar {name} is removed"


def _with_share(before: ClusterSettings, command: SetShare, by: str, now: datetime) -> ClusterSettings:
    shares = _without(before.shares, command.team)
    if checked_weight(command.team, command.weight) > 1:
        if len(shares) >= MAX_SHARES:
            raise RefusedError("too_many_shares", f"{MAX_SHARES} teams have weights: set one of them to 1.")
        share = TeamShare(weight=command.weight, reason=command.reason, set_by=by, set_at=now)
        shares[command.team] = share
    return replace(before, shares=shares)


def _said_of_share(state: State, team: str, weight: int) -> str:
    said = f"team {team} has the weight {weight}"
    if team in {record.owner for record in state.catalog.pipelines.values()}:
        return said
    return f"{said}; no pipeline has this owner: check its name"


def _with_hold(state: State, command: SetHold, by: str, now: datetime) -> tuple[ClusterSettings, str]:
    name, before = command.name, state.settings
    known = before.holds.get(name)
    holds = _without(before.holds, name)
    if command.hold is None:
        if known is None:
            raise RefusedError("unknown_hold", f"there is no hold {name}: see `nimbus hold list`.")
        return replace(before, holds=holds), f"hold {name} has ended: what came due is caught up"
    if len(holds) >= MAX_HOLDS:
        raise RefusedError("too_many_holds", f"there are {MAX_HOLDS} holds: end one first.")
    holds[name] = hold = replace(command.hold, held_by=by, held_at=now if known is None else known.held_at)
    covered = hold.checked(state.catalog.pipelines.values(), now)
    said = f"hold {name}: starts of {counted(covered, 'pipeline')} wait; what runs goes on"
    return replace(before, holds=holds), said


def end_hold(state: State, name: str, now: datetime) -> Answer:
    """End a hold at its time; if it has none, note once that it lasts long, which raises an alert."""
    hold = state.settings.holds.get(name)
    due = None if hold is None else hold.next_change
    if hold is None or due is None or due > now:
        return NoDecision(at=due)
    holds = _without(state.settings.holds, name)
    if hold.until is None:
        holds[name] = replace(hold, alerted=True)
    return Decision(
        name="hold_ended" if hold.until is not None else "hold_lasts_long",
        writes=(PutSettings(replace(state.settings, holds=holds)),),
        about={"hold": name, "reason": hold.reason},
    )


def _with_variable(before: ClusterSettings, name: str, value: str) -> ClusterSettings:
    variables = {**before.variables, name: value}
    if len(json.dumps(variables)) > MAX_VARIABLE_BYTES:
        raise RefusedError(
            "too_many_variables",
            f"all variables would take more than {MAX_VARIABLE_BYTES} bytes: remove some, or put long "
            "values into a file of the release.",
        )
    return replace(before, variables=variables)


def _without_pool(state: State, pool: str) -> ClusterSettings:
    if pool not in state.settings.pools:
        raise RefusedError("unknown_pool", f"there is no pool {pool}: see `nimbus pool list`.")
    users = sorted(run_id for run_id in state.runs.live if _needs(state, run_id, pool))
    if users:
        raise RefusedError(
            "pool_in_use",
            f"tasks of {len(users)} live runs need pool {pool} ({some_of(users)}); "
            f"`nimbus pool set {pool} 0` stops further attempts from using it.",
        )
    return replace(state.settings, pools=_without(state.settings.pools, pool))


def _needs(state: State, run_id: RunId, pool: str) -> bool:
    tasks = state.runs.live[run_id].tasks.in_order()
    return any(pool in task.spec.pools and not task.state.is_final for task in tasks)


def _changed_tokens(
    before: ClusterSettings, command: TokenCommand, asked_by: str, now: datetime
) -> tuple[ClusterSettings, str]:
    """The settings with one token added or removed. A new token also removes expired ones.

    Raises RefusedError: there is no such token, there are too many, or another one has this id.
    """
    if isinstance(command, RevokeToken):
        if command.id not in before.tokens:
            raise RefusedError("unknown_token", f"there is no token {command.id}: see `nimbus token list`.")
        return replace(before, tokens=_without(before.tokens, command.id)), f"token {command.id} is revoked"
    same = before.tokens.get(command.id)
    if same is not None:
        if same.sha256 != command.sha256:
            raise RefusedError("token_exists", f"there is another token {command.id}.")
        return before, f"token {command.id} was made before"
    useful = {token_id: token for token_id, token in before.tokens.items() if not token.is_expired(now)}
    if len(useful) >= MAX_TOKENS:
        raise RefusedError("too_many_tokens", f"there are {MAX_TOKENS} tokens: revoke some.")
    token = Token(
        id=command.id,
        name=command.name,
        role=command.role,
        teams=command.teams,
        sha256=command.sha256,
        created_at=now,
        created_by=asked_by,
        expires_at=command.expires_at,
    )
    said = f"token {command.id} of {command.name} may do what {command.role} may"
    return replace(before, tokens={**useful, command.id: token}), said


def _changed_grants(
    state: State, command: AccessCommand, by: str, now: datetime
) -> tuple[ClusterSettings, str]:
    """The settings with one grant given or taken away.

    Raises RefusedError: a name in it does not exist, there are too many, or there is no such grant.
    """
    before = state.settings
    rest = tuple(grant for grant in before.grants if (grant.who, grant.on) != (command.who, command.on))
    if isinstance(command, RevokeAccess):
        if len(rest) == len(before.grants):
            raise RefusedError(
                "unknown_grant",
                f"{command.who} has no grant on {command.on}: see `nimbus access show {command.who}`.",
            )
        return replace(before, grants=rest), f"the grant to {command.who} on {command.on} is taken away"
    _check_names(state, command.who, command.on)
    if not AccessRole.STATUS.rank <= command.role.rank <= AccessRole.AUTHOR.rank:
        raise RefusedError(
            "bad_grant", f"a grant is of status, logs, viewer, operator or author, and not of {command.role}."
        )
    if len(rest) >= MAX_GRANTS:
        raise RefusedError("too_many_grants", f"there are {MAX_GRANTS} grants: revoke some.")
    grant = AccessGrant(
        who=command.who, role=command.role, on=command.on, reason=command.reason, by=by, at=now
    )
    grants = tuple(sorted((*rest, grant), key=lambda grant: (grant.who, grant.on)))
    return replace(before, grants=grants), f"{command.who} has the role {command.role} on {command.on}"


def _check_names(state: State, who: str, on: str) -> None:
    """Raise RefusedError if a grant names what does not exist. A prefix may name what is to come."""
    catalog, settings, groups = state.catalog, state.settings, state.policy.grants
    owners = {record.owner for record in catalog.pipelines.values() if record.owner is not None}
    holders = [*settings.tokens.values(), *(() if groups is None else groups.by_group.values())]
    teams = {team for holder in holders for team in holder.teams} | owners
    people = {token.name for token in settings.tokens.values()}
    if who not in teams | people and not who.startswith(NAME_PREFIX):
        raise RefusedError(
            "unknown_principal",
            f"who: no token, team or owner has the name {who}: create a token of it first (`nimbus token "
            "create`), or see `nimbus token list`.",
        )
    kind, _, name = on.partition(":")
    there: dict[str, Container[str]] = {
        "pipeline": catalog.pipelines,
        "dataset": {*catalog.datasets, *(d for r in catalog.pipelines.values() for d in r.profile.datasets)},
        "variable": settings.variables,
        "team": teams | people,
    }
    if not on.endswith("*") and name not in there.get(kind, ()):
        raise RefusedError(
            f"unknown_{kind}",
            f"on: there is no {kind} {name}: publish or create it first, or grant a prefix of it.",
        )
