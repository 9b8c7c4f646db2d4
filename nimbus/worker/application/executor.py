"""Runs attempts as drivers inside Spark clusters, and follows them until their END. Worker thread.

A submission is recorded on disk right before it is made, and its answer right after it. A submission with an
unknown outcome is never repeated: CLAIM is fenced, so that a driver which starts later runs no user code.
Threads: `worker-submissions-<target>`, as Spark's client takes seconds; `worker-applications-<target>` for
all other requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Slots, application_id
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId, ReleaseDigest
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptWithdrawnError, StoreUnavailableError
from nimbus.worker.application import submitted
from nimbus.worker.application.bootstrap import WORK
from nimbus.worker.application.bundle import BOOTSTRAP, living_first
from nimbus.worker.application.late_conf import without_late
from nimbus.worker.application.manager import (
    ClusterManager,
    ClusterUnreachableError,
    DriverState,
    DriverStatus,
    Submission,
    SubmissionRefusedError,
)
from nimbus.worker.application.startup import archive_digest, startup_document
from nimbus.worker.application.submitted import Followed, SubmissionRecord, SubmissionRecords
from nimbus.worker.driver.environment import event_log_settings
from nimbus.worker.driver.files import import_path, task_conf, worker_conf
from nimbus.worker.executor import AttemptPhase, Sight, WorkerContext
from nimbus.worker.host.clock import pauses
from nimbus.worker.libraries import find_wheels
from nimbus.worker.settings import RunnerPlan

T = TypeVar("T")

_TICK_S = 2.0
_REQUESTS_A_SECOND = 10
"""Status requests to clusters per second: 500 attempts are checked once in 50 s. END is seen at once."""
LARGEST_STARTUP = 96 << 10
"""In bytes. It is passed in an environment variable, which Linux limits to 128 KiB."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """A cluster that drivers are submitted to."""

    name: str
    manager: ClusterManager
    endpoints: Callable[[], Sequence[str]]
    """Base URLs of schedulers for the cluster's hosts."""
    environment: Mapping[str, str] = field(default_factory=dict)
    queue_timeout_s: float = 24 * 3600.0
    """How long a driver may wait for its start."""
    driver_id: str = "folder"
    """See `startup_document`."""
    keeps_ended: bool = False
    """True if the cluster keeps ended drivers until they are killed."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Followed(Followed):
    target: ClusterTarget
    killing: bool = False


class ApplicationExecutor:
    """See `nimbus.worker.executor.Executor`."""

    def __init__(self, context: WorkerContext, targets: Mapping[str, ClusterTarget]) -> None:
        self._context, self._targets = context, targets
        self._records = SubmissionRecords(context.settings.work_dir)
        self._followed: dict[str, _Followed] = {}
        self._archives: dict[ReleaseDigest, str] = {}
        """Digests of the archives of submitted releases. Submission threads."""
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._ticking = False

    def close(self) -> None:
        """See `Executor.close`."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def sweep(self) -> None:
        """See `Executor.sweep`."""
        for record in self._records.all():
            if record.attempt in self._followed:
                continue
            self._context.phases[record.attempt] = AttemptPhase.SETTLING
            target = self._targets.get(record.target)
            if target is None:
                _log.error("target_not_configured", attempt=record.attempt, target=record.target)
                self._context.phases[record.attempt] = AttemptPhase.DONE
            elif record.driver is None:
                self._context.do(partial(self._close_unknown, record.attempt, target))
            else:
                self._follow(record.attempt, target, record.driver)

    def launch(self, order: Assignment, plan: RunnerPlan) -> None:
        """See `Executor.launch`."""
        place = order.task.spark_place
        target = None if place is None else self._targets.get(place.target)
        if target is None:
            name = None if place is None else place.target
            self._context.refuse(
                order, f"this worker submits no drivers to {name!r}: see `spark.targets` of its configuration"
            )
            return
        if order.attempt in self._followed or self._records.of(order.attempt) is not None:
            return
        self._context.phases[order.attempt] = AttemptPhase.RUNNING
        self._submit(order, plan, target, pauses(1.0, 15.0))

    # Submission.

    def _submit(
        self, order: Assignment, plan: RunnerPlan, target: ClusterTarget, waits: Iterator[float]
    ) -> None:
        slots = self._context.board.read(AttemptId.parse(order.attempt))
        if slots.end is not None:  # closed in the meantime
            self._context.phases[order.attempt] = AttemptPhase.DONE
            return
        if slots.claim is not None or slots.submitted is not None:  # another worker has submitted it
            if self.probe(order.attempt, slots.claim) is Sight.ELSEWHERE:
                self._context.phases[order.attempt] = AttemptPhase.DONE
            return
        key = self._context.board.attempt_key()
        tag = self._tag(order.attempt)
        submissions = self._pool(f"worker-submissions-{target.name}")
        asked = submissions.submit(self._ask_cluster, order, plan, target, key, tag)
        again = partial(self._submit, order, plan, target, waits)
        self._then(asked, lambda done: self._submitted(order, target, done, waits, again))

    def _then(self, asked: Future[T], handle: Callable[[Future[T]], None]) -> None:
        """Handle the answer on the worker's thread, again until ZooKeeper and the disk permit it."""
        do = self._context.do
        asked.add_done_callback(lambda done: self._context.loop.post(partial(do, partial(handle, done))))

    def _ask_cluster(
        self, order: Assignment, plan: RunnerPlan, target: ClusterTarget, key: bytes, tag: str
    ) -> str:
        """Submission thread."""
        record = SubmissionRecord(attempt=order.attempt, target=target.name)
        try:
            submission = self._submission(order, plan, target, key, tag)
            if self._context.board.read(AttemptId.parse(order.attempt)).end is not None:
                raise ClusterUnreachableError("the attempt was closed meanwhile")
            self._end_previous(order.attempt, target)
            self._records.note(record)
        except (StoreUnavailableError, OSError) as exc:
            raise ClusterUnreachableError(f"nothing could be submitted: {exc}") from exc
        try:
            driver = target.manager.submit(submission)
        except (ClusterUnreachableError, SubmissionRefusedError):
            self._records.forget(order.attempt)
            raise
        with suppress(OSError):  # `_submitted` records it again, unless the worker ends now
            self._records.note(replace(record, driver=driver))
        return driver

    def _end_previous(self, attempt: str, target: ClusterTarget) -> None:
        """End the driver of the previous, closed attempt. Submission thread."""
        parsed = AttemptId.parse(attempt)
        if parsed.number == 1:
            return
        tag = self._tag(str(replace(parsed, number=parsed.number - 1)))
        if (left := target.manager.find(tag)) is not None:
            _log.warning("driver_killed", attempt=attempt, driver=left, because="its attempt is closed")
            _kill(target.manager, left)

    def _submission(
        self, order: Assignment, plan: RunnerPlan, target: ClusterTarget, key: bytes, tag: str
    ) -> Submission:
        if order.release not in self._archives:
            self._archives[order.release] = archive_digest(plan.release_root)
        endpoints = living_first(target.endpoints())
        if not endpoints:
            raise ClusterUnreachableError("no scheduler is registered that the driver could report to")
        document = startup_document(
            order,
            plan,
            target=target.name,
            endpoints=endpoints,
            key=key,
            release_sha256=self._archives[order.release],
            driver_id=target.driver_id,
        ).replace("$", "\\u0024")  # Kubernetes and YARN expand `$`; JSON can escape it
        if len(document.encode()) > LARGEST_STARTUP:
            raise SubmissionRefusedError(
                f"its arguments and parameters have {len(document.encode())} bytes, and a driver in a "
                f"cluster takes {LARGEST_STARTUP}: put what is large into a file of the release"
            )
        return Submission(
            name=tag,
            bootstrap_url=f"{endpoints[0]}{BOOTSTRAP}",
            startup=document,
            conf=_conf(order, plan),
            environment=target.environment,
        )

    def _submitted(
        self,
        order: Assignment,
        target: ClusterTarget,
        done: Future[str],
        waits: Iterator[float],
        again: Callable[[], None],
    ) -> None:
        if done.cancelled():
            return  # the worker ends; its successor reads the order
        error = done.exception()
        if error is None:
            _log.info("attempt_submitted", attempt=order.attempt, target=target.name, driver=done.result())
            record = SubmissionRecord(attempt=order.attempt, target=target.name, driver=done.result())
            self._records.note(record)
            self._follow(order.attempt, target, done.result())
        elif isinstance(error, ClusterUnreachableError):
            _log.warning("submission_must_wait", attempt=order.attempt, error=str(error)[:300])
            self._context.loop.after(next(waits), lambda: self._context.do(again))
        elif isinstance(error, SubmissionRefusedError):
            self._context.refuse(order, str(error))
        else:
            _log.warning("submission_unknown", attempt=order.attempt, error=str(error)[:300])
            self._close_unknown(order.attempt, target)

    def _close_unknown(self, attempt: str, target: ClusterTarget) -> None:
        """Close an attempt whose submission has an unknown outcome, unless its driver is found."""
        why = f"it is not known whether target {target.name} took its submission"
        won = self._context.fence(attempt, Outcome.REFUSED, why)
        if won is not None and won.driver is not None:
            record = SubmissionRecord(attempt=attempt, target=target.name, driver=won.driver.id)
            self._records.note(record)
            self._follow(attempt, target, won.driver.id)
        else:
            self._search(attempt, target, self._tag(attempt), pauses(1.0, 15.0))

    def _tag(self, attempt: str) -> str:
        return f"nimbus-{self._context.board.cluster()}-{attempt}"

    def _search(self, attempt: str, target: ClusterTarget, tag: str, waits: Iterator[float]) -> None:
        """Search for the driver of a closed attempt in the cluster, and end it."""
        asked = self._pool_of(target).submit(target.manager.find, tag)
        again = partial(self._search, attempt, target, tag, waits)
        self._then(asked, lambda done: self._searched(attempt, target, done, waits, again))

    def _searched(
        self,
        attempt: str,
        target: ClusterTarget,
        done: Future[str | None],
        waits: Iterator[float],
        again: Callable[[], None],
    ) -> None:
        if done.cancelled():
            return  # the worker ends; its successor reads the record
        if done.exception() is not None:
            _log.warning("search_must_wait", attempt=attempt, error=str(done.exception())[:300])
            self._context.loop.after(next(waits), lambda: self._context.do(again))
        elif (driver := done.result()) is None:
            self._done(attempt)
        else:
            self._records.note(SubmissionRecord(attempt=attempt, target=target.name, driver=driver))
            self._follow(attempt, target, driver)
            self._ask_to_kill(self._followed[attempt], "its attempt was closed before it started")

    # Following.

    def _follow(self, attempt: str, target: ClusterTarget, driver: str) -> None:
        self._context.phases[attempt] = AttemptPhase.RUNNING
        followed = _Followed(attempt=attempt, target=target, driver=driver, since_s=time.monotonic())
        self._followed[attempt] = followed
        self._context.do(partial(self._heartbeat, followed))
        if not self._ticking:
            self._ticking = True
            self._context.loop.after(_TICK_S, self._tick)

    def _heartbeat(self, followed: _Followed) -> None:
        """Write a heartbeat: this worker follows the driver. Meanwhile a leader does not interfere."""
        parsed, board = AttemptId.parse(followed.attempt), self._context.board
        try:
            slots = board.read(parsed)
            if slots.end is None and slots.claim is None:
                driver = slots.submitted or ClusterDriver(target=followed.target.name, id=followed.driver)
                waited = self._context.clock.now() - board.note_submitted(parsed, driver)
                followed.since_s = time.monotonic() - max(0.0, waited.total_seconds())
            progress = followed.progress(slots, time.monotonic())
            if slots.end is None and not slots.has_heartbeat:
                board.heartbeat(parsed, {"driver": followed.driver, **progress})
            elif slots.end is None and progress:  # another worker may follow it and own the heartbeat
                board.report(parsed, {**slots.progress, **progress})
            followed.reported = progress
        except AttemptWithdrawnError:  # its run is over and archived
            self._ask_to_kill(followed, "nobody waits for it any more")
            self._done(followed.attempt)

    def _tick(self) -> None:
        self._ticking = bool(self._followed)
        if self._ticking:
            self._context.do(self._check_all)

    def _check_all(self) -> None:
        """Check all drivers. Repeated as a whole until ZooKeeper answers, then at the next tick."""
        now_s = time.monotonic()
        ids = {attempt: AttemptId.parse(attempt) for attempt in self._followed}
        read = self._context.board.read_all(dict.fromkeys(ids.values()))
        every_s = max(_TICK_S, len(ids) / _REQUESTS_A_SECOND)
        for followed in list(self._followed.values()):
            slots = read[ids[followed.attempt]]
            followed.take_slots(slots, now_s)
            if slots.end is not None:
                self._context.done(followed.attempt, slots.end.outcome)
            if not followed.is_asked and now_s >= followed.ask_at_s:
                followed.is_asked, followed.ask_at_s = True, now_s + every_s
                self._ask(followed)
            self._act(followed, slots, now_s)
            is_reported = slots.has_heartbeat and followed.progress(slots, now_s) == followed.reported
            if followed.attempt in self._followed and not is_reported:
                self._context.do(partial(self._heartbeat, followed))

        self._context.loop.after(_TICK_S, self._tick)

    def _ask(self, followed: _Followed) -> None:
        asked = self._pool_of(followed.target).submit(_probe, followed.target, followed.driver)
        self._then(asked, partial(self._take_status, followed))

    def _take_status(self, followed: _Followed, done: Future[DriverStatus]) -> None:
        followed.is_asked = False
        if done.cancelled():
            return
        error = done.exception()
        report = done.result() if error is None else DriverStatus(DriverState.UNKNOWN, str(error)[:300])
        followed.take_report(report, time.monotonic())

    def _act(self, followed: _Followed, slots: Slots, now_s: float) -> None:
        grace_s = 2 * self._context.settings.stop_grace.total_seconds()
        action = submitted.decide(
            followed.observed(slots, now_s),
            stop_grace_s=grace_s,
            queue_timeout_s=followed.target.queue_timeout_s,
        )
        match action:
            case submitted.GoOn():
                return
            case submitted.StopFollowing():
                if followed.target.keeps_ended:
                    self._pool_of(followed.target).submit(_kill, followed.target.manager, followed.driver)
                self._done(followed.attempt)
            case submitted.EndDriver(why):
                self._ask_to_kill(followed, why)
            case submitted.EndAs(why, stopped):
                self._context.do(partial(self._end, followed.attempt, slots, why, stopped))

    def _ask_to_kill(self, followed: _Followed, why: str) -> None:
        if followed.killing or not followed.kill_is_due(time.monotonic()):
            return
        if followed.is_new(why):
            _log.warning("driver_killed", attempt=followed.attempt, driver=followed.driver, because=why)
        followed.killing = True
        asked = self._pool_of(followed.target).submit(_kill, followed.target.manager, followed.driver)
        asked.add_done_callback(lambda _: setattr(followed, "killing", False))

    def _pool_of(self, target: ClusterTarget) -> ThreadPoolExecutor:
        return self._pool(f"worker-applications-{target.name}")

    def _pool(self, name: str) -> ThreadPoolExecutor:
        """A pool with one thread. Each cluster has its own, so that a slow one does not delay others."""
        if name not in self._pools:
            self._pools[name] = ThreadPoolExecutor(1, name)
        return self._pools[name]

    def _end(self, attempt: str, slots: Slots, why: str, stopped: bool) -> None:
        if slots.claim is None:
            self._context.fence(attempt, Outcome.STOPPED if stopped else Outcome.REFUSED, why)
            return
        outcome = Outcome.STOPPED if stopped else Outcome.LOST
        end = self._context.lost(attempt, slots.claim, why, outcome)
        self._context.settle(replace(end, application=application_id(slots.progress.get("application"))))

    def _done(self, attempt: str) -> None:
        self._followed.pop(attempt, None)
        self._context.phases[attempt] = AttemptPhase.DONE
        self._context.do(partial(self._records.forget, attempt))

    # The methods below are for attempts of any worker with the target.

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """See `Executor.probe`. From then on this worker follows the driver, and ends its attempt."""
        if attempt in self._followed:
            return Sight.ALIVE
        slots = self._context.board.read(AttemptId.parse(attempt))
        driver = slots.submitted if claim is None else claim.driver
        target = None if driver is None else self._targets.get(driver.target)
        if driver is None or target is None or slots.end is not None:
            return Sight.ELSEWHERE
        self._records.note(SubmissionRecord(attempt=attempt, target=target.name, driver=driver.id))
        self._follow(attempt, target, driver.id)
        return Sight.ALIVE

    def collect(self, attempt: str, claim: Claim | None) -> End:
        """See `Executor.collect`."""
        return self._context.lost(attempt, claim, "its driver is gone from the cluster")


def _probe(target: ClusterTarget, driver: str) -> DriverStatus:
    """A driver's status. "Gone" counts only while a scheduler is registered that can hear it."""
    report = target.manager.probe(driver)
    if report.state is DriverState.GONE:
        try:
            heard = bool(target.endpoints())
        except StoreUnavailableError:
            heard = False
        if not heard:
            return DriverStatus(DriverState.UNKNOWN, f"{report.words}; but no scheduler is registered")
    return report


def _kill(manager: ClusterManager, driver: str) -> None:
    try:
        manager.kill(driver)
    except ClusterUnreachableError as exc:
        _log.warning("driver_not_killed", driver=driver, error=str(exc)[:300])


def _conf(order: Assignment, plan: RunnerPlan) -> dict[str, str]:
    """Spark's properties. Executors import the release from its archive, our modules from the bundle."""
    conf = without_late({**worker_conf(plan, order), **task_conf(plan, order)})
    wheels = find_wheels(plan.release_root, order.task.dependencies)
    conf |= import_path(conf, order.task.script, order.python_path, wheels)
    return event_log_settings(conf, WORK)
