"""How an attempt reaches a server of Spark Connect, and what a worker that has one offers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nimbus.domain.slots import ConnectSession
from nimbus.worker.procfs import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPlan:
    """Where an attempt of a task in `mode: connect` has its session."""

    url: str
    """`sc://host:port`, with `;use_ssl=true` if the server speaks TLS."""
    token: str | None = field(default=None, repr=False)
    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """New for each launch, so that an attempt never meets a session that was used before."""
    server: ProcessId | None = None
    """The worker's own server; None: it is somebody else's."""
    folder: Path | None = None
    """Of that server."""


class ConnectReach(Protocol):
    """Knows servers of Spark Connect. Any thread may call it."""

    def reach(self, session: ConnectSession) -> ConnectPlan | None:
        """How to reach a session on a server of somebody else; None: it is on none that is known here."""
        ...


class ConnectProvider(ConnectReach, Protocol):
    """What a worker has for tasks in `mode: connect`. Any thread may call it."""

    def is_up(self) -> bool:
        """`plan` answers at once."""
        ...

    def plan(self) -> ConnectPlan:
        """A place for an attempt, started if there is none.

        Raises:
            ConnectServerError: it cannot be started.
        """
        ...

    def look_after(self) -> bool:
        """End what nobody uses, and say whether anything is left. Called now and then; never waits long."""
        ...

    def close(self) -> None:
        """The worker ends; what is in use goes on."""
        ...
