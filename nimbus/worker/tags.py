"""The variables of the environment by which processes of attempts are found."""

from __future__ import annotations

from nimbus.domain.ids import ClusterId

ATTEMPT_VARIABLE = "NIMBUS_ATTEMPT"
"""In the environment of a driver and of all it starts."""
RUNNER_VARIABLE = "NIMBUS_RUNNER_OF"
"""In the environment of a runner."""
EXECUTOR_VARIABLE = "NIMBUS_EXECUTOR_OF"
"""In the environment of an executor; it holds the worker's folder."""


def attempt_tag(cluster: ClusterId, attempt: str) -> str:
    """Spell what the first two hold. Runs of schedules have the same ids in every cluster on a host."""
    return f"{cluster}/{attempt}"
