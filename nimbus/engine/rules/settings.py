"""Commands that change the settings of the cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import assert_never

from nimbus.domain.commands import (
    CordonWorker,
    RemovePool,
    RemoveVariable,
    SetPool,
    SettingsCommand,
    SetVariable,
    UncordonWorker,
)
from nimbus.domain.drafts import unknown_variable
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.settings import MOST_CORDONED, MOST_POOLS, MOST_VARIABLE_BYTES, ClusterSettings
from nimbus.engine.state import State

MOST_NAMED = 5
"""How many runs a refusal names."""


def changed(state: State, command: SettingsCommand) -> tuple[ClusterSettings, str]:
    """The settings after a command, and the answer to its client.

    Raises:
        RefusedError: the command cannot be carried out.
    """
    before = state.settings
    match command:
        case SetPool(pool=pool, size=size):
            if pool not in before.pools and len(before.pools) >= MOST_POOLS:
                raise RefusedError("too_many_pools", f"there are {MOST_POOLS} pools: remove one first.")
            said = f"pool {pool} has {size}" + ("" if size else ": no new attempt gets room in it")
            return replace(before, pools={**before.pools, pool: size}), said
        case RemovePool(pool=pool):
            return _without_pool(state, pool), f"pool {pool} is removed"
        case SetVariable(name=name, value=value):
            return _with_variable(before, name, value), f"vars.{name} is set; runs from now on take it"
        case RemoveVariable(name=name):
            if name not in before.variables:
                raise RefusedError("unknown_variable", f"there is no variable {name}: see `nimbus var list`.")
            others = {other: value for other, value in before.variables.items() if other != name}
            return replace(before, variables=others), f"vars.{name} is removed; existing runs keep it"
        case CordonWorker(worker=worker, reason=reason):
            if worker not in before.cordoned and len(before.cordoned) >= MOST_CORDONED:
                raise RefusedError(
                    "too_many_cordoned", f"{MOST_CORDONED} workers are cordoned: uncordon one."
                )
            said = f"worker {worker} gets no new attempts; its open attempts go on"
            return replace(before, cordoned={**before.cordoned, worker: reason}), said
        case UncordonWorker(worker=worker):
            rest = {other: why for other, why in before.cordoned.items() if other != worker}
            return replace(before, cordoned=rest), f"worker {worker} is given tasks"
        case _:
            assert_never(command)


def check_pools(state: State, spec: PipelineSpec) -> None:
    """Raise RefusedError if a task uses a pool that does not exist."""
    for task in spec.tasks:
        for pool in sorted(task.pools.keys() - state.settings.pools.keys()):
            raise RefusedError(
                "unknown_pool",
                f"task {task.name} takes {task.pools[pool]} of pool {pool}, which does not exist: "
                f"`nimbus pool set {pool} SIZE`.",
            )


def check_variables(state: State, spec: PipelineSpec) -> None:
    """Raise RefusedError if a template names a variable that the cluster does not have."""
    for name in spec.variables:
        if name not in state.settings.variables:
            raise RefusedError("unknown_variable", f"{unknown_variable(name)}.")


def _with_variable(before: ClusterSettings, name: str, value: str) -> ClusterSettings:
    variables = {**before.variables, name: value}
    if len(json.dumps(variables)) > MOST_VARIABLE_BYTES:
        raise RefusedError(
            "too_many_variables",
            f"all variables would take more than {MOST_VARIABLE_BYTES} bytes: remove some, or put long "
            "values into a file of the release.",
        )
    return replace(before, variables=variables)


def check_targets(state: State, spec: PipelineSpec) -> None:
    """Raise RefusedError if a notification rule names a target that this leader does not know."""
    for rule in spec.notify or ():
        if rule.to not in state.policy.alerts.targets:
            raise RefusedError(
                "unknown_target",
                f"notify names the target {rule.to}, which is not in alerts.targets of the leader's "
                "configuration: add it there, on all schedulers, or remove it here.",
            )


def _without_pool(state: State, pool: str) -> ClusterSettings:
    if pool not in state.settings.pools:
        raise RefusedError("unknown_pool", f"there is no pool {pool}: see `nimbus pool list`.")
    users = sorted(run_id for run_id in state.runs.live if _needs(state, run_id, pool))
    if users:
        named = f"{', '.join(users[:MOST_NAMED])}{' and others' if len(users) > MOST_NAMED else ''}"
        raise RefusedError(
            "pool_in_use",
            f"tasks of {len(users)} live runs need pool {pool} ({named}); "
            f"`nimbus pool set {pool} 0` stops further attempts from using it.",
        )
    return replace(
        state.settings, pools={name: size for name, size in state.settings.pools.items() if name != pool}
    )


def _needs(state: State, run_id: RunId, pool: str) -> bool:
    tasks = state.runs.live[run_id].tasks.in_order()
    return any(pool in task.spec.pools and not task.state.is_final for task in tasks)
