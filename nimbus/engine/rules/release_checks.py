"""Checks a release, and what a run uses, against the cluster and the grants of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain

from nimbus.definition.calendar_file import calendar_file
from nimbus.domain.cluster.access import (
    AccessDeniedError,
    AccessRole,
    Principal,
    PrincipalSource,
    Thing,
    role_on,
)
from nimbus.domain.cluster.schema import check_schema
from nimbus.domain.data.datasets import first_grant, read_grant
from nimbus.domain.data.publications import Accepted, Publication, Read
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.drafts import unknown_variable
from nimbus.domain.starts.due import MAX_CONSUMERS, Due
from nimbus.engine.decision import Answer, Decision, NoDecision, PrepareRelease, Refusal
from nimbus.engine.rules.commands.checks import lookups
from nimbus.engine.state import State


def prepared_release(state: State, release: ReleaseOf, owner: str | None) -> PipelineSpec | Answer:
    """A release's definition from this disk, or a decision to fetch it, or `NoDecision` while it is fetched.

    `owner`: of its pipeline. Raises RefusedError: the release is not available.
    """
    if release in state.commands.releases.under_way:
        return NoDecision()
    spec = state.commands.releases.results.get(release)
    if spec is None:
        return Decision(
            name="release_preparation_started",
            effects=(PrepareRelease(release),),
            about={"pipeline": release.pipeline, "release": release.digest},
        )
    if isinstance(spec, Refusal):
        raise RefusedError(spec.code, spec.message)
    spec = spec.with_days(state.settings.days_of)
    check_release(state, spec, owner)
    return spec


def check_release(state: State, spec: PipelineSpec, owner: str | None) -> None:
    """Raise RefusedError if the cluster cannot run a release. `owner`: of its pipeline."""
    check_schema(state.leadership.schema, spec)
    _check_pools(state, spec)
    _check_targets(state, spec)
    _check_variables(state, spec)
    _check_calendars(spec)
    _check_cycles(state, spec)
    check_uses(state, spec.name, owner, spec.variables, spec.children, spec.upstream)
    check_publisher(state, spec.name, owner, spec.datasets)
    check_reader(state, spec.name, owner, spec.reads, state.catalog.pipelines.values())
    _check_partitions(state, spec)
    check_consumers(state, spec)


def _check_pools(state: State, spec: PipelineSpec) -> None:
    for task in spec.tasks:
        for pool in sorted(task.pools.keys() - state.settings.pools.keys()):
            raise RefusedError(
                "unknown_pool",
                f"task {task.name} takes {task.pools[pool]} of pool {pool}, which does not exist: "
                f"`nimbus pool set {pool} SIZE`.",
            )


def _check_targets(state: State, spec: PipelineSpec) -> None:
    for rule in spec.notify or ():
        if rule.to not in state.policy.alerts.targets:
            raise RefusedError(
                "unknown_target",
                f"notify names the target {rule.to}, which is not in alerts.targets of the leader's "
                "configuration: add it there, on all schedulers, or remove it here.",
            )


def _check_variables(state: State, spec: PipelineSpec) -> None:
    for name in spec.variables:
        if name not in state.settings.variables:
            raise RefusedError("unknown_variable", f"{unknown_variable(name)}.")


def _check_calendars(spec: PipelineSpec) -> None:
    for schedule in spec.schedules:
        if schedule.calendar is not None and schedule.days is None:
            raise RefusedError(
                "unknown_calendar",
                f"there is no calendar {schedule.calendar}: add {calendar_file(schedule.calendar)} to the "
                f"release, or set it for the cluster (`nimbus calendar set {schedule.calendar} FILE`).",
            )


def check_uses(
    state: State,
    name: PipelineName,
    owner: str | None,
    variables: Iterable[str] = (),
    children: Iterable[PipelineName] = (),
    upstream: Iterable[PipelineName] = (),
) -> None:
    """Raise AccessDeniedError if a pipeline may not read variables, start child runs, or wait for runs."""
    find = lookups(state).of_pipeline
    for variable in variables:
        _check_use(state, name, owner, AccessRole.VIEWER, partial(Thing, "variable", variable))
    for child in children:
        _check_use(state, name, owner, AccessRole.OPERATOR, partial(find, child))
    for other in upstream:
        _check_use(state, name, owner, AccessRole.STATUS, partial(find, other))


def _check_use(
    state: State, name: PipelineName, owner: str | None, needed: AccessRole, find: Callable[[], Thing]
) -> None:
    """Raise AccessDeniedError if a pipeline may not use something of another owner.

    It acts for its owner, with the role `api.pipelines_may` on everything. Without an owner it may do all.
    """
    base = state.policy.pipelines_may
    if owner is None or base.includes(needed):
        return
    acts, thing = Principal(name=owner, role=base, source=PrincipalSource.TOKEN), find()
    if owner != thing.owner and not role_on(acts, thing, state.settings.grants).includes(needed):
        on = f"{thing.kind}:{thing.name}"
        raise AccessDeniedError(
            "not_granted",
            f"pipeline {name}, which belongs to {owner}, may not use {thing.kind} {thing.name}: it needs the "
            f"role {needed} on it. An admin can give it (`nimbus access grant {owner} {needed} {on} --reason "
            "WHY`).",
        )


def _check_cycles(state: State, spec: PipelineSpec) -> None:
    """Raise RefusedError if runs of a pipeline would start runs of the same pipeline, by the catalog.

    A run starts those of its child pipelines, and of pipelines that start by data that it publishes.
    """
    started = {read.dataset for read in spec.reads if read.starts}
    ways: dict[PipelineName, str] = {}
    edge: list[tuple[PipelineName, str]] = [(spec.name, spec.name)]
    while edge:
        name, way = edge.pop()
        if name == spec.name and name in ways:
            raise RefusedError("pipeline_cycle", f"pipelines would start runs of each other for ever: {way}.")
        if name in ways:
            continue
        ways[name] = way
        record = state.catalog.pipelines.get(name)
        by = spec if name == spec.name else None if record is None else record.profile
        if by is None:
            continue
        edge += [(child, f"{way} starts {child}") for child in by.children]
        for dataset in by.datasets:
            names = {due.pipeline for due in state.catalog.consumers_of(dataset) if due.starts_on(dataset)}
            names.discard(spec.name)  # its active release, which this one replaces
            names |= {spec.name} if dataset in started else set()
            edge += [(other, f"{way} publishes {dataset}, which starts {other}") for other in sorted(names)]


def _check_not_removed(state: State, datasets: Iterable[DatasetName]) -> None:
    for name in sorted(set(datasets)):
        dataset = state.catalog.datasets.get(name)
        if dataset is not None and dataset.removing:
            raise RefusedError(
                "dataset_removing",
                f"dataset {name} is being removed: try again afterwards. If its removal was refused, repeat "
                f"it (`nimbus dataset remove {name}`).",
            )


def check_publisher(
    state: State, pipeline: PipelineName, owner: str | None, datasets: Iterable[DatasetName]
) -> None:
    """Raise RefusedError if a pipeline may not publish datasets.

    Another active pipeline publishes one; or one has versions of another owner, who limits their readers.
    """
    wanted = set(datasets)
    _check_not_removed(state, wanted)
    for record in state.catalog.pipelines.values() if wanted else ():
        if record.name == pipeline or record.state is PipelineState.INACTIVE:
            continue
        for name in sorted(wanted.intersection(record.profile.datasets)):
            raise RefusedError(
                "dataset_taken",
                f"dataset {name} is published by pipeline {record.name}, and readers could not tell whose "
                "version they get: publish another dataset, or remove it there first.",
            )
    for name in sorted(wanted):
        grant = read_grant(name, state.catalog.datasets.get(name), state.catalog.pipelines.get)
        if grant is not None and owner not in (None, grant.owner):
            raise RefusedError(
                "dataset_taken",
                f"dataset {name} has versions of pipeline {grant.pipeline}, which limits its readers, and "
                f"{owner} does not own them: publish another dataset, or let its owner or an admin remove "
                f"it (`nimbus dataset remove {name}`).",
            )


def check_reader(
    state: State,
    pipeline: PipelineName,
    owner: str | None,
    reads: Iterable[Read],
    first: Iterable[PipelineRecord] = (),
) -> None:
    """Raise AccessDeniedError if a pipeline may not read datasets, RefusedError if one is being removed.

    `first`: pipelines that may be the first to publish one of them.
    """
    reads, first = tuple(reads), tuple(first)
    _check_not_removed(state, (read.dataset for read in reads))
    for read in reads:
        known = state.catalog.datasets.get(read.dataset)
        grant = read_grant(read.dataset, known, state.catalog.pipelines.get)
        grant = first_grant(read.dataset, first) if known is None else grant
        if grant is not None:
            grant.check_pipeline(pipeline, owner)  # the list of readers is a grant of the owner
        elif known is not None or first:  # else there is nothing to read yet
            find = partial(lookups(state).of_dataset, read.dataset)
            _check_use(state, pipeline, owner, AccessRole.VIEWER, find)


def _check_partitions(state: State, spec: PipelineSpec) -> None:
    of_tasks: Iterator[Publication | Accepted] = (
        publication for task in spec.tasks for publication in task.publishes
    )
    for publication in chain(of_tasks, spec.accepts):
        known = state.catalog.datasets.get(publication.dataset)
        if known is not None and known.published and known.partition is not publication.partition:
            raise RefusedError(
                "dataset_repartitioned",
                f"dataset {publication.dataset} is published with `partition: {known.partition}`, and its "
                f"versions cannot be read as `{publication.partition}`: publish a dataset of another name.",
            )


def check_consumers(state: State, spec: PipelineSpec) -> None:
    """Raise RefusedError if a transaction would start too many pipelines, or too many read what is new."""
    own = {read.dataset for read in spec.reads if read.starts}
    others = (record for record in state.catalog.pipelines.values() if record.name != spec.name)
    of_others = (
        names
        for record in others
        if record.state is not PipelineState.INACTIVE
        for names in record.profile.published_together
        if own.intersection(names)
    )
    for names in sorted({*spec.published_together, *of_others, *((name,) for name in own)}):
        started = {due.pipeline for name in names for due in _started_by(state, name)} - {spec.name}
        if len(started) + bool(own.intersection(names)) > MAX_CONSUMERS:
            raise RefusedError(
                "too_many_consumers",
                f"{_said(names)} would start more than {MAX_CONSUMERS} pipelines, which is the limit: let "
                "one of them start others, or start by a schedule.",
            )
    for name in sorted({read.dataset for read in spec.reads if read.new}):
        dataset = state.catalog.datasets.get(name)
        taken = set(dataset.taken if dataset else ()).intersection(state.catalog.pipelines) - {spec.name}
        if len(taken) >= MAX_CONSUMERS:
            raise RefusedError(
                "too_many_consumers",
                f"{MAX_CONSUMERS} pipelines read what is new in dataset {name} already, which is the limit: "
                "remove one of them, or read another dataset.",
            )


def _started_by(state: State, name: DatasetName) -> Iterator[Due]:
    return (due for due in state.catalog.consumers_of(name) if due.starts_on(name))


def _said(names: tuple[DatasetName, ...]) -> str:
    return f"dataset {names[0]}" if len(names) == 1 else f"a task that publishes {', '.join(names)}"
