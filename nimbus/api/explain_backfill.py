"""Explains what a backfill waits for, as text for people. Pure: facts in, sentence out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from nimbus.api.explain_aside import why_aside
from nimbus.definition.backfill_dates import dates_left
from nimbus.domain.backfill import Backfill, BackfillState
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.leader_report import SetAside
from nimbus.domain.run import ListedRun, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillView:
    """Facts that a backfill's next date depends on."""

    record: PipelineRecord | None
    quarantined: str | None
    """Why its pipeline is quarantined; None: it is not."""
    runs: Collection[ListedRun]
    """Its runs that are not final."""
    leader: str | None
    set_aside: Collection[SetAside] = ()
    """Subjects that the leader has set aside."""


def progress(backfill: Backfill) -> str:
    """Its progress, such as `date 17 of 90, 3 under way`."""
    dealt = backfill.started + backfill.skipped
    total = backfill.request.total
    dates = f"date {dealt}" if total is None or backfill.request.as_one_run else f"date {dealt} of {total}"
    return f"{dates}, {backfill.under_way} under way"


def why_backfill(backfill: Backfill, view: BackfillView) -> str | None:
    """What it waits for, and what would end the wait; None: it has ended."""
    if backfill.state.is_over:
        return None
    if backfill.state is BackfillState.PAUSED:
        return f"paused ({backfill.reason}): `nimbus backfill resume {backfill.id}` lets it go on"
    if view.leader is None:
        return "no scheduler leads at the moment; it goes on when one does"
    if (aside := why_aside(view.set_aside, "backfill", backfill.id)) is not None:
        return aside
    name = backfill.pipeline
    if view.record is not None and view.record.state is PipelineState.PAUSED:
        return f"pipeline {name} is paused: `nimbus pipeline activate {name}` lets it go on"
    if view.quarantined is not None:
        return f"pipeline {name} is quarantined: {view.quarantined}"
    if len(view.runs) < backfill.request.max_parallel:
        return _last_dates(backfill)
    queued = sum(run.state is RunState.QUEUED for run in view.runs)
    if not queued:
        return (
            f"max_parallel ({backfill.request.max_parallel}) is reached: the end of one run starts the next"
        )
    limit = None if view.record is None else view.record.profile.concurrency
    full = "runs.max_running" if limit is None else f"the concurrency limit {limit.limit} of {name}"
    return f"{queued} of its {len(view.runs)} runs are queued, and wait for {full}"


def _last_dates(backfill: Backfill) -> str:
    done = backfill.position is not None if backfill.request.as_one_run else not any(dates_left(backfill))
    if done:
        return "all dates are dealt with: it ends with the last of its runs"
    return f"its next date starts as soon as the leader has release {backfill.release[:12]}"
