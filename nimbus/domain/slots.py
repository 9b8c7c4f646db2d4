"""The two slots of an attempt, CLAIM and END, and what else stands beside them.

Each slot is created once, by the first process that tries, and never changed. CLAIM says which process runs
the attempt and is written before user code; END says how it ended and *is* the commit. A leader fences an
attempt by writing into the slot itself. Source: SPARK-FACTS 6; docs/adr/0003.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from nimbus.domain.failures import FailureClass
from nimbus.domain.ids import HostId, WorkerId
from nimbus.domain.task_run import Outcome


class Holder(StrEnum):
    """What runs an attempt: by that it is found, looked at and ended."""

    PROCESS = "process"
    """A runner of its own, with its driver."""
    POOLED = "pooled"
    """An executor, which forks a child for each of its attempts. Its children die with it."""
    APPLICATION = "application"
    """A driver inside a cluster, which the cluster's manager looks after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectSession:
    """The session on a Spark Connect server that an attempt works in. No secrets."""

    url: str
    session_id: str
    server_session_id: str = ""
    """The server's own name for it: another one means that the server has forgotten the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDriver:
    """The driver of an attempt inside a cluster, as its bootstrap knows it."""

    target: str
    """Name of the place in the workers' configuration."""
    id: str
    """By which the cluster's manager knows the driver: a submission, an application, a pod's uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who runs an attempt, or that nobody ever will."""

    attempt: str
    fenced_by_epoch: int | None = None
    """Set: a leader (or, as epoch 0, the worker that could not start it) closed the attempt unstarted."""
    worker: WorkerId | None = None
    host: HostId | None = None
    holder: Holder = Holder.PROCESS
    pid: int | None = None
    """The driver's process; not known of a pooled attempt, which is claimed before it is forked."""
    start_ticks: int | None = None
    """The process's start time in clock ticks since boot: a pid alone is no identity, pids wrap."""
    claimed_at: datetime
    nonce: str | None = None
    """Random. An END with a nonce is accepted only where its claim stands. None: a leader's."""

    folder: str | None = None
    """Of the attempt, on that host: its exit record stands there until it is delivered. An absolute path."""
    session: ConnectSession | None = None
    """Of a task in `mode: connect`."""
    driver: ClusterDriver | None = None
    """Of an attempt in a cluster. Then `host` and `worker` are those of who submitted it."""

    @property
    def is_fenced(self) -> bool:
        """No driver holds the slot."""
        return self.fenced_by_epoch is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an attempt ended. The first one written counts, whatever a cluster manager says later."""

    attempt: str
    outcome: Outcome
    written_by: str
    """`runner`, `executor`, `worker` or `leader`."""
    ended_at: datetime
    started_at: datetime | None = None
    exit_code: int | None = None
    failure: FailureClass | None = None
    """Of an attempt that failed or timed out. None: another outcome, or the worker does not tell it."""
    pipeline_at_fault: bool = False
    """It was refused for what its pipeline is or asks for: the worker may start attempts of others."""
    reason: str = ""
    output: str | None = None
    """Of a success: the reference of its output, relative to `worker.data`."""
    nonce: str | None = None
    """Of the claim that it ends. Tells the attempt from one of the same id in a later run."""
    application: str | None = None
    """See `Attempt.application`."""
    result: Mapping[str, Any] | None = None
    """Of a success: what the task gave with `ctx.result`; see `nimbus.result`."""
    checkpoint: str | None = None
    """Of any other outcome: the last one that its host had, as JSON; see `nimbus.checkpoint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """All that ZooKeeper says of one attempt, read at one moment."""

    claim: Claim | None = None
    end: End | None = None
    beating: bool = False
    """The runner's own session is alive."""
    stop_requested: bool = False
    submitted: ClusterDriver | None = None
    """Its driver was given to a cluster, and may wait there for its start."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    """The last one that was kept while it ran, as JSON. The leader does not read it."""
