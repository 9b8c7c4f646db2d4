"""Opens the Spark Connect session of an attempt, and ends it: its runner does so, or else a worker.

Before END the session is released, which interrupts its operations. If the worker's own server does not
answer, or has ended, it is killed instead with all processes that it has started; the attempts of its other
sessions run again. On an external server its own time limits apply. Spark may answer before the last process
of an operation has ended.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import structlog

from nimbus.domain.attempts.slots import ConnectSession
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.connect import server_folder
from nimbus.worker.connect.plan import ConnectPlan, ConnectReach
from nimbus.worker.connect.session import ConnectSessionError, SessionLine, release_elsewhere
from nimbus.worker.host import procfs

_log = structlog.get_logger(__name__)


class AttemptSession:
    """The session of a living runner. Its main thread, after the driver was forked."""

    def __init__(self, folder: AttemptFolder, plan: ConnectPlan, conf: Mapping[str, str]) -> None:
        """Request the session, with the properties `conf`; `opened` waits for the response."""
        self._folder, self._plan = folder, plan
        self._session = ConnectSession(url=plan.url, session_id=plan.session_id)
        self._released: bool | None = None
        folder.note_session(self._session)
        try:
            self._use_fd = server_folder.use(plan.folder) if plan.folder is not None else -1
        except FileNotFoundError:
            raise ConnectSessionError("the worker's Spark Connect server has ended") from None
        self._line = SessionLine(plan)
        self._line.begin(conf)

    def opened(self) -> ConnectSession:
        """The session, for CLAIM and for the driver. Raises ConnectSessionError: it could not be opened."""
        self._session = replace(self._session, server_session_id=self._line.opened())
        self._folder.note_session(self._session)
        return self._session

    @property
    def is_gone(self) -> bool:
        """True if the process of the worker's own server has ended. Always False for external servers."""
        return self._plan.server is not None and not procfs.is_alive(self._plan.server)

    def release(self) -> bool:
        """End the session and its operations, once. False: the server is gone, or did not answer."""
        if self._released is None:
            self._released = _settled(self._plan, answered=not self.is_gone and self._line.release())
            self._line.close()
            if self._use_fd >= 0:
                os.utime(self._use_fd)
                os.close(self._use_fd)
        return self._released


def release_left(session: ConnectSession | None, folder: Path, reach: ConnectReach | None) -> None:
    """Release the session of an attempt whose runner is dead, within a minute. `folder`: the attempt's."""
    if session is None:
        return
    plan = server_folder.plan_of(folder.parents[1], session.session_id, session.url)
    if plan is None and reach is not None:
        plan = reach(session)
    if plan is None:
        return
    is_gone = plan.server is not None and not procfs.is_alive(plan.server)
    if not _settled(plan, answered=not is_gone and release_elsewhere(plan)):
        _log.warning("connect_session_not_released", attempt=folder.name, url=session.url)


def _settled(plan: ConnectPlan, *, answered: bool) -> bool:
    """End a server that did not answer, and programs that it, or a dead server, has started."""
    if not answered and plan.server is not None:
        is_alive = procfs.is_alive(plan.server)
        because = "it does not answer" if is_alive else "it has ended, its programs may not have"
        _log.warning("connect_server_killed", pid=plan.server.pid, because=because)
        server_folder.end_server(plan.server)
    return answered
