"""What a rule says about one subject: a decision, or until when there is nothing to decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nimbus.domain.admission import Gate
from nimbus.domain.alerts import Alert
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.drafts import Draft
from nimbus.domain.ids import CommandId, RunId, TaskName
from nimbus.domain.purge import PurgeOrder
from nimbus.domain.run import Run
from nimbus.domain.terms import Term
from nimbus.domain.waits import Look
from nimbus.domain.writes import RemoveAttempt, RemoveRun, RequestStop, Write, WriteClaim, WriteEnd
from nimbus.engine.agenda import Subject


@dataclass(frozen=True, slots=True)
class PrepareRelease:
    """Bring a release to this leader's own disk, verify it, and read its definition."""

    release: ReleaseOf


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """Store a finished run in history."""

    run: RunId


@dataclass(frozen=True, slots=True)
class ArchiveOutcomes:
    """Store outcomes of commands in history, so that they can be forgotten."""

    outcomes: tuple[CommandOutcome, ...]


@dataclass(frozen=True, slots=True)
class ArchiveTerms:
    """Store terms in history, so that they can be forgotten."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class BuildRun:
    """Make a run out of its release's definition, with its arguments rendered."""

    subject: Subject
    """What starts the run: a command, a pipeline whose schedule fires, or a task."""
    draft: Draft
    parent: Run | None = None
    """Of a child run: where its parameters are rendered."""


@dataclass(frozen=True, slots=True)
class RenderTask:
    """Render the templates of a ready task, which take results of others."""

    run: Run
    task: TaskName


@dataclass(frozen=True, slots=True)
class LookAt:
    """Look whether data is there that tasks wait for."""

    look: Look


@dataclass(frozen=True, slots=True)
class StorePurge:
    """Let storage keep what a command asks for."""

    command: CommandId
    order: PurgeOrder


@dataclass(frozen=True, slots=True)
class ResignLeadership:
    """Close the latch and queue again."""

    reason: str
    to: str = ""
    """The scheduler that leads next; empty: the next in the queue."""


@dataclass(frozen=True, slots=True)
class SendAlert:
    """Send an alert that this leader has claimed."""

    alert: Alert


Effect = (
    PrepareRelease
    | ArchiveRun
    | ArchiveOutcomes
    | ArchiveTerms
    | BuildRun
    | RenderTask
    | LookAt
    | ResignLeadership
    | SendAlert
    | StorePurge
)

MAY_LOSE = (WriteClaim, WriteEnd, RequestStop, RemoveAttempt, RemoveRun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One step of the leader. Its writes are done together.

    A decision has writes or effects, never both: the answer to a write may be lost, and with it what would
    follow. What must follow is decided next, from the records that the write left.
    """

    name: str
    """Past tense, constant: the log's and the metric's key."""
    writes: tuple[Write, ...] = ()
    effects: tuple[Effect, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    """For the log line."""
    repeated: bool = False
    """Each new leader begins it anew, so the log has it for debugging only."""

    def __post_init__(self) -> None:
        if self.writes and self.effects:
            raise ValueError(f"{self.name} has writes and effects: a lost reply would lose the effects")

    @property
    def may_lose(self) -> bool:
        """Whether others may be faster: it fills a slot that a driver can fill at any time, or deletes.

        It then travels in a transaction of its own, so that nothing else is refused with it.
        """
        return any(isinstance(write, MAY_LOSE) for write in self.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Nothing to decide about a subject before `at` or `after_s`; without them: before something changes."""

    at: datetime | None = None
    """On the wall clock."""
    after_s: float | None = None
    """On the clock that counts suspend."""
    gates: tuple[Gate, ...] = ()
    """Of a ready task: what it waits for, other than a worker."""


Answer = Decision | Nothing
