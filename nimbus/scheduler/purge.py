"""Deletes logs, outputs and history of runs, by purge commands and by the `retention` settings.

For each run, in this order: write a record of the purged parts, which readers respect from then on; check
again whether other runs use the run; delete the parts; write a mark that all of them are deleted. So no
reader finds a part of something, and the next purge finds the runs without a mark. The build of a rerun reads
the record after its command, and the purge reads commands after it wrote the record, over one session of the
leader: one of them sees the other. Thread `nimbus-collector`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Protocol

import structlog

from blobsync import BlobSyncError, ObjectStore
from nimbus.adapters.s3_purges import S3Purges
from nimbus.adapters.s3_records import ACCEPTED, REFUSED, after
from nimbus.adapters.store.cluster import TreeWholeState
from nimbus.config.sections import RetentionSection
from nimbus.config.values import format_duration
from nimbus.domain.commands import PurgeRuns
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import RunId
from nimbus.domain.runs.purge import (
    RETENTION,
    KeptReason,
    Purged,
    PurgeOrder,
    Used,
    is_restored,
    losing,
    parts_of,
    reused_runs,
    takes,
    used_runs,
    why_kept,
)
from nimbus.domain.runs.run import Run, RunPart, RunPlace
from nimbus.ports import Clock, History
from nimbus.records import UnreadableRecordError
from nimbus.scheduler.output_deletion import delete_below
from nimbus.telemetry.daemon import GarbageMetrics, Outcome

ORDERS_EVERY = timedelta(minutes=1)
"""Pause between two searches for purge orders."""
MAX_WAIT = timedelta(hours=1)
"""Longest pause of an order that fails again and again."""
AT_ONCE = 500
"""Limit of runs in one step. Each step reads the state in ZooKeeper twice."""
LONGEST = timedelta(minutes=5)
"""Limit of one pass, because other collections wait for it. The next pass continues."""

_log = structlog.get_logger(__name__)


class OutputPlace(Protocol):
    """The place of outputs: see `nimbus.scheduler.output_deletion`."""

    def delete(self, purged: Purged) -> bool:
        """Delete all outputs of a run; False: we no longer lead.

        Raises BlobSyncError, NimbusError, OSError: they cannot be deleted now.
        """


@dataclass(slots=True)
class _Tally:
    """The counts of one purge, over one or several passes."""

    purged: int = 0
    kept: int = 0
    failed: int = 0
    reached: RunPlace | None = None


class _NotLeadingError(Exception):
    """We no longer lead, or must stop."""


class RunPurge:
    """Purges. One thread. `store` is the bucket of history and logs.

    `leads` is called right before each request that deletes.
    """

    def __init__(
        self,
        *,
        history: History,
        store: ObjectStore,
        outputs: OutputPlace,
        state: TreeWholeState,
        leads: Callable[[], bool],
        retention: RetentionSection,
        clock: Clock,
        metrics: GarbageMetrics,
    ) -> None:
        self._history, self._store, self._purges = history, store, S3Purges(store)
        self._outputs, self._state, self._leads = outputs, state, leads
        self._retention, self._clock, self._metrics = retention, clock, metrics
        self._begun: dict[str, _Tally] = {}
        """Purges that took too long for one pass, by command or part. A successor starts them again."""
        self._retries: dict[str, tuple[float, float]] = {}
        """When a failed order is tried again, and its wait, in seconds."""

    def carry_out_orders(self, stopping: threading.Event) -> None:
        """Carry out purge orders. An order is kept until it is completed."""
        with _ended():
            for command, order in list(self._purges.orders()):
                now_s, (due_s, wait_s) = self._clock.elapsed_s(), self._retries.get(command, (0.0, 0.0))
                if now_s < due_s:
                    continue
                wait_s = min(max(2 * wait_s, ORDERS_EVERY.total_seconds()), MAX_WAIT.total_seconds())
                self._retries[command] = now_s + wait_s, wait_s  # unless it succeeds
                with _ended():  # an order that fails does not block others
                    done = self._carry_out(order, command, stopping, command=command)
                    if done:
                        self._purges.drop_order(command)
                    if done or command in self._begun:
                        del self._retries[command]
                    else:
                        _log.warning("purge_is_retried", command=command, in_s=wait_s)

    def apply_retention(self, stopping: threading.Event) -> None:
        """Delete parts that are older than the settings allow."""
        with _ended(self._metrics):
            now = self._clock.now()
            for part, keep in self._retention.by_part().items():
                reason = f"retention.{part} is {format_duration(keep)}"
                what = PurgeRuns(parts=(part,), reason=reason, before=now - keep)
                self._carry_out(PurgeOrder(what=what, at=now, by=RETENTION), part, stopping)
                if part is RunPart.HISTORY:
                    deleted = partial(self._metrics.deleted, RunPart.HISTORY.value)
                    for outcomes in (REFUSED, ACCEPTED):
                        delete_below(self._store, outcomes, self._leads, deleted, after(outcomes, now - keep))

    def _carry_out(self, order: PurgeOrder, name: str, stopping: threading.Event, **about: str) -> bool:
        """Purge the runs of an order; False: a part of it could not be done yet."""
        tally = self._begun.setdefault(name, _Tally())
        for purged in self._purges.unfinished():
            self._must_lead()
            self._purges.delete_history(purged)
        candidates, began_s = self._candidates(order.what, tally.reached), self._clock.elapsed_s()
        is_whole = True
        while is_whole and (places := list(islice(candidates, AT_ONCE))):
            self._step(order, [RunId(place.id) for place in places], tally, stopping)
            tally.reached = places[-1]
            is_whole = self._clock.elapsed_s() - began_s < LONGEST.total_seconds()
            _log.info("purge_goes_on", **about, purged=tally.purged, kept=tally.kept, failed=tally.failed)
        if is_whole:
            del self._begun[name]
        if is_whole and (tally.purged or tally.failed or about):
            done = {"purged": tally.purged, "kept": tally.kept, "failed": tally.failed}
            _log.info("purge_finished", **about, by=order.by, why=order.what.reason, **done)
        return is_whole and not tally.failed

    def _candidates(self, what: PurgeRuns, beyond: RunPlace | None) -> Iterator[RunPlace]:
        if what.run_id is not None:
            return iter((RunPlace(0, what.run_id),))
        if what.before is None:
            return iter(())
        return self._purges.unpurged_before(what.before, what.parts, what.pipeline, beyond)

    def _step(
        self, order: PurgeOrder, ids: Iterable[RunId], tally: _Tally, stopping: threading.Event
    ) -> None:
        used, noted, going = self._used(), [], set[RunId]()
        for run in self._runs(order, ids, stopping):
            kept = self._why_kept(run, order.what, used, going)
            tally.kept += kept is not None
            with _of_one(run, tally):
                if parts := losing(order.what, kept):
                    noted.append((run, self._note(run, parts, order), parts))
                    going |= {run.id} if RunPart.OUTPUTS in parts else set()
        used = self._used() if noted else used
        for run, before, parts in noted:
            self._go_on(stopping)
            with _of_one(run, tally):
                self._purge(run, before, parts, order, used)
                tally.purged += 1

    def _runs(self, order: PurgeOrder, ids: Iterable[RunId], stopping: threading.Event) -> Iterator[Run]:
        """The runs that the order selects. A run that cannot be read stays as it is."""
        for run_id in ids:
            self._go_on(stopping)
            try:
                run = self._history.read(run_id)
            except UnreadableRecordError as exc:
                _log.error("record_unreadable", place=exc.place, error=str(exc))
            else:
                if run is not None and takes(order.what, run):
                    yield run

    def _note(self, run: Run, parts: Iterable[RunPart], order: PurgeOrder) -> Purged:
        """Record that parts of a run are purged. Return the earlier record."""
        before = self._history.purged(run.id) or Purged(
            run=run.id, pipeline=run.pipeline, created_at=run.created_at
        )
        noted = before.with_parts(parts, order.said)
        if noted != before:
            self._purges.note(noted)
        return before

    def _purge(
        self, run: Run, before: Purged, parts: tuple[RunPart, ...], order: PurgeOrder, used: Used
    ) -> None:
        kept = self._why_kept(run, order.what, used)
        left = losing(order.what, kept)
        noted = before.with_parts(left, order.said)
        if left != parts:  # a rerun came in between
            # Parts in an earlier leader's record stay in it: that leader may have begun to delete them.
            self._purges.note(noted)
        for part in left:
            self._delete(run, noted, part)

    def _delete(self, run: Run, noted: Purged, part: RunPart) -> None:
        self._must_lead()
        match part:
            case RunPart.HISTORY:
                self._purges.delete_history(noted)
                self._metrics.deleted("history", 1, 0)
                return
            case RunPart.LOGS | RunPart.OUTPUTS if self._purges.is_done(noted, part):
                return
            case RunPart.LOGS:
                deleted = partial(self._metrics.deleted, "logs")
                whole = delete_below(self._store, f"logs/{run.id}/", self._leads, deleted)
            case RunPart.OUTPUTS:
                whole = self._outputs.delete(noted)
                for earlier in sorted(reused_runs(run)) if whole else ():
                    self._purges.forget_reuse(earlier, run.id)
                if whole:
                    self._history.forget_versions(run)
        if not whole:
            raise _NotLeadingError
        self._purges.mark_done(noted, part)

    def _why_kept(
        self, run: Run, what: PurgeRuns, used: Used, going: Iterable[RunId] = ()
    ) -> KeptReason | None:
        """`going`: newer runs whose outputs are deleted earlier in the same step."""
        reusers = () if parts_of(what) == (RunPart.LOGS,) else self._history.reusers(run.id)
        restored = is_restored(run, used, self._state.dataset)
        published = KeptReason.PUBLISHED if restored else self._history.kept_version(run, self._clock.now())
        return why_kept(run, used, set(reusers).difference(going), published)

    def _used(self) -> Used:
        commands = self._state.all_commands()  # before runs, because commands become runs
        return used_runs(commands, self._state.all_runs(), self._history.read)

    def _go_on(self, stopping: threading.Event) -> None:
        if stopping.is_set():
            raise _NotLeadingError
        self._must_lead()

    def _must_lead(self) -> None:
        if not self._leads():
            raise _NotLeadingError


@contextmanager
def _of_one(run: Run, tally: _Tally) -> Iterator[None]:
    """Let a purge go on when one run fails for a reason of its own, such as its folder or its record."""
    try:
        yield
    except Exception as exc:
        if isinstance(exc, _NotLeadingError | BlobSyncError | NimbusError) and not isinstance(
            exc, UnreadableRecordError
        ):
            raise  # it concerns all runs
        tally.failed += 1
        _log.warning("purge_failed", run=run.id, error=str(exc) or type(exc).__name__)


@contextmanager
def _ended(metrics: GarbageMetrics | None = None) -> Iterator[None]:
    """Turn the end of a pass into an outcome, and expected errors into log lines."""
    outcome: Outcome = "failed"
    try:
        yield
        outcome = "done"
    except _NotLeadingError:
        outcome = "stopped"
    except (BlobSyncError, NimbusError) as exc:
        _log.warning("collection_failed", where="history", error=str(exc))
    except Exception:  # noqa: BLE001 - one order must not keep others from being carried out
        _log.exception("collection_failed", where="history")
    finally:
        if metrics is not None:
            metrics.ended("history", outcome)
