"""Every door between the scheduler and the outside, as protocols. Adapters stand behind them.

One contract suite for each (tests/contract) runs on the shipped fake and on the real adapter.
Subscriptions hand over a function that only enqueues: it is called on a client library's own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from nimbus.domain.access import Principal, Token
from nimbus.domain.alert_text import AlertMessage
from nimbus.domain.alerts import Alert
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.command_key import CommandKey
from nimbus.domain.commands import Abdication, Command, CommandOutcome, QueuedCommand
from nimbus.domain.errors import NimbusError
from nimbus.domain.idempotency import KeyedCommand
from nimbus.domain.ids import AttemptId, BackfillId, ClusterId, CommandId, PipelineName, RunId, WorkerId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.domain.purge import Purged, PurgeOrder
from nimbus.domain.results import Results
from nimbus.domain.run import ListedRun, Run
from nimbus.domain.run_order import RunPlace
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.terms import Term
from nimbus.domain.workers import Assignment, WorkerInfo
from nimbus.domain.writes import Write

Enqueue = Callable[[], None]
"""Says "look again", nothing more. Must not block, call ZooKeeper, or decide."""


LARGEST_PROGRESS = 64 * 1024
"""Bytes of a driver's progress document that are passed on: it comes from user code."""


class StoreUnavailableError(NimbusError):
    """ZooKeeper did not answer in time. A read changed nothing; a write may or may not have been done."""

    code = "store_unavailable"
    retryable = True
    exit_code = 6


class StoreDeniedError(StoreUnavailableError):
    """An access list in ZooKeeper refuses this process. Daemons try again: an operator may mend the list."""

    exit_code = 7


class FencedOutError(NimbusError):
    """A write was refused because another scheduler leads now."""

    code = "fenced_out"
    exit_code = 4


class SlotTakenError(NimbusError):
    """A write found a slot (or a node) filled by somebody who was faster. Read it, and decide anew."""

    code = "slot_taken"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is there already: somebody was faster. Nothing was written.")
        self.path = path


class StaleStateError(NimbusError):
    """A write named a record that is not there. Read the state anew."""

    code = "stale_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPart:
    """Who is there: the first part of the live state."""

    workers: tuple[WorkerInfo, ...] = ()
    schedulers: tuple[SchedulerInfo, ...] = ()
    abdication: Abdication | None = None
    """The last one that was accepted, whatever its epoch."""
    terms: tuple[Term, ...] = ()
    """The newest, and the one before it."""
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    intervals: Mapping[PipelineName, IntervalIndex] = field(default_factory=dict)
    backfills: tuple[Backfill, ...] = ()
    """These two are read before the runs, since they change in the transaction that ends a run."""
    alerts: tuple[Alert, ...] = ()
    health: tuple[PipelineHealth, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPart:
    """Some runs, each with all that there is of it."""

    runs: tuple[Run, ...] = ()
    slots: Mapping[AttemptId, Slots] = field(default_factory=dict)
    """Of all open attempts of `runs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPart:
    """The catalog and the command queue: the last part."""

    pipelines: tuple[PipelineRecord, ...] = ()
    commands: tuple[QueuedCommand, ...] = ()


LoadedPart = RegisteredPart | RunsPart | CatalogPart
"""A part of the live state, as a new leader reads it."""


class LeaderTransaction(Protocol):
    """Writes that are done together, or not at all, if the epoch is still ours."""

    def add(self, writes: Sequence[Write]) -> bool:
        """Take in more writes. False, and nothing taken in: it would become too large, so commit it first.

        Raises:
            RecordTooLargeError: these writes alone are too large. Nothing was taken in.
        """
        ...

    def commit(self) -> None:
        """Do all writes; once. Without any, nothing is done.

        Raises:
            FencedOutError: another scheduler leads.
            SlotTakenError: a node to be created is there already.
            StaleStateError: a node to be changed or removed is not there.
            StoreUnavailableError: no answer; whether it was done is not known: load again.
        """
        ...


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a look at the oldest outcomes found."""

    old: tuple[CommandOutcome, ...]
    """To be archived, and then to be forgotten."""
    more: bool
    """There may be more to forget."""


class LeaderStore(Protocol):
    """What the leader reads and writes. Bound to one epoch: every write checks it in its own transaction.

    Reads arm watches: after `subscribe`, a change of what was read calls the matching function once.
    All methods raise StoreUnavailableError when ZooKeeper does not answer within the call timeout.
    """

    def subscribe(self, *, commands: Enqueue, workers: Enqueue, attempt: Callable[[AttemptId], None]) -> None:
        """Say whom to wake. Called once, before the first read."""
        ...

    def load(self) -> Iterator[LoadedPart]:
        """Read everything, and arm all watches. Each part is read when the iterator is asked for it.

        First comes a `RegisteredPart`, then as many `RunsPart` as it takes, at last a `CatalogPart`.
        """
        ...

    def read_commands(self, known: Collection[CommandId], most: int) -> tuple[QueuedCommand, ...]:
        """Commands that wait and are not `known`, oldest first, at most `most`.

        One that cannot be read is in it as an `Unreadable` refusal.
        """
        ...

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""
        ...

    def read_schedulers(self) -> tuple[SchedulerInfo, ...]:
        """Registered schedulers."""
        ...

    def read_terms(self) -> tuple[Term, ...]:
        """The newest term and the one before it, newest first; one that cannot be read is left out."""
        ...

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """What there is of some attempts, all of them; read together."""
        ...

    def await_ends(self, attempts: Sequence[AttemptId]) -> Collection[AttemptId]:
        """Arm a watch on END alone of some attempts; those of them that have ended already."""
        ...

    def read_ends(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """CLAIM and END of those that have ended, read together. Arms no watch."""
        ...

    def read_run(self, run: RunId) -> Run | None:
        """One run; None if it is not there, or cannot be read."""
        ...

    def read_pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """One pipeline; None if it is not there, or cannot be read."""
        ...

    def read_backfill(self, backfill: BackfillId) -> Backfill | None:
        """One backfill; None if it is not there, or cannot be read."""
        ...

    def read_alerts(self) -> tuple[Alert, ...]:
        """All alerts whose records are kept, those that were raised first at the front."""
        ...

    def read_intervals(self, name: PipelineName) -> IntervalIndex | None:
        """What became of a pipeline's data intervals; None: there is no index."""
        ...

    def read_health(self) -> tuple[PipelineHealth, ...]:
        """How pipelines fare of which something is known."""
        ...

    def old_terms(self, most: int) -> tuple[Term, ...]:
        """Terms beyond the newest `most`, oldest first, some hundred at most: history is to have them."""
        ...

    def forget_terms(self, epochs: Sequence[int]) -> None:
        """Forget some terms; nothing, if one of them is not there. Raises as `forget_outcomes`."""
        ...

    def begin(self) -> LeaderTransaction:
        """Begin to collect writes."""
        ...

    def prune_outcomes(self, before: datetime, most: int) -> Pruned:
        """Some of the oldest outcomes: those decided before `before`, and what there is beyond `most`.

        The caller archives them, then has them forgotten; those beyond twice `most` are forgotten now.

        Raises:
            FencedOutError: another scheduler leads.
            StoreUnavailableError: no answer.
        """
        ...

    def prune_keys(self, before: datetime, most: int) -> None:
        """Look at some keys of commands, at most `most`, and forget those decided before `before`.

        The next look goes on with others. Raises as above.
        """
        ...

    def forget_outcomes(self, commands: Sequence[CommandId]) -> None:
        """Forget the outcomes of some commands; nothing, if one of them is not there. Raises as above."""
        ...


class CommandQueue(Protocol):
    """How anybody asks something of the leader. Durable once `submit` returns."""

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
            command: What is asked for.
            submitted_by: The name that is kept with it.
            asked_by: Whose right to it the leader checks.
            key: By which it is known when it is asked for again.
            if_match: As of `QueuedCommand.if_match`.

        Raises:
            KeyUsedError: one with this key was queued before.
        """
        ...

    def keyed(self, key_hash: str) -> KeyedCommand | None:
        """What is known of the command with a key; kept for a day after it was decided."""
        ...

    def outcome(self, command: CommandId, changed: Enqueue | None = None) -> CommandOutcome | None:
        """What became of it; None while it waits, and then `changed` is called when it may be decided.

        Outcomes are kept for about an hour, the last 10,000 of them.
        """
        ...

    def outcomes(self) -> tuple[CommandOutcome, ...]:
        """All that are kept."""
        ...

    def refused_start(self, run: RunId) -> CommandOutcome | None:
        """The newest refusal to start `run`, while it is kept. Reads all outcomes."""
        ...


class ClusterReader(Protocol):
    """Read-only view for API, web and command line: the same on every scheduler."""

    def pipelines(self) -> tuple[PipelineRecord, ...]:
        """The catalog, by name."""
        ...

    def pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """One pipeline."""
        ...

    def backfills(self) -> tuple[Backfill, ...]:
        """All that are kept."""
        ...

    def backfill(self, backfill: BackfillId) -> Backfill | None:
        """One backfill; None if it is not there."""
        ...

    def intervals(self, name: PipelineName) -> IntervalIndex | None:
        """What became of a pipeline's data intervals; None: no run that has one has ended."""
        ...

    def run_list(self) -> Mapping[str, ListedRun]:
        """Live and recently finished runs, by id."""
        ...

    def runs(self, wanted: Iterable[RunId]) -> Mapping[RunId, Run]:
        """Those of some runs that have not moved to history."""
        ...

    def run(self, run: RunId) -> Run | None:
        """One run, unless it has moved to history."""
        ...

    def slots(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        """What there is of some attempts (progress of running ones)."""
        ...

    def schedulers(self) -> tuple[SchedulerInfo, ...]:
        """Registered schedulers."""
        ...

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""
        ...

    def orders(self, workers: Iterable[WorkerId]) -> Mapping[WorkerId, Sequence[str]]:
        """Orders of some workers: the open attempts that each runs, or looks for as their reaper, by name."""
        ...

    def commands(self) -> tuple[QueuedCommand, ...]:
        """Commands that wait."""
        ...

    def settings(self) -> ClusterSettings:
        """Pools, and workers that are cordoned."""
        ...

    def terms(self, most: int) -> tuple[Term, ...]:
        """The newest terms of those whose records are kept, newest first, at most `most`."""
        ...

    def alerts(self) -> tuple[Alert, ...]:
        """Alerts that wait, and those that have ended lately; those that were raised first at the front."""
        ...


class AccessStore(Protocol):
    """What schedulers share to know who asks. All raise StoreUnavailableError."""

    def tokens(self, changed: Enqueue) -> Mapping[str, Token]:
        """The tokens of the cluster, by id; `changed` is called, perhaps several times, when they change."""
        ...

    def session_key(self) -> bytes:
        """The secret that sessions of browsers are signed with; made when it is first asked for."""
        ...


class IdentityProviderError(NimbusError):
    """The identity provider did not answer as OpenID Connect says, or refused."""

    code = "identity_provider"
    retryable = True

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """It answered, and does not let in."""


class IdentityProvider(Protocol):
    """Who knows people and their groups, by OpenID Connect. Called on the API's event loop."""

    async def prepare(self, token: str) -> None:
        """Fetch the keys if that of a token is not known, or they are old. Bounded; never raises."""
        ...

    async def login_url(self, *, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        """Where a browser logs in. `challenge`: of PKCE, method S256. IdentityProviderError."""
        ...

    async def id_token(self, *, code: str, redirect_uri: str, verifier: str) -> str:
        """What the code of a browser that came back stands for. IdentityProviderError."""
        ...


class Catalog(Protocol):
    """The catalog, followed by every scheduler so that it can sync what it needs."""

    def read(self, changed: Enqueue | None = None) -> tuple[PipelineRecord, ...]:
        """All pipelines, without the positions of their schedules, which move with each fire.

        `changed` is called, perhaps several times, when any of them comes, goes or changes.
        """
        ...


class Registrations(Protocol):
    """Ephemeral records of who is alive."""

    def publish_scheduler(self, info: SchedulerInfo) -> None:
        """Write (or write again, also on a new session) this scheduler's registration."""
        ...

    def publish_worker(self, info: WorkerInfo) -> None:
        """Write (or write again) this worker's registration.

        Raises:
            WorkerIdInUseError: a live worker elsewhere has this id.
        """
        ...

    def withdraw(self) -> None:
        """Remove what this process has registered."""
        ...


class AttemptBoard(Protocol):
    """What a worker and its runners read and write of attempts. Create-once, so nothing needs the epoch."""

    def cluster(self) -> ClusterId:
        """Name the cluster whose attempts these are: the same for all who see it, however they reach it."""
        ...

    def claim(self, claim: Claim) -> Claim:
        """Put `claim` into the CLAIM slot; the answer is what stands there: ours, or who was faster.

        Raises:
            AttemptWithdrawnError: the attempt is not known (any more): do not start it.
        """
        ...

    def fill(self, filled: Sequence[Claim | End]) -> Sequence[Claim | End | None]:
        """Put several claims and ends into their slots, in one transaction if nothing is in the way.

        An attempt that is claimed so beats from that moment on.

        Returns:
            What stands in each slot, as of `claim` and `end`; None: the attempt is not known (any more).
        """
        ...

    def refuse(self, claim: Claim, end: End) -> Claim:
        """Put `claim` and `end` into both slots in one step, unless CLAIM is taken.

        A leader that saw the one without the other would close the attempt with a reason of its own.

        Returns:
            What stands in CLAIM; if it is not `claim`, nothing was written.

        Raises:
            AttemptWithdrawnError: the attempt is not known (any more), or was ended before it was claimed.
        """
        ...

    def end(self, end: End) -> End:
        """Put `end` into the END slot; the answer is what stands there.

        Raises:
            AttemptWithdrawnError: the attempt is not known any more (its run is over and archived), or it is
                that of a later run of the same id: the claim whose nonce `end` bears does not stand.
        """
        ...

    def read(self, attempt: AttemptId, changed: Enqueue | None = None) -> Slots:
        """Read the slots; `changed` is called once, when CLAIM, END, beat or stop request appears or goes."""
        ...

    def read_all(self, attempts: Mapping[AttemptId, Enqueue | None]) -> Mapping[AttemptId, Slots]:
        """Read the slots of several attempts together, each with its `changed` as of `read`."""
        ...

    def beat(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """Say that the runner is alive (a node of this session) and how far its driver is."""
        ...

    def keep_checkpoint(self, attempt: AttemptId, nonce: str, checkpoint: str) -> None:
        """Keep what the next attempt begins with, in place of what was kept before. Safe to repeat.

        Args:
            attempt: That runs.
            nonce: Of the claim that holds it.
            checkpoint: JSON; see `nimbus.checkpoint`.

        Raises:
            AttemptWithdrawnError: that claim does not stand, or END is filled; what was kept before stays.
        """
        ...

    def note_submitted(self, attempt: AttemptId, driver: ClusterDriver) -> datetime:
        """Say that a driver of the attempt was given to a cluster; for good. Safe to repeat.

        Returns:
            When it was said first.

        Raises:
            AttemptWithdrawnError: the attempt is not known any more.
        """
        ...

    def report(self, attempt: AttemptId, progress: Mapping[str, object]) -> None:
        """Write how far a driver is into the sign of life of its follower; nothing without one."""
        ...

    def attempt_key(self) -> bytes:
        """The cluster's secret that tokens for attempts are made from; made when it is first asked for."""
        ...

    def assignments(self, worker: WorkerId, changed: Enqueue | None = None) -> tuple[Assignment, ...]:
        """Orders to a worker; `changed` is called once, when there are more or fewer."""
        ...


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


class RecentRuns(NamedTuple):
    """Some finished runs, in the order of lists."""

    runs: tuple[Run, ...]
    more_after: RunPlace | None
    """There may be more, after this place. None: these are all."""


class History(Protocol):
    """Finished runs, kept until they are purged."""

    def store(self, run: Run) -> None:
        """Keep a finished run. Safe to repeat."""
        ...

    def read(self, run: RunId) -> Run | None:
        """One finished run."""
        ...

    def store_results(self, run: RunId, results: Results) -> None:
        """Keep what the tasks of a run gave; before the run itself. Safe to repeat."""
        ...

    def results(self, run: RunId) -> Results:
        """What the tasks of a finished run gave."""
        ...

    def recent(self, pipeline: PipelineName | None, limit: int, after: RunPlace | None = None) -> RecentRuns:
        """Finished runs after a place in the order of `nimbus.domain.run_order`, at most `limit`."""
        ...

    def store_outcomes(self, outcomes: Sequence[CommandOutcome]) -> None:
        """Keep outcomes of commands; at least one. Safe to repeat."""
        ...

    def outcomes(
        self, pipeline: PipelineName | None, limit: int, *, refused: bool = False
    ) -> tuple[CommandOutcome, ...]:
        """Outcomes, or refusals alone, newest first; each once. Looks at a bounded number of objects."""
        ...

    def store_terms(self, terms: Sequence[Term]) -> None:
        """Keep terms of leadership that have ended. Safe to repeat."""
        ...

    def terms(self, before: int, limit: int) -> tuple[Term, ...]:
        """Terms of epochs below `before`, newest first, at most `limit`."""
        ...

    def created_before(self, when: datetime, pipeline: PipelineName | None) -> Iterator[RunId]:
        """Ids of finished runs that were created before a moment, newest first. May give one that is gone."""
        ...

    def reusers(self, run: RunId) -> tuple[RunId, ...]:
        """Finished runs that reuse what tasks of `run` did, and have their outputs."""
        ...

    def purged(self, run: RunId) -> Purged | None:
        """What is gone of a run, or is about to go; None: nothing."""
        ...

    def order_purge(self, command: CommandId, order: PurgeOrder) -> None:
        """Keep what a command asked for until the leader's collector has done it. Safe to repeat."""
        ...


@dataclass(frozen=True, slots=True)
class Changed:
    """What changed in the live state since the last look."""

    topics: frozenset[str]
    """As of `nimbus.domain.topics`."""
    version: int
    """Every change up to this one is in `topics`, or was before."""
    upto: int
    """No change of `topics` is later than this one. Not below `version`."""
    lost: bool = False
    """Changes before this look may be missing: whatever was read before it may be old."""


class ChangeFeed(Protocol):
    """What changes in the live state, by topic. Versions mean the same on every scheduler.

    All but `version` are called by one thread at a time.
    """

    def version(self) -> int:
        """Of the last change that this process has seen. From memory; any thread. 0: it has seen none."""
        ...

    def start(self, told: Enqueue) -> None:
        """Begin to gather changes; `told` is called when `take` has some.

        Raises:
            StoreUnavailableError: no answer. Call `stop`.
        """
        ...

    def take(self, *, beats: bool) -> Changed:
        """What has changed. The first look says `lost`.

        Args:
            beats: Also what only says that somebody is alive, or how far it is; `told` is not called for it.

        Raises:
            StoreUnavailableError: no answer. The next look makes up for it.
        """
        ...

    def stop(self) -> None:
        """Gather no more. Safe to repeat."""
        ...


class AlertNotSentError(NimbusError):
    """A target did not accept an alert."""

    code = "alert_not_sent"
    retryable = True

    def __init__(self, message: str, *, doubtful: bool = False) -> None:
        super().__init__(message)
        self.doubtful = doubtful
        """There was no answer: it may have been accepted all the same."""


class AlertTarget(Protocol):
    """Whom alerts are sent to."""

    def send(self, message: AlertMessage) -> None:
        """Send a message, within about 20 s; once it returns, the target has accepted it.

        Raises:
            AlertNotSentError: it was refused, or there was no answer.
        """
        ...


class TelemetryNotSentError(NimbusError):
    """A collector of traces or lineage did not accept what was sent."""

    code = "telemetry_not_sent"
    retryable = True


class RunSink(Protocol):
    """Where traces or lineage of runs are sent. One thread at a time."""

    follows: bool
    """Whether it is told of runs under way; else of finished ones alone."""

    def send(self, before: Run | None, run: Run) -> int:
        """Send what has happened to a run since `before`; None: all. What is sent again has the same ids.

        Returns:
            How many spans or events it was.

        Raises:
            TelemetryNotSentError: not all was accepted; send the whole again.
            NimbusError: what it needs to know could not be read.
        """
        ...

    def close(self) -> None:
        """End a `send` under way soon. From any thread."""
        ...


class Definitions(Protocol):
    """Definitions of the releases on this scheduler's disk. From any thread."""

    def definition(self, release: ReleaseOf) -> PipelineSpec:
        """Read a definition, or know it from before. Waits for no storage.

        Raises:
            DefinitionNotHereError: the release is not here now.
            RefusedError: it has no valid definition.
        """
        ...


class DefinitionNotHereError(NimbusError):
    """A release is not on this disk, or not to be read there: it may be fetched again soon."""

    code = "definition_not_here"
    retryable = True

    def __init__(self, release: ReleaseOf) -> None:
        super().__init__(
            f"release {release.digest[:12]} of {release.pipeline} is not on this disk now, whole and verified"
        )


class Kept(StrEnum):
    """What is kept of an attempt besides its records."""

    LOG = "log"
    """What the task has written to its standard output and error."""
    EVENTS = "events"
    """Spark's event log, compressed by Spark."""


class LogArchive(Protocol):
    """Logs of attempts, readable from any scheduler while they grow and afterwards."""

    def append(self, attempt: AttemptId, offset: int, data: bytes, kept: Kept = Kept.LOG) -> None:
        """Store bytes `offset` to `offset + len(data)` of an attempt's log. Safe to repeat."""
        ...

    def append_all(self, logs: Mapping[AttemptId, bytes]) -> None:
        """Store several logs whole, of any runs. Nothing of them is stored yet, but by an earlier try.

        They cost one object for each run.
        """
        ...

    def read(self, attempt: AttemptId, offset: int = 0, limit: int = 1 << 20, kept: Kept = Kept.LOG) -> bytes:
        """At most `limit` stored bytes from `offset` on; empty where nothing is (yet)."""
        ...

    def size(self, attempt: AttemptId) -> int:
        """Bytes of an attempt's log that are stored, up to the first gap."""
        ...


class Clock(Protocol):
    """Time, so that tests can hold it."""

    def now(self) -> datetime:
        """Wall clock, aware, UTC: for what people see and what outlives a process."""
        ...

    def elapsed_s(self) -> float:
        """Seconds on a clock that never steps and counts suspend: for deadlines within a process."""
        ...
