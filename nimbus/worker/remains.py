"""Finds and kills what is left of an attempt's processes. Any thread."""

from __future__ import annotations

import os

from nimbus.worker import procfs
from nimbus.worker.procfs import ProcessId
from nimbus.worker.tags import ATTEMPT_VARIABLE, RUNNER_VARIABLE

_KILL_DEADLINE_S = 10.0


def runners(tag: str) -> list[ProcessId]:
    """Living runners of an attempt, in whosever folder of its cluster.

    A task of another user can give itself the variable, but not our uid.
    """
    found = procfs.with_variable(RUNNER_VARIABLE, tag)
    return [runner for runner in found if procfs.user_of(runner.pid) == os.getuid()]


def kill_session(leader: ProcessId) -> bool:
    """Kill what is left of the session of a dead runner or executor process."""
    return procfs.kill_all(lambda: _of_session(leader), deadline_s=_KILL_DEADLINE_S)


def kill_tagged(tag: str) -> bool:
    """Kill what is left of an attempt, wherever it went: its driver's tag is on all that it started.

    Not while any runner of the attempt lives: its driver bears the tag.
    """

    def find() -> list[ProcessId]:
        if runners(tag):
            return []
        return procfs.with_variable(ATTEMPT_VARIABLE, tag)

    return procfs.kill_all(find, deadline_s=_KILL_DEADLINE_S)


def _of_session(leader: ProcessId) -> list[ProcessId]:
    """Processes of a dead leader's session; none when its pid, and so the session's, was given away."""
    now = procfs.read_stat(leader.pid)
    if now is not None and now.id != leader:
        return []
    return [
        found.id
        for found in procfs.living()
        if found.session == leader.pid and found.id.start_ticks >= leader.start_ticks and found.id != leader
    ]
