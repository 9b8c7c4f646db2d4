"""The two slots of an attempt, CLAIM and END, and the records beside them.

Each slot is created once, by the first process that tries, and never changed. CLAIM says which process runs
the attempt and is written before user code; END says how it ended and *is* the commit. A leader fences an
attempt by writing into the slot itself. Source: docs/adr/0003.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from nimbus.domain.attempts.cost import Cost
from nimbus.domain.data.publications import Table
from nimbus.domain.ids import AttemptId, HostId, WorkerId
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs.task_run import Outcome

LONGEST = 64
"""Limit in characters. Spark's own ids are shorter: `application_1410901177871_0001`, `spark-<32 hex>`."""
_FORM = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}")

_PAGE = re.compile(
    r"https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]{0,200})?"
)


def application_id(told: object) -> str | None:
    """The id that a driver reported; None: it is not valid. User code may have written it."""
    return told if isinstance(told, str) and _FORM.fullmatch(told) else None


def page_address(told: object) -> str | None:
    """The address of Spark's own pages that a driver reported; None: it is no plain address of a host."""
    return told if isinstance(told, str) and _PAGE.fullmatch(told) else None


class Holder(StrEnum):
    """What runs an attempt. It decides how the attempt is found, watched and ended."""

    PROCESS = "process"
    """Its own runner, with the driver."""
    POOLED = "pooled"
    """An executor, which forks a child process for each attempt. The children die with the executor."""
    APPLICATION = "application"
    """A driver inside a cluster, which the cluster manager supervises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectSession:
    """The session on a Spark Connect server that an attempt uses. No secrets."""

    url: str
    session_id: str
    server_session_id: str = ""
    """The server's own id of the session. If it changes, the server has lost the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDriver:
    """The driver of an attempt inside a cluster, as its bootstrap reports it."""

    target: str
    """Name of the target in the workers' configuration."""
    id: str
    """Id of the driver at the cluster manager: a submission id, an application id, or a pod's uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The process that runs an attempt, or the fact that the attempt is fenced."""

    attempt: str
    fenced_by_epoch: int | None = None
    """Set: the attempt never starts. Epoch of the leader that fenced it; 0: a worker could not start it."""
    worker: WorkerId | None = None
    host: HostId | None = None
    holder: Holder = Holder.PROCESS
    pid: int | None = None
    """Id of the driver process; None for a pooled attempt, which is claimed before the fork."""
    start_ticks: int | None = None
    """Start time of the process, in clock ticks since boot. A pid alone is no identity: it is reused."""
    claimed_at: datetime
    nonce: str | None = None
    """Random. An END with a nonce is accepted only if CLAIM has the same nonce. None: a leader's claim."""

    folder: str | None = None
    """Absolute path of the attempt's folder on that host, which keeps the exit record until delivery."""
    session: ConnectSession | None = None
    """Set for a task in `mode: connect`."""
    driver: ClusterDriver | None = None
    """Set for an attempt in a cluster. `host` and `worker` are then those of the submitting worker."""

    @property
    def is_fenced(self) -> bool:
        """True when no driver holds the slot."""
        return self.fenced_by_epoch is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an attempt ended. The first END written counts, whatever a cluster manager reports later."""

    attempt: str
    outcome: Outcome
    written_by: str
    """`runner`, `executor`, `worker` or `leader`."""
    ended_at: datetime
    started_at: datetime | None = None
    exit_code: int | None = None
    failure: FailureClass | None = None
    """Class of a failure or timeout. None: another outcome, or the worker does not report it."""
    pipeline_at_fault: bool = False
    """True: it was refused because of its pipeline. The worker may start attempts of other pipelines."""
    reason: str = ""
    output: str | None = None
    """For a success: the reference of its output, relative to `worker.data`."""
    nonce: str | None = None
    """Nonce of the attempt's claim. It distinguishes the attempt from one with the same id in a later run."""
    application: str | None = None
    """See `Attempt.application`."""
    jvm: str = ""
    """See `Attempt.jvm`."""
    cost: Cost | None = None
    """What it used; None: not known, as of an attempt that never ran, or whose holder died."""
    result: Mapping[str, Any] | None = None
    """For a success: the value of `ctx.result`; see `nimbus.result`."""
    table: Table | None = None
    """For a success whose output is published: its columns, if it is a table that can be read."""
    checkpoint: str | None = None
    """For any other outcome: the last checkpoint on its host, as JSON; see `nimbus.checkpoint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """All records of one attempt in ZooKeeper, read at one moment."""

    claim: Claim | None = None
    end: End | None = None
    has_heartbeat: bool = False
    """True while the runner's session is alive."""
    stop_requested: bool = False
    submitted: ClusterDriver | None = None
    """Set: its driver was submitted to a cluster, and may wait there for its start."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    """The last checkpoint stored while the attempt ran, as JSON. The leader does not read it."""


def earlier(attempt: AttemptId) -> list[AttemptId]:
    """The earlier attempts of the same task, newest first."""
    return [AttemptId(attempt.run, attempt.task, number) for number in range(attempt.number - 1, 0, -1)]


def inherited(slots: Mapping[AttemptId, Slots]) -> str | None:
    """The newest checkpoint of some attempts of one task, as JSON; None: they have none.

    All these attempts have ended, so the answer cannot change. A checkpoint in END is newer than one that was
    stored while the attempt ran.
    """
    for attempt in sorted(slots, key=lambda attempt: attempt.number, reverse=True):
        own = slots[attempt]
        if own.end is not None and own.end.checkpoint is not None:
            return own.end.checkpoint
        if own.checkpoint is not None:
            return own.checkpoint
    return None
