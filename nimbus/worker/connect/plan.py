"""How an attempt connects to a Spark Connect server, and the port through which a worker provides one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nimbus.domain.attempts.slots import ConnectSession
from nimbus.worker.host.procfs import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPlan:
    """The session of an attempt in `mode: connect`, and its server."""

    url: str
    """`sc://host:port`, with `;use_ssl=true` if the server uses TLS."""
    token: str | None = field(default=None, repr=False)
    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """New for each launch, so that no attempt gets a session that was used before."""
    server: ProcessId | None = None
    """The process of the worker's own server; None: an external server."""
    folder: Path | None = None
    """The folder of that server."""


ConnectReach = Callable[[ConnectSession], ConnectPlan | None]
"""The plan for a session on an external server; None if this worker does not know the server. Any thread."""


class ConnectProvider(Protocol):
    """A worker's server for tasks in `mode: connect`. Any thread may call it."""

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """See `ConnectReach`."""

    def is_up(self) -> bool:
        """True if `plan` returns at once."""

    def plan(self) -> ConnectPlan:
        """A session plan for an attempt; starts a server if there is none. ConnectServerError: it cannot."""

    def look_after(self) -> bool:
        """Stop unused servers; return True if any is left. Called from time to time; never blocks long."""

    def close(self) -> None:
        """The worker ends; servers in use continue."""
