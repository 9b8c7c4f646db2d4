"""The protocols (ports) between the scheduler and the outside. Adapters implement them.

Each has one contract suite (tests/nimbus/contract), which runs on every implementation.
A subscriber passes a function that only enqueues: the client library calls it on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.attempts.workers import Assignment, WorkerInfo
from nimbus.domain.cluster.access import Principal
from nimbus.domain.cluster.alerts import Alert, AlertMessage
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import (
    Abdication,
    Command,
    CommandKey,
    CommandOutcome,
    KeyedCommand,
    QueuedCommand,
)
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.outputs import Results, TaskResults
from nimbus.domain.data.publications import Table, Version
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import (
    AttemptId,
    BackfillId,
    ClusterId,
    CommandId,
    DatasetName,
    PipelineName,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.domain.runs.purge import KeptReason as KeptRun
from nimbus.domain.runs.purge import Purged, PurgeOrder, RunNote
from nimbus.domain.runs.run import ListedRun, Run, RunPlace, RunState
from nimbus.domain.starts.due import Due
from nimbus.domain.writes import Write

Enqueue = Callable[[], None]
"""Signals "look again", nothing more. Must not block, call ZooKeeper, or decide."""


LARGEST_PROGRESS = 64 * 1024
"""Limit of a driver's progress document, in bytes. User code writes it, so it must be bounded."""


class StoreUnavailableError(NimbusError):
    """ZooKeeper did not answer in time. A read changed nothing; a write may or may not have been applied."""

    code = "store_unavailable"
    retryable = True
    exit_code = 6


class StoreDeniedError(StoreUnavailableError):
    """An access list in ZooKeeper refuses this process. Daemons try again: an operator may correct it."""

    exit_code = 7


class SlotTakenError(NimbusError):
    """Another process had already created the slot (or node) of a write. Read it, and decide again."""

    code = "slot_taken"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is there already: somebody was faster. Nothing was written.")
        self.path = path


class StaleStateError(NimbusError):
    """A write named a record that does not exist. Read the state again."""

    code = "stale_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPart:
    """Workers, schedulers and cluster-wide records: the first part of the live state."""

    workers: tuple[WorkerInfo, ...] = ()
    schedulers: tuple[SchedulerInfo, ...] = ()
    abdication: Abdication | None = None
    """The last accepted one, of any epoch."""
    terms: tuple[Term, ...] = ()
    """The newest term and the one before it."""
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    intervals: Mapping[PipelineName, IntervalIndex] = field(default_factory=dict)
    datasets: MutableMapping[DatasetName, Dataset] = field(default_factory=dict)
    """The leader takes it over, and changes it."""
    due: Mapping[PipelineName, Due] = field(default_factory=dict)
    backfills: tuple[Backfill, ...] = ()
    """Intervals, datasets, consumers and backfills are read before the runs: they change in the
    transactions that end runs and tasks."""
    alerts: tuple[Alert, ...] = ()
    health: tuple[PipelineHealth, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPart:
    """Some runs, each complete with its slots."""

    runs: tuple[Run, ...] = ()
    slots: Mapping[AttemptId, Slots] = field(default_factory=dict)
    """Of all open attempts of `runs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPart:
    """The catalog and the command queue: the last part."""

    pipelines: tuple[PipelineRecord, ...] = ()
    commands: tuple[QueuedCommand, ...] = ()


LoadedPart = RegisteredPart | RunsPart | CatalogPart
"""A part of the live state. A new leader reads the state part by part."""


class LeaderTransaction(Protocol):
    """Writes that are applied together, or not at all. They are applied only while our epoch is current."""

    def add(self, writes: Sequence[Write]) -> bool:
        """Add writes, and return True. Return False and add nothing if it would grow too large: commit first.

        Raises:
            RecordTooLargeError: these writes alone are too large. Nothing was added.
        """

    def commit(self) -> None:
        """Apply all writes. Call it once. An empty transaction does nothing.

        Raises:
            leader.FencedOutError: another scheduler leads.
            SlotTakenError: a node to be created exists already.
            StaleStateError: a node to be changed or removed does not exist.
            StoreUnavailableError: no answer; the writes may or may not have been applied: load again.
        """


@dataclass(frozen=True, slots=True)
class Pruned:
    """Result of `LeaderStore.prune_outcomes`."""

    old: tuple[CommandOutcome, ...]
    """Outcomes that the caller must archive and then remove."""
    more: bool
    """True when there may be more outcomes to remove."""


class LeaderStore(Protocol):
    """What the leader reads and writes. Bound to one epoch: every write checks it in its own transaction.

    Reads arm watches: after `subscribe`, a change of what was read calls the matching function once.
    All methods raise StoreUnavailableError when ZooKeeper does not answer within the call timeout.
    """

    def subscribe(self, *, commands: Enqueue, workers: Enqueue, attempt: Callable[[AttemptId], None]) -> None:
        """Set the functions that a change calls. Called once, before the first read."""

    def load(self) -> Iterator[LoadedPart]:
        """Read everything, and arm all watches. Each part is read when the iterator reaches it.

        The order is one `RegisteredPart`, then zero or more `RunsPart`, then one `CatalogPart`.
        """

    def read_commands(self, known: Collection[CommandId], most: int) -> tuple[QueuedCommand, ...]:
        """Waiting commands that are not in `known`, oldest first, at most `most`.

        A command that cannot be read is returned as `Unreadable`, which is refused.
        """

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""

    def read_schedulers(self) -> tuple[SchedulerInfo, ...]:
        """Registered schedulers."""

    def read_terms(self) -> tuple[Term, ...]:
        """The newest term and the one before it, newest first; an unreadable term is left out."""

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """The slots of these attempts, read together; every attempt has an entry."""

    def await_ends(self, attempts: Iterable[AttemptId]) -> None:
        """Arm a watch on END alone of these attempts. It fires at once for those that have ended already."""

    def read_ends(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """CLAIM and END of those of these attempts that have ended, read together. Arms no watch."""

    def read_run(self, run: RunId) -> Run | None:
        """One run; None if it does not exist or cannot be read."""

    def read_pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """One pipeline; None if it does not exist or cannot be read."""

    def read_backfill(self, backfill: BackfillId) -> Backfill | None:
        """One backfill; None if it does not exist or cannot be read."""

    def read_alerts(self) -> tuple[Alert, ...]:
        """All alerts whose records are kept, in the order in which they were raised."""

    def read_intervals(self, name: PipelineName) -> IntervalIndex | None:
        """The index of a pipeline's data intervals and their results; None: there is no index."""

    def read_datasets(self, names: Iterable[DatasetName]) -> Mapping[DatasetName, Dataset]:
        """Those of these datasets that exist and can be read."""

    def read_due(self, name: PipelineName) -> Due | None:
        """What is due for a pipeline; None: it does not start by data, or its record cannot be read."""

    def read_health(self) -> tuple[PipelineHealth, ...]:
        """The health of the pipelines that have a health record."""

    def old_terms(self, most: int) -> tuple[Term, ...]:
        """Terms beyond the newest `most`, oldest first, a few hundred at most: they move to history."""

    def forget_terms(self, epochs: Sequence[int]) -> None:
        """Remove these terms; remove none if one does not exist. Raises as `prune_outcomes`."""

    def begin(self) -> LeaderTransaction:
        """Begin to collect writes."""

    def prune_outcomes(self, before: datetime, most: int) -> Pruned:
        """Some of the oldest outcomes: those decided before `before`, and those beyond the newest `most`.

        The caller archives them, then removes them. Outcomes beyond twice `most` are removed at once.

        Raises:
            leader.FencedOutError: another scheduler leads.
            StoreUnavailableError: no answer.
        """

    def prune_keys(self, before: datetime, most: int) -> None:
        """Read at most `most` keys of commands, and remove those decided before `before`.

        The next call continues with other keys. Raises as `prune_outcomes`.
        """

    def forget_outcomes(self, commands: Sequence[CommandId]) -> None:
        """Remove the outcomes of these commands; remove none if one does not exist. Raises as above."""


class CommandQueue(Protocol):
    """The queue through which every process sends commands to the leader. Durable once `submit` returns."""

    def submit(
        self,
        command: Command,
        *,
        submitted_by: str,
        asked_by: Principal | None = None,
        key: CommandKey | None = None,
        if_match: tuple[str, ...] = (),
    ) -> CommandId:
        """Queue a command.

        Args:
            command: The command.
            submitted_by: The name that is stored with the command.
            asked_by: The principal whose permission the leader checks.
            key: Idempotency key, by which a repeated request is recognised.
            if_match: As of `QueuedCommand.if_match`.

        Raises:
            KeyUsedError: a command with this key was queued before.
        """

    def keyed(self, key_hash: str) -> KeyedCommand | None:
        """The record of the command with this key. It is kept for a day after the decision."""

    def outcome(self, command: CommandId, changed: Enqueue | None = None) -> CommandOutcome | None:
        """The outcome of a command. None while it waits; `changed` is then called when it may be decided.

        Outcomes are kept for about an hour, the last 10,000 of them.
        """

    def outcomes(self) -> tuple[CommandOutcome, ...]:
        """All that are kept."""

    def refused_start(self, run: RunId) -> CommandOutcome | None:
        """The newest kept refusal to start `run`. Reads all outcomes."""


class ClusterReader(Protocol):
    """Read-only view for API, web and command line: the same on every scheduler."""

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        """The catalog, by name."""

    def pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """One pipeline."""

    def backfills(self) -> tuple[Backfill, ...]:
        """All that are kept."""

    def backfill(self, backfill: BackfillId) -> Backfill | None:
        """One backfill; None if it does not exist."""

    def intervals(self, name: PipelineName) -> IntervalIndex | None:
        """The index of a pipeline's data intervals; None: no run with a data interval has ended."""

    def dataset_names(self) -> tuple[DatasetName, ...]:
        """All datasets that were ever published. It reads no record."""

    def datasets(self, names: Iterable[DatasetName]) -> Mapping[DatasetName, Dataset]:
        """Those of these datasets that exist and can be read."""

    def dataset(self, name: DatasetName) -> Dataset | None:
        """One dataset; None: it was never published."""

    def due(self, name: PipelineName) -> Due | None:
        """What is due for a pipeline; None: it does not start by data."""

    def run_list(self) -> Mapping[str, ListedRun]:
        """Live and recently finished runs, by id."""

    def runs(self, wanted: Iterable[RunId]) -> Mapping[RunId, Run]:
        """Those of the `wanted` runs that have not moved to history."""

    def run(self, run: RunId) -> Run | None:
        """One run, unless it has moved to history."""

    def slots(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        """The slots of these attempts, with the progress of running ones."""

    def schedulers(self) -> tuple[SchedulerInfo, ...]:
        """Registered schedulers."""

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""

    def orders(self, workers: Iterable[WorkerId]) -> Mapping[WorkerId, Sequence[str]]:
        """Orders of these workers: for each, the names of the open attempts that it must run or reap."""

    def commands(self) -> tuple[QueuedCommand, ...]:
        """Commands that wait."""

    def settings(self) -> ClusterSettings:
        """Cluster settings, such as pools and cordoned workers."""

    def terms(self, most: int) -> tuple[Term, ...]:
        """The newest kept terms, newest first, at most `most`."""

    def alerts(self) -> tuple[Alert, ...]:
        """Alerts that wait and alerts that ended lately, in the order in which they were raised."""


class AccessStore(Protocol):
    """What all schedulers share to authenticate requests. All methods raise StoreUnavailableError."""

    def settings(self, changed: Enqueue) -> ClusterSettings:
        """The tokens and grants of the cluster; `changed` is called, perhaps several times, on a change."""

    def session_key(self) -> bytes:
        """The secret that signs browser sessions. The first call creates it."""


class IdentityProviderError(NimbusError):
    """The identity provider refused, or its answer breaks OpenID Connect."""

    code = "identity_provider"
    retryable = True

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """True when the provider answered and refused the login."""


class IdentityProvider(Protocol):
    """The OpenID Connect provider of people and their groups. Called on the API's event loop."""

    async def prepare(self, token: str) -> None:
        """Fetch the signing keys if that of `token` is unknown or the keys are old. Bounded; never raises."""

    async def login_url(self, *, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        """URL where a browser logs in. `challenge`: of PKCE, method S256. Raises IdentityProviderError."""

    async def id_token(self, *, code: str, redirect_uri: str, verifier: str) -> str:
        """Exchange the code that the browser brought back for an ID token. Raises IdentityProviderError."""


class CatalogFeed(Protocol):
    """The catalog. Every scheduler follows it to sync the releases that it needs."""

    def read(self, changed: Enqueue | None = None) -> tuple[PipelineRecord, ...]:
        """All pipelines, without the positions of their schedules, which move with each fire.

        `changed` is called, perhaps several times, when a pipeline is added, removed or changed.
        """


class Registrations(Protocol):
    """Ephemeral records of live schedulers and workers."""

    def publish_scheduler(self, info: SchedulerInfo) -> datetime | None:
        """Write this scheduler's registration. Also called again, on the same session or a new one.

        That of an earlier process with this id on this host is replaced at once, that of a lost one on
        another host when its session has ended.

        Returns:
            The store's time of the write; None: the store has no clock of its own.

        Raises:
            SchedulerIdInUseError: another live scheduler has this id.
        """

    def publish_worker(self, info: WorkerInfo) -> datetime | None:
        """Write this worker's registration. Also called again.

        Returns:
            As `publish_scheduler`.

        Raises:
            WorkerIdInUseError: a live worker elsewhere has this id.
        """

    def data_mark(self, mark: str) -> str:
        """Record the mark of the cluster's folder of outputs, unless one is recorded; "" only asks.

        Returns:
            The recorded mark; "": there is none.
        """

    def withdraw(self) -> None:
        """Remove what this process has registered."""


class AttemptBoard(Protocol):
    """The attempts, for a worker and its runners. Slots are create-once, so no write needs the epoch."""

    def cluster(self) -> ClusterId:
        """Id of the cluster. It is the same for all processes, whatever address they reach the cluster by."""

    def claim(self, claim: Claim) -> Claim:
        """Put `claim` into the CLAIM slot. Return its content: `claim`, or an earlier one.

        Raises:
            AttemptWithdrawnError: the attempt has no record (any more): do not start it.
        """

    def fill(self, filled: Sequence[Claim | End]) -> Sequence[Claim | End | None]:
        """Put several claims and ends into their slots, in one transaction if all slots are empty.

        A claim also creates the attempt's heartbeat.

        Returns:
            The content of each slot, as of `claim` and `end`; None: the attempt has no record (any more).
        """

    def refuse(self, claim: Claim, end: End) -> Claim:
        """Put `claim` and `end` into both slots in one step, unless CLAIM is taken.

        A leader that saw CLAIM without END would end the attempt with another reason.

        Returns:
            The content of CLAIM; if it is not `claim`, nothing was written.

        Raises:
            AttemptWithdrawnError: the attempt has no record (any more), or was ended before it was claimed.
        """

    def end(self, end: End) -> End:
        """Put `end` into the END slot. Return its content: `end`, or an earlier one.

        Raises:
            AttemptWithdrawnError: the attempt has no record any more (its run is over and archived), or it
                belongs to a later run of the same id: the nonce of its CLAIM is not that of `end`.
        """

    def read(self, attempt: AttemptId, changed: Enqueue | None = None) -> Slots:
        """Read the slots; `changed` is called once, when CLAIM, END, heartbeat or stop comes or goes."""

    def read_all(self, attempts: Mapping[AttemptId, Enqueue | None]) -> Mapping[AttemptId, Slots]:
        """Read the slots of several attempts together, each with its `changed` as of `read`."""

    def heartbeat(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """Write the heartbeat, an ephemeral node of this session, with the driver's progress."""

    def keep_checkpoint(self, attempt: AttemptId, nonce: str, checkpoint: str) -> None:
        """Store the checkpoint for the next attempt, in place of the one before. Safe to repeat.

        Args:
            attempt: The running attempt.
            nonce: That of the attempt's claim.
            checkpoint: JSON; see `nimbus.checkpoint`.

        Raises:
            AttemptWithdrawnError: CLAIM has another nonce, or END is filled; the earlier checkpoint stays.
        """

    def note_submitted(self, attempt: AttemptId, driver: ClusterDriver) -> datetime:
        """Record durably that a driver of the attempt was submitted to a cluster. Safe to repeat.

        Returns:
            The time of the first such record.

        Raises:
            AttemptWithdrawnError: the attempt has no record any more.
        """

    def report(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """Write the driver's progress into the attempt's heartbeat; do nothing if there is none."""

    def attempt_key(self) -> bytes:
        """The cluster's secret from which tokens for attempts are derived. The first call creates it."""

    def assignments(self, worker: WorkerId, changed: Enqueue | None = None) -> tuple[Assignment, ...]:
        """Orders to a worker; `changed` is called once, when an order is added or removed."""


class AttemptWithdrawnError(NimbusError):
    """There is no record of the attempt: its run is over."""

    code = "attempt_withdrawn"

    def __init__(self, attempt: str) -> None:
        super().__init__(f"attempt {attempt} is not known (any more): its run is over; drop it.")


class WorkerIdInUseError(NimbusError):
    """Two live workers have one id."""

    code = "worker_id_in_use"
    exit_code = 4

    def __init__(self, worker: str, where: str) -> None:
        super().__init__(
            f"worker id {worker!r} is in use by a live worker on {where}. Give this one another "
            f"`worker.id` (or `scheduler.id`), or stop the other."
        )


class SchedulerIdInUseError(NimbusError):
    """Two live schedulers have one id."""

    code = "scheduler_id_in_use"
    exit_code = 4

    def __init__(self, scheduler: str, where: str) -> None:
        super().__init__(
            f"scheduler id {scheduler!r} is in use by a live scheduler on {where}, so this one is not "
            "registered. Give it another `scheduler.id`, or stop the other."
        )


class RecentRuns(NamedTuple):
    """Some finished runs, in the order of lists."""

    runs: tuple[Run, ...]
    more_after: RunPlace | None
    """The place after which there may be more runs. None: there are no more."""


class History(Protocol):
    """Finished runs, kept until they are purged."""

    def store(self, run: Run) -> None:
        """Keep a finished run. Safe to repeat."""

    def read(self, run: RunId) -> Run | None:
        """One finished run."""

    def version(self, dataset: DatasetName, partition: str) -> Version | None:
        """The newest stored version of a partition; None: there is none. `store` stores those of a run."""

    def store_versions(self, dataset: DatasetName, versions: Iterable[Version]) -> None:
        """Keep versions that commands have made. Safe to repeat."""

    def forget_dataset(self, dataset: DatasetName, before: int) -> None:
        """Remove the versions of a dataset whose numbers are below `before`. Safe to repeat.

        If it comes late, from a deposed leader, a dataset that was created again keeps its versions.
        """

    def kept_version(self, run: Run, now: datetime) -> KeptRun | None:
        """Why datasets keep a version that a finished run published; None: they do not."""

    def forget_versions(self, run: Run) -> None:
        """Remove the versions that a run published, after its outputs are deleted. Safe to repeat."""

    def newest_versions(
        self, dataset: DatasetName, interval: DataInterval | None, longest: timedelta
    ) -> Iterator[Version]:
        """The newest stored version of each partition, or of each that overlaps an interval.

        `longest`: the longest interval that was ever published. Raises UnreadableRecordError.
        """

    def newer_versions(self, dataset: DatasetName, sequence: int) -> Iterator[Version]:
        """The newest stored version of each partition with a larger sequence, in the order of sequences.

        Raises UnreadableRecordError.
        """

    def versions(
        self,
        dataset: DatasetName,
        limit: int,
        partition: str | None = None,
        before: int | None = None,
    ) -> tuple[Version, ...]:
        """Stored versions, at most `limit`: by sequence, those of a partition by number; the largest first.

        `before`: a sequence, or for a partition a number; only versions with smaller ones are returned.
        """

    def store_results(
        self, run: RunId, results: Results, tables: Mapping[TaskName, Table] = MappingProxyType({})
    ) -> None:
        """Keep what a run's tasks gave. Called before `store` of the run. Safe to repeat."""

    def given(self, run: RunId) -> TaskResults:
        """Results and tables of the tasks of a finished run."""

    def recent(
        self,
        pipeline: PipelineName | None,
        limit: int,
        after: RunPlace | None = None,
        *,
        state: RunState | None = None,
        since: datetime | None = None,
    ) -> RecentRuns:
        """At most `limit` finished runs after a place in the order of `nimbus.domain.runs.run`.

        Fewer do not mean that there are no more: a call reads a bounded number of objects.

        Args:
            pipeline: Only its runs; None: those of all.
            limit: At least 0.
            after: None: from the newest on.
            state: Only runs in this final state.
            since: Only runs that were created at that time, to the second, or later.
        """

    def store_outcomes(self, outcomes: Sequence[CommandOutcome]) -> None:
        """Keep outcomes of commands; at least one. Safe to repeat."""

    def outcomes(
        self, pipeline: PipelineName | None, limit: int, *, refused: bool = False
    ) -> tuple[CommandOutcome, ...]:
        """Outcomes, or only refusals, newest first; each once. Reads a bounded number of objects."""

    def store_terms(self, terms: Sequence[Term]) -> None:
        """Keep terms of leadership that have ended. Safe to repeat."""

    def terms(self, before: int, limit: int) -> tuple[Term, ...]:
        """Terms of epochs below `before`, newest first, at most `limit`."""

    def created_before(self, when: datetime, pipeline: PipelineName | None) -> Iterator[RunId]:
        """Ids of finished runs created before `when`, newest first. May include one that is purged."""

    def reusers(self, run: RunId) -> tuple[RunId, ...]:
        """Finished runs that reuse tasks of `run`, and so their outputs."""

    def purged(self, run: RunId) -> Purged | None:
        """What is purged of a run, or is being purged; None: nothing."""

    def note(self, run: RunId) -> RunNote | None:
        """The note about an ended run."""

    def put_note(self, note: RunNote) -> None:
        """Replace the note about a run; without a text, remove it. Safe to repeat."""

    def order_purge(self, command: CommandId, order: PurgeOrder) -> None:
        """Keep the order of a purge command until the leader's collector has done it. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class LiveChanges:
    """What changed in the live state since the last `ChangeFeed.take`."""

    topics: frozenset[str]
    """As of `nimbus.domain.cluster.topics`."""
    version: int
    """Every change up to this version is in `topics`, or was in those of an earlier call."""
    upto: int
    """No change in `topics` is later than this version. Not below `version`."""
    lost: bool = False
    """True when earlier changes may be missing: everything that was read before may be out of date."""


class ChangeFeed(Protocol):
    """What changes in the live state, by topic. Versions mean the same on every scheduler.

    All but `version` are called by one thread at a time.
    """

    def version(self) -> int:
        """Version of the last change that this process has seen; 0: none. From memory; any thread."""

    def start(self, told: Enqueue) -> None:
        """Begin to collect changes; `told` is called when `take` has some.

        Raises:
            StoreUnavailableError: no answer. Call `stop`.
        """

    def take(self, *, beats: bool) -> LiveChanges:
        """What has changed since the last call. The first call returns `lost`.

        Args:
            beats: Include heartbeats and progress; `told` is not called for these.

        Raises:
            StoreUnavailableError: no answer. The next call returns what this one missed.
        """

    def stop(self) -> None:
        """Collect no more changes. Safe to repeat."""


class AlertNotSentError(NimbusError):
    """A target did not accept an alert."""

    code = "alert_not_sent"
    retryable = True

    def __init__(self, message: str, *, doubtful: bool = False) -> None:
        super().__init__(message)
        self.doubtful = doubtful
        """True when there was no answer: the target may have accepted the alert nevertheless."""


class AlertTarget(Protocol):
    """A target that alerts are sent to."""

    def send(self, message: AlertMessage) -> None:
        """Send a message, within about 20 s; once it returns, the target has accepted it.

        Raises:
            AlertNotSentError: it was refused, or there was no answer.
        """


class TelemetryNotSentError(NimbusError):
    """A collector of traces or lineage did not accept what was sent."""

    code = "telemetry_not_sent"
    retryable = True


class RunSink(Protocol):
    """Where traces or lineage of runs are sent. One thread at a time."""

    follows: bool
    """True: it receives runs under way, too. False: only finished runs."""

    def send(self, before: Run | None, run: Run) -> int:
        """Send what has happened to a run since `before`; None: all. A repeated send uses the same ids.

        Returns:
            The number of spans or events sent.

        Raises:
            TelemetryNotSentError: not all was accepted; send everything again.
            NimbusError: data that the sink needs could not be read.
        """

    def close(self) -> None:
        """Make a running `send` end soon. From any thread."""


class Definitions(Protocol):
    """Definitions of the releases on this scheduler's disk. From any thread."""

    def definition(self, release: ReleaseOf) -> PipelineSpec:
        """The definition of a release, from a cache or the disk. Never waits for the object store.

        Raises:
            DefinitionNotHereError: the release is not on this disk now.
            RefusedError: the release has no valid definition.
        """


class DefinitionNotHereError(NimbusError):
    """A release is not on this disk, or is not readable there. It may be fetched again soon."""

    code = "definition_not_here"
    retryable = True

    def __init__(self, release: ReleaseOf) -> None:
        super().__init__(
            f"release {release.digest[:12]} of {release.pipeline} is not on this disk now, whole and verified"
        )


class KeptLog(StrEnum):
    """What the log archive keeps of an attempt."""

    LOG = "log"
    """What the task wrote to its standard output and error."""
    EVENTS = "events"
    """Spark's event log, compressed by Spark."""


class LogArchive(Protocol):
    """Logs of attempts, readable from any scheduler while they grow and afterwards."""

    def append(self, attempt: AttemptId, offset: int, data: bytes, kept: KeptLog = KeptLog.LOG) -> None:
        """Store bytes `offset` to `offset + len(data)` of an attempt's log. Safe to repeat."""

    def append_all(self, logs: Mapping[AttemptId, bytes]) -> None:
        """Store several complete logs, of any runs. Nothing of them is stored yet, except by an earlier try.

        This writes one object for each run.
        """

    def read(
        self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20, kept: KeptLog = KeptLog.LOG
    ) -> bytes:
        """At most `limit` stored bytes from `offset` on; empty if nothing is stored there (yet)."""

    def size(self, attempt: AttemptId) -> int:
        """Number of stored bytes of an attempt's log, up to the first gap."""


class Clock(Protocol):
    """Time, as a port so that tests can control it."""

    def now(self) -> datetime:
        """Wall clock, aware, UTC: for times that people see or that outlive a process."""

    def elapsed_s(self) -> float:
        """Seconds on a clock that never steps and that counts suspend: for deadlines within a process."""
