"""Commands: requests to the leader. Each is carried out exactly once, or refused with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal, get_args

from nimbus.domain.cluster.access import AccessRole, Principal
from nimbus.domain.cluster.settings import Hold
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import (
    BackfillId,
    CommandId,
    DatasetName,
    PipelineName,
    ReleaseDigest,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.backfill import BackfillRequest, BackfillState
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Priority
from nimbus.domain.runs.run import RunPart, RunState
from nimbus.domain.runs.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandKey:
    """Identifies a repeated request, by its header `Idempotency-Key`. Both fields are hexadecimal digests."""

    hash: str
    """Digest of the principal and the key that it chose: 32 characters."""
    request: str
    """Digest of method, path, body and `If-Match`: a different request with the same key is an error."""


class CommandKind:
    """What a kind of command declares beside its fields, where it differs from most."""

    __slots__ = ()
    needs_role: ClassVar[AccessRole] = AccessRole.OPERATOR
    """The lowest role that may send it."""
    stops: ClassVar[bool] = False
    """True: it stops something, and goes before other commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRelease(CommandKind):
    """Add a release, whose files are already in storage, to the catalog; activate it if requested."""

    pipeline: PipelineName
    digest: ReleaseDigest
    activate: bool = False
    type: Literal["publish_release"] = "publish_release"
    needs_role: ClassVar[AccessRole] = AccessRole.AUTHOR


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivatePipeline(CommandKind):
    """Make a release the active one (None: the newest published), and let its schedule fire."""

    pipeline: PipelineName
    digest: ReleaseDigest | None = None
    reason: str = ""
    drop_due: bool = False
    """True: what changed before starts nothing."""
    type: Literal["activate_pipeline"] = "activate_pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePipeline(CommandKind):
    """Stop the schedule; runs that are under way go on."""

    pipeline: PipelineName
    type: Literal["pause_pipeline"] = "pause_pipeline"
    stops: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindSchedule(CommandKind):
    """Let the schedule go on from now, although a clock that was ahead has moved its position further."""

    pipeline: PipelineName
    reason: str
    type: Literal["rewind_schedule"] = "rewind_schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePipeline(CommandKind):
    """Take a pipeline out of the catalog. Refused while it has live runs. Its releases stay in storage."""

    pipeline: PipelineName
    type: Literal["remove_pipeline"] = "remove_pipeline"
    needs_role: ClassVar[AccessRole] = AccessRole.AUTHOR


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun(CommandKind):
    """Start a run of the active release. The caller chooses the id, so a repeated command starts one run."""

    pipeline: PipelineName
    run_id: RunId
    parameters: Mapping[str, Any] = field(default_factory=dict)
    logical_date: datetime | None = None
    """None: the end of the data interval, else the time of acceptance."""
    data_interval: DataInterval | None = None
    priority: Priority | None = None
    release: ReleaseDigest | None = None
    """None: the active one."""
    selection: Selection | None = None
    """Which tasks are run; None: all."""
    type: Literal["start_run"] = "start_run"

    @property
    def rerun_of(self) -> RunId | None:
        """The run to repeat, which must have ended; None: this is no rerun."""
        return None if self.selection is None or not self.selection.is_rerun else self.selection.reuse


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun(CommandKind):
    """End a run: no new task starts, and running tasks are stopped."""

    run_id: RunId
    reason: str
    type: Literal["stop_run"] = "stop_run"
    stops: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRun(CommandKind):
    """Start no new tasks of a run until it is resumed. Running tasks go on, and its deadline still counts."""

    run_id: RunId
    type: Literal["pause_run"] = "pause_run"
    stops: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRun(CommandKind):
    """Undo `PauseRun`."""

    run_id: RunId
    type: Literal["resume_run"] = "resume_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideApproval(CommandKind):
    """Approve or reject a waiting task of type `approval`. A rejected task fails."""

    run_id: RunId
    task: TaskName
    approved: bool
    reason: str
    type: Literal["decide_approval"] = "decide_approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkTask(CommandKind):
    """Set a waiting task to succeeded or skipped without running it. Its run moves on at once."""

    run_id: RunId
    task: TaskName
    state: Literal["succeeded", "skipped"]
    reason: str
    type: Literal["mark_task"] = "mark_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBackfill(CommandKind):
    """Start runs for the dates of a range. The caller chooses the id, so a repeated command creates one."""

    pipeline: PipelineName
    backfill: BackfillId
    request: BackfillRequest
    digest: ReleaseDigest | None = None
    """Digest of the release of its runs; None: of the active one."""
    type: Literal["create_backfill"] = "create_backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlBackfill(CommandKind):
    """Pause, resume or cancel a backfill."""

    backfill: BackfillId
    to: BackfillState
    """Any state except FINISHED."""
    reason: str = ""
    type: Literal["steer_backfill"] = "steer_backfill"


MAX_SELECTED = 1000
"""Limit of the targets of one selection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActOnSelection(CommandKind):
    """Do the same with several runs or pipelines.

    The leader queues one command for each, a few at a time, until all have one. Each is then decided and
    answered by itself, as if its requester had sent it.
    """

    action: Literal["stop", "rerun", "pause", "resume"]
    of: Literal["runs", "pipelines"]
    """Pipelines are paused and resumed only."""
    targets: Mapping[str, str]
    """Those that have no command yet: of a run its pipeline, of a pipeline its active release."""
    queued: int = 0
    """Number of commands that are queued."""
    reason: str
    scope: Literal["all", "failed"] = "failed"
    """Which tasks a rerun executes."""
    same_release: bool = True
    """False: reruns are of the active releases."""
    type: Literal["act_on_selection"] = "act_on_selection"


def part_of(selection: CommandId, number: int) -> CommandId:
    """Id of a command of a selection: fixed by its number, so that no two leaders can queue it twice."""
    return CommandId(f"{selection}-{number:04d}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPool(CommandKind):
    """Create a pool, or change its size. Size 0: no new attempt gets room in it."""

    pool: str
    size: int
    type: Literal["set_pool"] = "set_pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePool(CommandKind):
    """Remove a pool. Refused while tasks of live runs need it."""

    pool: str
    type: Literal["remove_pool"] = "remove_pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetShare(CommandKind):
    """Set the weight of a team's share. Weight 1, that of other teams, needs no record."""

    team: str
    weight: int
    reason: str = ""
    type: Literal["set_share"] = "set_share"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCalendar(CommandKind):
    """Set a calendar of the cluster; without days, remove it. Refused while a pipeline follows it."""

    name: str
    days: Calendar | None
    reason: str = ""
    type: Literal["set_calendar"] = "set_calendar"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHold(CommandKind):
    """Hold starts, or change a hold; None: end it. What runs goes on."""

    name: str
    hold: Hold | None
    type: Literal["set_hold"] = "set_hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetVariable(CommandKind):
    """Set a variable of the cluster. Existing runs keep the old value."""

    name: str
    value: str
    type: Literal["set_variable"] = "set_variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVariable(CommandKind):
    """Remove a variable. Existing runs keep its value."""

    name: str
    type: Literal["remove_variable"] = "remove_variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonWorker(CommandKind):
    """Give a worker no new attempts until it is uncordoned. Its open attempts go on."""

    worker: WorkerId
    reason: str
    drain: bool = False
    """True: its attempts of tasks that are kept running end, too, and start on other workers."""
    type: Literal["cordon_worker"] = "cordon_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonWorker(CommandKind):
    """Undo `CordonWorker`."""

    worker: WorkerId
    type: Literal["uncordon_worker"] = "uncordon_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateToken(CommandKind):
    """Create a token. The caller chooses id and secret, and sends only the secret's SHA-256."""

    id: str
    name: str
    role: AccessRole
    teams: tuple[str, ...] = ()
    sha256: str
    expires_at: datetime | None = None
    type: Literal["create_token"] = "create_token"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeToken(CommandKind):
    """Revoke a token, for new requests and for commands that wait."""

    id: str
    type: Literal["revoke_token"] = "revoke_token"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN
    stops: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantAccess(CommandKind):
    """Give a principal or a team a role on something. Another grant of the same pair is replaced."""

    who: str
    role: AccessRole
    on: str
    """As of `AccessGrant.on`."""
    reason: str
    type: Literal["grant_access"] = "grant_access"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeAccess(CommandKind):
    """Take a grant away, for new requests and for commands that wait."""

    who: str
    on: str
    reason: str
    type: Literal["revoke_access"] = "revoke_access"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN
    stops: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOwner(CommandKind):
    """Set the owner of a pipeline: a principal or a team. None: admins alone."""

    pipeline: PipelineName
    owner: str | None
    type: Literal["set_owner"] = "set_owner"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRuns(CommandKind):
    """Delete parts of one ended run, or of the runs of a pipeline from before a moment."""

    parts: tuple[RunPart, ...]
    reason: str
    run_id: RunId | None = None
    pipeline: PipelineName | None = None
    before: datetime | None = None
    states: tuple[RunState, ...] = ()
    """None: any."""
    type: Literal["purge_runs"] = "purge_runs"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRun(CommandKind):
    """Note something about an ended run, or about a task of it. Replaces the note before."""

    run_id: RunId
    pipeline: PipelineName
    """That of the run."""
    text: str
    """Empty: remove the note."""
    task: TaskName | None = None
    type: Literal["note_run"] = "note_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishDataset(CommandKind):
    """Publish a version of a dataset whose data no task made."""

    dataset: DatasetName
    uri: str
    partition: str = ""
    """As of `Version.partition`."""
    sha256: str = ""
    value: Any = None
    type: Literal["publish_dataset"] = "publish_dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawDataset(CommandKind):
    """Publish the content before the newest one of a partition again."""

    dataset: DatasetName
    partition: str
    reason: str
    number: int | None = None
    """Of the version that is wrong: nothing is done if it is not the newest. None: whichever is."""
    type: Literal["withdraw_dataset"] = "withdraw_dataset"
    needs_role: ClassVar[AccessRole] = AccessRole.AUTHOR


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDataset(CommandKind):
    """Remove a dataset with its list of versions. Their runs and outputs stay until they are purged."""

    dataset: DatasetName
    reason: str
    type: Literal["remove_dataset"] = "remove_dataset"
    needs_role: ClassVar[AccessRole] = AccessRole.AUTHOR


DatasetCommand = PublishDataset | WithdrawDataset | RemoveDataset
LiveRunCommand = StopRun | PauseRun | ResumeRun | MarkTask | DecideApproval
"""Commands that change a live run."""
SettingsCommand = (
    SetPool
    | RemovePool
    | SetShare
    | SetCalendar
    | SetHold
    | SetVariable
    | RemoveVariable
    | CordonWorker
    | UncordonWorker
)
TokenCommand = CreateToken | RevokeToken
AccessCommand = GrantAccess | RevokeAccess
PipelineCommand = (
    PublishRelease | ActivatePipeline | PausePipeline | RewindSchedule | RemovePipeline | SetOwner
)
ConditionalCommand = (
    PipelineCommand | ControlBackfill | SetPool | RemovePool | SetVariable | RemoveVariable | TokenCommand
)
"""Commands that change something with a revision; see `nimbus.domain.cluster.revisions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abdicate(CommandKind):
    """Ask the leader to hand over: it closes its latch and queues again."""

    reason: str
    to: str = ""
    """The scheduler that leads next; empty: the next in the queue."""
    type: Literal["abdicate"] = "abdicate"
    needs_role: ClassVar[AccessRole] = AccessRole.ADMIN
    stops: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Abdication:
    """The record of an accepted `Abdicate`. It names the epoch that must end, so that no later one ends."""

    epoch: int
    reason: str
    to: str = ""
    """The scheduler that leads next; empty: the next in the queue."""
    by: str = ""
    """The name of the requester; empty: the leader itself."""
    at: datetime | None = None
    """When it was accepted; None: the leader itself requested it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(CommandKind):
    """A queued command that this version cannot read. It is only ever read, never submitted."""

    reason: str
    type: Literal["unreadable"] = "unreadable"


Command = (
    PipelineCommand
    | StartRun
    | LiveRunCommand
    | CreateBackfill
    | ControlBackfill
    | ActOnSelection
    | PurgeRuns
    | NoteRun
    | Abdicate
    | SettingsCommand
    | TokenCommand
    | AccessCommand
    | DatasetCommand
)


COMMAND_KINDS: tuple[str, ...] = tuple(
    sorted(kind.__dataclass_fields__["type"].default for kind in get_args(Command))
)
"""The `type` of every command."""
_NAMES = {
    "run_id": "run",
    "task": "task",
    "digest": "release",
    "backfill": "backfill",
    "pool": "pool",
    "team": "team",
    "worker": "worker",
    "id": "token",
    "name": "name",
    "dataset": "dataset",
    "who": "who",
    "on": "on",
}


def names_in(command: Command | Unreadable) -> dict[str, str]:
    """Names in a command besides its pipeline, such as `{"run": "sums-1", "task": "load"}`."""
    names = ((said, getattr(command, field, None)) for field, said in _NAMES.items())
    return {said: str(name) for said, name in names if name is not None}


def is_urgent(command: Command | Unreadable) -> bool:
    """True when the command stops something. Urgent commands go before others, in their own order."""
    return command.stops or (isinstance(command, ActOnSelection) and command.action in ("stop", "pause"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCommand:
    """A durable command in the queue."""

    id: CommandId
    command: Command | Unreadable
    submitted_at: datetime
    submitted_by: str = ""
    asked_by: Principal | None = None
    """Whose permission the leader checks. None: nobody's, because the API did not queue the command."""
    key: CommandKey | None = None
    if_match: tuple[str, ...] = ()
    """Allowed revisions of the changed object, or `*`; checked at the decision. Empty: no condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """The outcome of a command. Kept for a while, for the client that sent it."""

    command: CommandId
    accepted: bool
    code: str
    """`ok`, or the stable code of the refusal."""
    message: str
    decided_at: datetime
    epoch: int
    run_id: RunId | None = None
    """For a start: the requested run, so that a refusal can be found by it."""
    kind: str
    """Type of the command, such as `start_run`."""
    pipeline: PipelineName | None = None
    """The pipeline of the command. None: it has none, or it is not known."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Other names in the command, see `names_in`."""
    submitted_by: str = ""
    asked_by: Principal | None = None
    key: CommandKey | None = None
    """The idempotency key, under which the outcome is kept, too."""


def newest_refusal(run: RunId, outcomes: Iterable[CommandOutcome]) -> CommandOutcome | None:
    """The refusal of the newest command that asked to start `run`."""
    refusals = (outcome for outcome in outcomes if outcome.run_id == run and not outcome.accepted)
    return max(refusals, key=lambda outcome: outcome.command, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCommand:
    """The command that a key belongs to."""

    request: str
    """As of `CommandKey.request`."""
    outcome: CommandOutcome | None = None
    """None: the command waits."""

    def may_be_forgotten(self, before: datetime) -> bool:
        """True when the command was decided before `before`. The key of a waiting command is always kept."""
        return self.outcome is not None and self.outcome.decided_at < before


class KeyUsedError(NimbusError):
    """A command with this key was queued before. Nothing was queued."""

    code = "key_used"

    def __init__(self, key: CommandKey) -> None:
        super().__init__(f"a command with key {key.hash} was queued before.")
