"""Environment variables that identify the processes of attempts."""

from __future__ import annotations

from nimbus.domain.ids import ClusterId

ATTEMPT_VARIABLE = "NIMBUS_ATTEMPT"
"""In the environment of a driver and of all processes that it starts."""
RUNNER_VARIABLE = "NIMBUS_RUNNER_OF"
"""In the environment of a runner."""
EXECUTOR_VARIABLE = "NIMBUS_EXECUTOR_OF"
"""In the environment of an executor; its value is the worker's folder."""


def attempt_tag(cluster: ClusterId, attempt: str) -> str:
    """The value of the first two. It names the cluster, because scheduled runs have the same ids in each."""
    return f"{cluster}/{attempt}"
