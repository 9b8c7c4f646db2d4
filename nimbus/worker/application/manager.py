"""The port to the manager of a Spark cluster: submit, find, check and kill drivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from nimbus.domain.errors import NimbusError


class ClusterUnreachableError(NimbusError):
    """The manager did not accept the request, so nothing was submitted or killed."""

    code = "cluster_unreachable"
    retryable = True


class SubmissionUnknownError(NimbusError):
    """The request was sent without an answer: the driver may have been submitted, or may be later."""

    code = "submission_unknown"


class SubmissionRefusedError(NimbusError):
    """The manager refused the driver."""

    code = "submission_refused"


class DriverState(Enum):
    """The manager's state of a driver. It does not show success: only END does."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"
    UNKNOWN = "unknown"
    """The state cannot be read at the moment."""


@dataclass(frozen=True, slots=True)
class DriverReport:
    """A driver's state, and the manager's description of it.

    The description is shown to users while the driver waits. It then includes how full the cluster is, if
    known.
    """

    state: DriverState
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to start a driver."""

    name: str
    """The attempt's tag, which is also the application's name."""
    bootstrap_url: str
    startup: str
    """The bootstrap's document, for its environment. It has no dollar sign, which clusters expand."""
    conf: Mapping[str, str]
    environment: Mapping[str, str]


class ClusterManager(Protocol):
    """One cluster. One thread submits, another one makes all other calls; every call has a timeout."""

    def submit(self, submission: Submission) -> str:
        """Submit a driver once; return the manager's id for it.

        Raises:
            ClusterUnreachableError: nothing was submitted.
            SubmissionRefusedError: nothing was submitted, and a retry would fail again.
            SubmissionUnknownError: it may have been submitted.
        """
        ...

    def find(self, name: str) -> str | None:
        """The driver that was submitted with a name and has not ended.

        None if there is none, or if this manager cannot search.

        Raises:
            ClusterUnreachableError: try again.
        """
        ...

    def look(self, driver: str) -> DriverReport:
        """Check a driver. Never raises: the state is `UNKNOWN` if it cannot be read."""
        ...

    def kill(self, driver: str) -> None:
        """Request the end of a driver; `look` shows when it is gone. Safe to repeat.

        Raises:
            ClusterUnreachableError: try again.
        """
        ...
