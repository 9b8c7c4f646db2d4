"""Environment variables that identify the processes of attempts."""

from __future__ import annotations

from nimbus.domain.ids import ClusterId
from nimbus.worker.procfs import ProcessId

ATTEMPT_VARIABLE = "NIMBUS_ATTEMPT"
"""In the environment of a driver and of all processes that it starts."""
RUNNER_VARIABLE = "NIMBUS_RUNNER_OF"
"""In the environment of a runner."""
EXECUTOR_VARIABLE = "NIMBUS_EXECUTOR_OF"
"""In the environment of an executor; its value is the worker's folder."""


KEEPER_VARIABLE = "NIMBUS_JVM_OF"
"""In the environment of a kept JVM and of all processes that it starts, and of its keeper."""


def keeper_tag(keeper: ProcessId) -> str:
    """The value of `KEEPER_VARIABLE`."""
    return f"{keeper.pid}/{keeper.start_ticks}"


def attempt_tag(cluster: ClusterId, attempt: str) -> str:
    """The value of the first two. It names the cluster, because scheduled runs have the same ids in each."""
    return f"{cluster}/{attempt}"
