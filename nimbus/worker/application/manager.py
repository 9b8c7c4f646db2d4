"""The port to the manager of a Spark cluster: submit a driver, look at drivers, kill one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from nimbus.domain.errors import NimbusError


class ClusterUnreachableError(NimbusError):
    """The manager did not take the request. Nothing was submitted or killed by it."""

    code = "cluster_unreachable"
    retryable = True


class SubmissionUnknownError(NimbusError):
    """The request was sent and no answer came: the driver may have been submitted, or may yet be."""

    code = "submission_unknown"


class SubmissionRefusedError(NimbusError):
    """The manager answered that it does not take the driver."""

    code = "submission_refused"


class DriverState(Enum):
    """What the manager says of a driver. It says nothing of success: see END for that."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"
    UNKNOWN = "unknown"
    """It cannot say at the moment."""


@dataclass(frozen=True, slots=True)
class DriverReport:
    """A driver's state, and the manager's own words for it.

    People read the words while the driver waits: they then say how full the cluster is, if that can be known.
    """

    state: DriverState
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A driver to be started."""

    name: str
    """Tag of the attempt: the application's name, too."""
    bootstrap_url: str
    startup: str
    """The document for the bootstrap; for its environment. It has no dollar sign, which clusters replace."""
    conf: Mapping[str, str]
    environment: Mapping[str, str]


class ClusterManager(Protocol):
    """One cluster. One thread submits while another one asks for the rest; every call has a timeout."""

    def submit(self, submission: Submission) -> str:
        """Submit a driver, once; the id by which the manager knows it.

        Raises:
            ClusterUnreachableError: nothing was submitted.
            SubmissionRefusedError: nothing was submitted, and trying again would not help.
            SubmissionUnknownError: it may have been.
        """
        ...

    def find(self, name: str) -> str | None:
        """The driver that was submitted under a name and has not ended.

        None: there is none, or this manager cannot search.

        Raises:
            ClusterUnreachableError: try again.
        """
        ...

    def look(self, driver: str) -> DriverReport:
        """Look at a driver. Never raises: what cannot be asked is `UNKNOWN`."""
        ...

    def kill(self, driver: str) -> None:
        """Ask for the end of a driver; `look` tells when it is gone. Safe to repeat.

        Raises:
            ClusterUnreachableError: try again.
        """
        ...
