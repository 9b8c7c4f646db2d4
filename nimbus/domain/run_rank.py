"""The order in which queued runs start."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.ids import RunId
from nimbus.domain.pipeline import Priority
from nimbus.domain.run import RunCause, RunHeader

TURN = 10
"""One run in so many that are started is a backfill's, if one waits, so that other runs do not starve it."""

RunRank = tuple[Priority, bool, datetime, RunId]


def run_rank(run: RunHeader) -> RunRank:
    """By priority; scheduled runs before others; first in, first out. The least starts first."""
    return run.priority, run.cause is not RunCause.SCHEDULE, run.created_at, run.id
