"""The ports of the API, with what the principal of a request may see: the one place that checks reads.

What a principal may not even see is left out of lists and does not exist; of what it may see in part, the
rest is empty. Principals that may see all data read through without a cost. Any thread of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Generic, TypeVar, cast

from nimbus.access.rules import Lookups, OfPipeline
from nimbus.api.caller import highest_role, principal, role_of
from nimbus.api.services import ApiServices
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.cluster.access import AccessDeniedError, AccessRole, Thing
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import CommandOutcome, QueuedCommand, StartRun
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.outputs import TaskResults
from nimbus.domain.data.publications import Version
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, DatasetName, PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.purge import Purged, RunNote
from nimbus.domain.runs.run import ListedRun, Run, RunPlace, place
from nimbus.domain.runs.task_run import TaskRun
from nimbus.ports import (
    ClusterReader,
    CommandQueue,
    DefinitionNotHereError,
    Definitions,
    Enqueue,
    History,
    KeptLog,
    LogArchive,
    RecentRuns,
)

About = TypeVar("About", bound=OfPipeline)
Port = TypeVar("Port")
Said = TypeVar("Said", QueuedCommand, CommandOutcome)
_MAX_OF_A_SECOND = 4_000
"""How many runs of one second are read to find one that may be seen; those after them are left out."""
_STATUS, _LOGS, _VIEWER = AccessRole.STATUS, AccessRole.LOGS, AccessRole.VIEWER


def seen_services(services: ApiServices) -> ApiServices:
    """The services of routes and pages."""
    reader = SeenReader(services.reader, services.history)
    return replace(
        services,
        reader=cast("ClusterReader", reader),
        history=cast("History", SeenHistory(services.history, reader)),
        commands=cast("CommandQueue", SeenCommands(services.commands, reader)),
        logs=cast("LogArchive", SeenLogs(services.logs, reader)),
        definitions=SeenDefinitions(services.definitions, reader),
    )


def lookups(services: ApiServices) -> Lookups:
    """What a request is about, for checks. `services`: as of `seen_services`."""
    return cast("SeenReader", services.reader).lookups()


def sees_data_of(services: ApiServices, run_id: str) -> bool:
    """True when the principal may see the data of a run, or of all runs."""
    return sees(_VIEWER) or role_of(lookups(services).of_run(RunId(run_id))).includes(_VIEWER)


def sees(needed: AccessRole) -> bool:
    """True when the principal has a role on everything."""
    return principal().role.includes(needed)


class SeenReader:
    """See `nimbus.ports.ClusterReader`."""

    def __init__(self, reader: ClusterReader, history: History) -> None:
        self._all, self._history = reader, history

    def __getattr__(self, name: str) -> Any:
        if name in ("intervals", "due"):
            read = getattr(self._all, name)
            return lambda pipeline: read(pipeline) if self.may(pipeline, _STATUS) else None
        if name in ("workers", "terms"):
            return getattr(self._all, name)
        raise AttributeError(name)

    def lookups(self) -> Lookups:
        """What a request is about, for checks: not limited to what may be seen."""

        def run(run_id: RunId) -> OfPipeline | None:
            waiting = (queued.command for queued in self._all.commands())
            starts = (
                command for command in waiting if isinstance(command, StartRun) and command.run_id == run_id
            )
            return self._all.run(run_id) or next(starts, None) or self._history.read(run_id)

        return Lookups(
            cache(self._all.pipeline), self._all.pipelines, run, self._all.backfill, self._all.dataset
        )

    def role(self, pipeline: str) -> AccessRole:
        """The principal's role on a pipeline, which may not exist any more."""
        return role_of(self.lookups().of_pipeline(PipelineName(pipeline)))

    def roles(self) -> Callable[[str], AccessRole]:
        """The same for many pipelines, with one read of the catalog."""
        owners = {record.name: record.owner for record in self._all.pipelines()}
        return cache(lambda name: role_of(Thing("pipeline", name, owners.get(PipelineName(name)))))

    def role_of_run(self, run_id: str) -> AccessRole:
        """The role on the pipeline of a run; the role on everything for an unknown one."""
        return role_of(self.lookups().of_run(RunId(run_id)))

    def check_run(self, run: RunId, needed: AccessRole, what: str) -> None:
        """Raise AccessDeniedError if the principal has not this role on a run, which may be large to read."""
        if not sees(needed) and not (role := self.role_of_run(run)).includes(needed):
            name = principal().name
            raise AccessDeniedError(
                "role_too_low", f"{what} of run {run}: needs the role {needed}, and {name} has {role} on it."
            )

    def topics(self, asked: Sequence[str]) -> Sequence[str]:
        """Those of the topics of a stream that are not about what may not be seen."""
        if sees(_STATUS):
            return asked
        kinds = {"run": self.role_of_run, "pipeline": self.role}
        parts = ((topic, *topic.partition("/")) for topic in asked)
        return [
            topic for topic, kind, slash, name in parts if not slash or kinds[kind](name).includes(_STATUS)
        ]

    def pipeline(self, name: PipelineName) -> PipelineRecord | None:
        record = self._all.pipeline(name)
        return None if record is None else next(iter(self._recorded([record])), None)

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        return self._recorded(self._all.pipelines())

    def _recorded(self, records: Iterable[PipelineRecord]) -> tuple[PipelineRecord, ...]:
        """Those of these records that may be seen; why fire times were skipped, only with `logs`."""
        if sees(_LOGS):
            return tuple(records)
        roles = ((record, role_of(Thing("pipeline", record.name, record.owner))) for record in records)
        return tuple(
            record if role.includes(_LOGS) or not record.skips.listed else _without_skip_reasons(record)
            for record, role in roles
            if role.includes(_STATUS)
        )

    def backfills(self) -> tuple[Backfill, ...]:
        """Those whose data may be seen: they have parameters."""
        return self._those(self._all.backfills(), _VIEWER)

    def backfill(self, backfill: BackfillId) -> Backfill | None:
        record = self._all.backfill(backfill)
        return record if record is None or self.may(record.pipeline, _VIEWER) else None

    def dataset_names(self) -> tuple[DatasetName, ...]:
        """Those whose data may be seen."""
        names = self._all.dataset_names()
        return names if sees(_VIEWER) else tuple(self.datasets(names))

    def datasets(self, names: Iterable[DatasetName]) -> Mapping[DatasetName, Dataset]:
        """Those whose data may be seen."""
        datasets = self._all.datasets(names)
        if sees(_VIEWER):
            return datasets
        of = self.lookups()._replace(dataset=datasets.get).of_dataset
        return {name: dataset for name, dataset in datasets.items() if role_of(of(name)).includes(_VIEWER)}

    def dataset(self, name: DatasetName) -> Dataset | None:
        if sees(_VIEWER) or role_of(self.lookups().of_dataset(name)).includes(_VIEWER):
            return self._all.dataset(name)
        return None

    def run_list(self) -> Mapping[str, ListedRun]:
        return self.listed(self._all.run_list())

    def listed(self, runs: Mapping[str, ListedRun]) -> Mapping[str, ListedRun]:
        """Those of these runs that may be seen."""
        if sees(_STATUS):
            return runs
        role = self.roles()
        return {key: run for key, run in runs.items() if role(run.pipeline).includes(_STATUS)}

    def runs(self, wanted: Iterable[RunId]) -> Mapping[RunId, Run]:
        return {run.id: run for run in self.shown(self._all.runs(wanted).values())}

    def run(self, run: RunId) -> Run | None:
        record = self._all.run(run)
        return None if record is None else next(iter(self.shown([record])), None)

    def shown(self, runs: Iterable[Run]) -> Sequence[Run]:
        """Those of these runs that may be seen, without what may not."""
        if sees(_VIEWER):
            return tuple(runs)
        role = cache(self.role)
        shown = (_shown(run, role(run.pipeline)) for run in runs)
        return [run for run in shown if run is not None]

    def slots(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        """Those of attempts whose data may be seen: they have progress, results and checkpoints."""
        if sees(_VIEWER):
            return self._all.slots(attempts)
        role = cache(self.role_of_run)
        return self._all.slots(attempt for attempt in attempts if role(attempt.run).includes(_VIEWER))

    def schedulers(self) -> tuple[SchedulerInfo, ...]:
        """All, without the names of what may not be seen."""
        schedulers = self._all.schedulers()
        if sees(_STATUS):
            return schedulers
        role = self.roles()
        return tuple(_scheduler(info, lambda name: role(name).includes(_STATUS)) for info in schedulers)

    def orders(self, workers: Iterable[WorkerId]) -> Mapping[WorkerId, Sequence[str]]:
        """All, so that they can be counted; without the names of what may not be seen."""
        orders = self._all.orders(workers)
        if sees(_STATUS):
            return orders
        listed = self.run_list()
        names = {worker: [(name, name.partition("/")[0]) for name in of] for worker, of in orders.items()}
        return {worker: [name if run in listed else "" for name, run in of] for worker, of in names.items()}

    def commands(self) -> tuple[QueuedCommand, ...]:
        """The own ones, and those about what may be seen."""
        commands = self._all.commands()
        if sees(_LOGS):
            return commands
        asks, of = principal(), self.lookups().of
        return _with_reasons(
            (queued, _LOGS if queued.submitted_by == asks.name else role_of(of(queued.command, asks)))
            for queued in commands
        )

    def decided(self, outcomes: Iterable[CommandOutcome]) -> tuple[CommandOutcome, ...]:
        """Those of decided commands that may be seen."""
        if sees(_LOGS):
            return tuple(outcomes)
        asks, roles = principal(), self.roles()

        def role(outcome: CommandOutcome) -> AccessRole:
            if outcome.submitted_by == asks.name:
                return _LOGS
            run = (
                self._all.run(outcome.run_id)
                if outcome.pipeline is None and outcome.run_id is not None
                else None
            )
            pipeline = outcome.pipeline if run is None else run.pipeline
            return asks.role if pipeline is None else roles(pipeline)

        return _with_reasons((outcome, role(outcome)) for outcome in outcomes)

    def settings(self) -> ClusterSettings:
        """All, without variables, holds and calendars that may not be seen, and without tokens and grants."""
        settings = self._all.settings()
        if sees(_VIEWER):
            return settings
        variables = settings.variables.items()
        seen = {
            name: value for name, value in variables if role_of(Thing("variable", name)).includes(_VIEWER)
        }
        pipelines = self.pipelines() if settings.holds else ()
        holds = {name: hold for name, hold in settings.holds.items() if any(map(hold.covers, pipelines))}
        calendars = settings.calendars if highest_role().includes(_VIEWER) else {}
        return replace(settings, variables=seen, holds=holds, calendars=calendars, tokens={}, grants=())

    def alerts(self) -> tuple[Alert, ...]:
        """Those of pipelines whose logs may be seen: they say why something failed."""
        return self._those(self._all.alerts(), _LOGS)

    def _those(self, things: tuple[About, ...], needed: AccessRole) -> tuple[About, ...]:
        if sees(needed):
            return things
        role = self.roles()
        return tuple(thing for thing in things if role(thing.pipeline).includes(needed))

    def may(self, pipeline: PipelineName, needed: AccessRole) -> bool:
        """True when the principal has a role on a pipeline."""
        return sees(needed) or self.role(pipeline).includes(needed)


class _Seen(Generic[Port]):
    """What requests read of a port: by methods, which check, and by those in `plain`. It has no others."""

    plain: tuple[str, ...] = ()

    def __init__(self, port: Port, reader: SeenReader) -> None:
        self._all, self._reader = port, reader

    def __getattr__(self, name: str) -> Any:
        if name in self.plain:
            return getattr(self._all, name)
        raise AttributeError(name)


class SeenHistory(_Seen[History]):
    """See `nimbus.ports.History`."""

    plain = ("terms", "created_before", "kept_version", "reusers")

    def has_had(self, run: RunId) -> bool:
        """True for the id of an ended or purged run, also of one that may not be seen."""
        return self._all.read(run) is not None or self._all.purged(run) is not None

    def purged(self, run: RunId) -> Purged | None:
        """What is purged of a run that may be seen."""
        record = self._all.purged(run)
        return record if record is None or self._reader.may(record.pipeline, _STATUS) else None

    def note(self, run: RunId) -> RunNote | None:
        """The note about a run whose data may be seen."""
        record = self._all.note(run)
        return record if record is None or self._reader.may(record.what.pipeline, _VIEWER) else None

    def read(self, run: RunId) -> Run | None:
        record = self._all.read(run)
        return None if record is None else next(iter(self._reader.shown([record])), None)

    def recent(
        self, pipeline: PipelineName | None, limit: int, after: RunPlace | None = None, **more: object
    ) -> RecentRuns:
        """Those that may be seen: a page may be short without being the last.

        Its end is in a cursor, so it names no run that may not be seen: it is the last shown run, or the
        beginning of its second. If that is not beyond `after`, more runs of this second are read.
        """
        while True:
            page = self._all.recent(pipeline, limit, after, **more)  # type: ignore[arg-type] # as of `History`
            runs, end = tuple(self._reader.shown(page.runs)), page.more_after
            if end is not None and not sees(_STATUS):
                end = max((*map(place, runs), RunPlace(end.before_latest_s, ""), after or RunPlace(0, "")))
                if end == after and limit <= _MAX_OF_A_SECOND:
                    limit = 2 * limit + 1
                    continue
                end = RunPlace(end.before_latest_s, "~") if end == after else end
            return RecentRuns(runs, end)

    def outcomes(
        self, pipeline: PipelineName | None, limit: int, *, refused: bool = False
    ) -> tuple[CommandOutcome, ...]:
        """The own ones, and those about what may be seen."""
        return self._reader.decided(self._all.outcomes(pipeline, limit, refused=refused))

    def versions(
        self, dataset: DatasetName, limit: int, partition: str | None = None, before: int | None = None
    ) -> tuple[Version, ...]:
        """Stored versions of a dataset whose data may be seen."""
        seen = self._reader.dataset(dataset) is not None
        return self._all.versions(dataset, limit, partition, before) if seen else ()

    def given(self, run: RunId) -> TaskResults:
        """Results and tables of the tasks of a run."""
        self._reader.check_run(run, _VIEWER, "results")
        return self._all.given(run)


class SeenCommands(_Seen[CommandQueue]):
    """See `nimbus.ports.CommandQueue`. `nimbus.api.submitting` checks; a key is that of its principal."""

    plain = ("submit", "keyed")

    def outcome(self, command: CommandId, changed: Enqueue | None = None) -> CommandOutcome | None:
        """The outcome of a command that may be seen."""
        record = self._all.outcome(command, changed)
        return None if record is None else next(iter(self._reader.decided([record])), None)

    def outcomes(self) -> tuple[CommandOutcome, ...]:
        return self._reader.decided(self._all.outcomes())

    def refused_start(self, run: RunId) -> CommandOutcome | None:
        """The newest refusal to start a run, if it may be seen."""
        record = self._all.refused_start(run)
        return None if record is None else next(iter(self._reader.decided([record])), None)


class SeenLogs(_Seen[LogArchive]):
    """The reads of `nimbus.ports.LogArchive`."""

    def read(
        self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20, kept: KeptLog = KeptLog.LOG
    ) -> bytes:
        self._reader.check_run(attempt.run, _LOGS, "the log")
        return self._all.read(attempt, offset, limit, kept)

    def size(self, attempt: AttemptId) -> int:
        self._reader.check_run(attempt.run, _LOGS, "the log")
        return self._all.size(attempt)


class SeenDefinitions(_Seen[Definitions]):
    """See `nimbus.ports.Definitions`. A definition has parameters and commands."""

    def definition(self, release: ReleaseOf) -> PipelineSpec:
        """The definition of a release; for others it is not here."""
        if not self._reader.may(release.pipeline, _VIEWER):
            raise DefinitionNotHereError(release)
        return self._all.definition(release)


def _with_reasons(said: Iterable[tuple[Said, AccessRole]]) -> tuple[Said, ...]:
    """Those that a role of `status` shows; why, only with `logs`."""
    return tuple(
        answer if role.includes(_LOGS) else _without_reason(answer)
        for answer, role in said
        if role.includes(_STATUS)
    )


def _without_skip_reasons(record: PipelineRecord) -> PipelineRecord:
    listed = tuple(replace(skipped, reason="") for skipped in record.skips.listed)
    return replace(record, skips=replace(record.skips, listed=listed))


def _without_reason(said: Said) -> Said:
    return (
        replace(said, asked_by=None)
        if isinstance(said, QueuedCommand)
        else replace(said, asked_by=None, message="")
    )


def _scheduler(info: SchedulerInfo, sees: Callable[[str], bool]) -> SchedulerInfo:
    """A registration without the names of pipelines that may not be seen."""
    parked = tuple(item for item in info.report.parked if item.kind == "pipeline" and sees(item.id))
    return replace(
        info,
        quarantined={name: why for name, why in info.quarantined.items() if sees(name)},
        missing=(),
        lacks=info.lacks and "it is not ready",
        guard_said="",
        report=replace(info.report, parked=parked),
    )


def _shown(run: Run, role: AccessRole) -> Run | None:
    """What a role shows of a run; None: nothing."""
    if role.includes(_VIEWER) or not role.includes(_STATUS):
        return run if role.includes(_STATUS) else None
    why = role.includes(_LOGS)
    return replace(
        run,
        parameters={},
        variables={},
        pins={},
        reason=run.reason if why else "",
        note="",
        tasks=run.tasks.replaced(_task(task, why=why) for task in run.tasks.in_order()),
    )


def _task(task: TaskRun, *, why: bool) -> TaskRun:
    """A task without data. `why`: with reasons."""
    attempts = (replace(attempt, output=None, has_result=False) for attempt in task.attempts)
    settled, reused, children = task.settled, task.reused, task.children
    if not why:
        attempts = (replace(attempt, reason="") for attempt in attempts)
        settled = settled and replace(settled, reason="")
        children = children and replace(children, reason="")
    return replace(
        task,
        spec=replace(task.spec, args=("(not shown)",) * len(task.spec.args)),
        attempts=tuple(attempts),
        settled=settled,
        reused=reused and replace(reused, attempt=None, result=None),
        children=children,
    )
