"""Finds the processes of attempts by variables of their environment, and kills the rest. Any thread."""

from __future__ import annotations

import os

from nimbus.domain.ids import ClusterId
from nimbus.worker.host import procfs
from nimbus.worker.host.procfs import ProcessId

ATTEMPT_VARIABLE = "NIMBUS_ATTEMPT"
"""In the environment of a driver and of all processes that it starts."""
RUNNER_VARIABLE = "NIMBUS_RUNNER_OF"
EXECUTOR_VARIABLE = "NIMBUS_EXECUTOR_OF"
"""In the environment of an executor; its value is the worker's folder."""
JVM_KEEPER_VARIABLE = "NIMBUS_JVM_OF"
"""In the environment of a kept JVM and of all processes that it starts, and of its keeper."""


def jvm_keeper_tag(keeper: ProcessId) -> str:
    """The value of `JVM_KEEPER_VARIABLE`."""
    return f"{keeper.pid}/{keeper.start_ticks}"


def attempt_tag(cluster: ClusterId, attempt: str) -> str:
    """The value of the first two. It names the cluster, because scheduled runs have the same ids in each."""
    return f"{cluster}/{attempt}"


def runners(tag: str) -> list[ProcessId]:
    """Living runners of an attempt, of any worker of its cluster.

    A task of another user can set the variable, but cannot have our uid.
    """
    tagged = procfs.with_variable(RUNNER_VARIABLE, tag)
    return [runner for runner in tagged if procfs.user_of(runner.pid) == os.getuid()]


def kill_session(leader: ProcessId) -> bool:
    """Kill the remaining processes of the session of a dead runner or executor."""
    return procfs.kill_all(lambda: _of_session(leader))


def kill_jvm_keeper(keeper: ProcessId) -> bool:
    """Kill the keeper of a JVM, the JVM, and all processes below it."""

    def find() -> list[ProcessId]:
        below = procfs.identities(keeper.pid) if procfs.is_alive(keeper) else []
        tagged = procfs.with_variable(JVM_KEEPER_VARIABLE, jvm_keeper_tag(keeper))
        return [*tagged, *_of_session(keeper), *below]

    return procfs.kill_all(find)


def kill_tagged(tag: str) -> bool:
    """Kill the remaining processes of an attempt: its driver's tag is in the environment of all of them.

    Do not call it while a runner of the attempt lives, because its driver has the tag, too.
    """

    def find() -> list[ProcessId]:
        if runners(tag):
            return []
        return procfs.with_variable(ATTEMPT_VARIABLE, tag)

    return procfs.kill_all(find)


def _of_session(leader: ProcessId) -> list[ProcessId]:
    return [process for process in procfs.session_of(leader) if process != leader]
