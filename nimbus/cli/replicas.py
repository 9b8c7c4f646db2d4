"""Waiting, between publishing and activating, until enough schedulers have verified a release."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.log_lines import logs_on_stderr

if TYPE_CHECKING:
    from blobsync import ObjectStore, ReplicaReport


@dataclass(frozen=True, slots=True)
class ReplicaWish:
    """How many schedulers must have a release, and what happens if too few have it in time."""

    wanted: int
    timeout: timedelta
    policy: str
    """`reject` or `proceed`."""


def replica_wish(wanted: int, timeout: str, policy: str) -> ReplicaWish:
    """Build the wish from the options.

    Raises:
        CliError: the timeout is no duration.
    """
    if not wanted:
        return ReplicaWish(0, timedelta(0), policy)
    from nimbus.config.problems import SuggestingError
    from nimbus.config.values import parse_duration

    try:
        return ReplicaWish(wanted, parse_duration(timeout), policy)
    except SuggestingError as exc:
        hint = f' (did you mean "{exc.suggestion}"?)' if exc.suggestion else ""
        raise CliError(f"--replica-timeout: {exc}{hint}", code="bad_duration", exit_code=Exit.USAGE) from exc


def await_replicas(store: ObjectStore, digest: str, wish: ReplicaWish) -> ReplicaReport:
    """Wait for replicas. Too few are no error here: the report's `warning` describes what is missing.

    Raises:
        BlobSyncError: storage failed.
    """
    from blobsync import ReplicaBoard, ReplicaPolicy, wait_for_replicas

    with logs_on_stderr():
        return wait_for_replicas(
            ReplicaBoard(store), digest, wish.wanted, wish.timeout, ReplicaPolicy.PROCEED
        )


def replica_data(report: ReplicaReport) -> dict[str, Any]:
    """The report as JSON data."""
    return {
        "wanted": report.wanted,
        "holders": list(report.replicas.holders),
        "lacking": list(report.replicas.lacking),
        "silent": list(report.replicas.silent),
        "warning": report.warning,
    }
