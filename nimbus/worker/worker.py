"""Takes orders from the leader, launches a runner for each attempt, and ends attempts of dead runners.

Guarantees:
  * Stopping, killing or restarting a worker ends no runner and no driver. The next worker finds their results
    in their folders.
  * The death of a runner is noticed at once, by its pidfd. Its remaining processes are killed before the
    attempt is reported as lost.
  * An order whose release is on the disk does not wait for orders whose release must be fetched.
  * Nothing is launched twice: the folder's lock and CLAIM decide, not this worker's memory.

Threads: `nimbus-worker` (all decisions), `worker-prepare-*` (releases on the disk), `worker-fetch-*`
(releases that must be fetched), `worker-logs` (leftover logs).
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from nimbus.domain.attempts.slots import Holder, earlier, inherited
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.ids import AttemptId, ClusterId, PipelineName, ReleaseDigest
from nimbus.domain.pipelines.pipeline import SparkMode, TaskKind
from nimbus.domain.starts.admission import need_of
from nimbus.ports import (
    AttemptBoard,
    Clock,
    LogArchive,
    Registrations,
    StoreUnavailableError,
    WorkerIdInUseError,
)
from nimbus.telemetry.worker import WorkerMetrics, WorkerStanding
from nimbus.worker.application.executor import ApplicationExecutor, ClusterTarget
from nimbus.worker.attempt.connections import Connections
from nimbus.worker.attempt.log import LeftoverLogs
from nimbus.worker.data.ports import InputRefusedError
from nimbus.worker.executor import AttemptPhase, Executor, WorkerContext, collect
from nimbus.worker.host.clock import pauses
from nimbus.worker.host.identity import take_work_dir
from nimbus.worker.host.task_user import open_to_users
from nimbus.worker.jvm.launcher import JvmLauncher
from nimbus.worker.launcher import ForkLauncher
from nimbus.worker.pool.pooled_executor import PooledExecutor
from nimbus.worker.preparation import (
    CannotRunHereError,
    ReleaseProvider,
    check_order,
    inputs_are_here,
    is_of_pipeline,
    may_heal,
    prepare,
    prepare_if_here,
)
from nimbus.worker.process_executor import ProcessExecutor
from nimbus.worker.registration import Registration
from nimbus.worker.settings import CONNECT_OPTION, RunnerPlan, WorkerSettings

_PREPARING_AT_ONCE = 2
_FETCHING_AT_ONCE = 2
"""Threads for orders whose release is not on the disk: storage may be down for a long time."""
_COLLECT_AGAIN_S = 1.0
_COLLECT_FOLLOWED_AGAIN_S = 30.0
"""Interval for an attempt in a cluster: the worker with its REAP order follows it, and ends it."""
_PLANS_KEPT = 256
_CLEAN_EVERY_S = 60.0
_PROBE_ENVIRONMENTS_EVERY_S = 300.0
_LONGEST_ERROR = 300

_log = structlog.get_logger(__name__)


_Prepared = tuple[PipelineName, ReleaseDigest, TaskKind, tuple[str, ...]]


def _prepared(order: Assignment) -> _Prepared:
    """The key of a plan: everything that it depends on."""
    return order.pipeline, order.release, order.task.kind, order.task.dependencies


def _stays_prepared(order: Assignment) -> bool:
    """False if Java, Connect server, environment or secrets, which may change, are in it."""
    return not (order.task.kind.uses_spark or order.task.environment or order.task.secrets)


class Worker:
    """One worker. `start`, `drain`, `close`, `session_renewed`, `failure` may be used from any thread."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        board: AttemptBoard,
        registrations: Registrations,
        releases: ReleaseProvider,
        connections: Connections,
        clock: Clock,
        logs: LogArchive | None = None,
        metrics: WorkerMetrics | None = None,
        clusters: Mapping[str, ClusterTarget] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        context = WorkerContext(
            settings=settings,
            board=board,
            connections=connections,
            clock=clock,
            metrics=metrics or WorkerMetrics(CollectorRegistry()),
        )
        context.metrics.watch(self.standing)
        self._context, self._loop, self._phases = context, context.loop, context.phases
        self._settings, self._board, self._releases = settings, board, releases
        self._forks, self._connect_forks = ForkLauncher(), ForkLauncher(CONNECT_OPTION)
        self._launcher = JvmLauncher(self._forks, settings.work_dir, limit=settings.idle_jvms)
        self._on_failure = on_failure
        self.failure: BaseException | None = None
        self._registration = Registration(settings, registrations, clock, clusters or ())
        self._orders: dict[str, Assignment] = {}
        self._read_at_s: dict[str, float] = {}
        """When each order that is not yet launched was read."""
        self._has_read_orders = False
        self._leftover_logs = LeftoverLogs(logs, self._loop)
        self._processes = ProcessExecutor(
            context, self._leftover_logs, launcher=self._launcher, connect_launcher=self._connect_forks
        )
        self._pool = PooledExecutor(
            context,
            self._leftover_logs,
            launcher=self._forks,
            read_orders=partial(self._loop.post, partial(context.do, partial(self._read_orders, False))),
        )
        self.executors: dict[Holder, Executor] = {
            Holder.PROCESS: self._processes,
            Holder.POOLED: self._pool,
            Holder.APPLICATION: ApplicationExecutor(context, clusters or {}),
        }
        self._plans: dict[_Prepared, RunnerPlan] = {}
        """Plans of earlier attempts, which can be reused: a release and its wheels never change."""
        self._collecting: set[str] = set()
        self._lock_fd = -1
        self._prepare_pool = ThreadPoolExecutor(_PREPARING_AT_ONCE, thread_name_prefix="worker-prepare")
        self._fetch_pool = ThreadPoolExecutor(_FETCHING_AT_ONCE, thread_name_prefix="worker-fetch")
        self._thread = threading.Thread(target=self._run, name="nimbus-worker", daemon=True)

    # Methods for any thread.

    def start(self) -> None:
        """Take over an earlier worker's attempts, register, accept orders. Raises WorkDirInUseError."""
        self._lock_fd = take_work_dir(self._settings.work_dir)
        if self._settings.users.all():
            open_to_users(self._settings.work_dir)
        for name, environment in self._settings.environments.items():
            if isinstance(environment, str):
                _log.warning("environment_unusable", environment=name, error=environment)
        self._launcher.start()
        self._thread.start()

    def drain(self) -> None:
        """Accept no more work; current attempts continue."""
        self._loop.post(partial(self._context.do, self._drain))

    def session_renewed(self) -> None:
        """Register and read orders again, on a new ZooKeeper session. Only enqueues: kazoo may call it."""
        self._loop.post(self._renew)

    def attempts(self) -> frozenset[str]:
        """The worker's current attempts, in any phase."""
        return frozenset(self._phases.copy())

    def unended(self) -> frozenset[str]:
        """The current attempts that are not done."""
        return self._context.unended

    def collecting(self) -> frozenset[str]:
        """Attempts with a REAP order."""
        return frozenset(self._collecting.copy())

    def standing(self) -> WorkerStanding:
        """The worker's state, for metrics."""
        phases = Counter(self._phases.copy().values())
        return WorkerStanding(
            slots=self._settings.slots,
            attempts={phase.value: phases[phase] for phase in AttemptPhase if phase is not AttemptPhase.DONE},
            registered=self._registration.stands,
            draining=self._registration.draining,
            leftover_logs=self._leftover_logs.count + self._pool.unstored.count,
            clock_ahead_s=self._registration.clock_ahead_s or 0.0,
        )

    def close(self, timeout: timedelta) -> None:
        """Stop accepting orders. Runners and drivers continue; the caller withdraws the registration."""
        self._loop.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout.total_seconds())
        for pool in (self._prepare_pool, self._fetch_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        self._leftover_logs.close()
        for executor in self.executors.values():
            executor.close()
        for launcher in (self._launcher, self._connect_forks):
            launcher.close()
        if self._settings.connect is not None:
            self._settings.connect.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # Methods for the worker's thread.

    def _run(self) -> None:
        try:
            for executor in self.executors.values():
                self._context.do(executor.sweep)
            self._heartbeat()
            self._clean()
            self._loop.after(_PROBE_ENVIRONMENTS_EVERY_S, self._probe_environments)
            self._loop.run()
        except Exception as exc:  # noqa: BLE001 - top of the thread
            _log.exception("worker_failed", worker=self._settings.id)
            self.failure = exc
            if self._on_failure is not None:
                self._on_failure(exc)

    def _unstored_logs(self) -> str:
        pooled, leftover = self._pool.unstored, self._leftover_logs
        error = pooled.error or leftover.error
        return error and f"{pooled.count + leftover.count} not stored: {error[:_LONGEST_ERROR]}"

    def _heartbeat(self) -> None:
        was_registered = self._registration.stands
        self._launcher.look_after()
        self._registration.spark_jvms = self._launcher.state
        self._registration.jvm_releases = self._launcher.releases
        self._registration.executor = self._pool.state
        self._registration.unstored_logs = self._unstored_logs()
        self._registration.orders_in_clusters = sum(need_of(o.task).in_cluster for o in self._orders.values())
        try:
            self._registration.publish()
        except StoreUnavailableError as exc:
            _log.warning("worker_not_registered", worker=self._settings.id, error=str(exc)[:300])
        except WorkerIdInUseError as exc:
            # The other one may be our predecessor, whose session has not expired yet: try again.
            _log.error("worker_id_in_use", worker=self._settings.id, error=str(exc))
        else:
            self._context.do(partial(self._read_orders, not was_registered))
        self._context.do(self._look_after_connect)
        self._loop.after(self._settings.heartbeat.total_seconds(), self._heartbeat)

    def _look_after_connect(self) -> None:
        connect = self._settings.connect
        if connect is None or connect.look_after():
            return
        if not any(self._phases.get(attempt) is AttemptPhase.PREPARING for attempt in self._orders):
            self._connect_forks.close()

    def _renew(self) -> None:
        self._registration.stands = False
        self._context.do(self._renew_now)

    def _renew_now(self) -> None:
        if not self._registration.stands:
            self._registration.publish_unless_taken()
        self._read_orders(arm=True)

    def _drain(self) -> None:
        self._registration.draining = True
        self._registration.publish_unless_taken()

    def _orders_changed(self) -> None:
        """A watch callback on kazoo's thread, so it only enqueues."""
        self._loop.post(partial(self._context.do, partial(self._read_orders, True)))

    def _read_orders(self, arm: bool) -> None:
        if not self._registration.stands:  # another worker has our id: the orders are not for us
            return
        orders = self._board.assignments(self._settings.id, self._orders_changed if arm else None)
        self._orders, self._has_read_orders = {order.attempt: order for order in orders}, True
        for attempt, phase in list(self._phases.items()):
            if phase is AttemptPhase.DONE and attempt not in self._orders:
                del self._phases[attempt]
        self._collecting &= self._orders.keys()
        self._read_at_s = {key: at_s for key, at_s in self._read_at_s.items() if key in self._orders}
        for order in orders:
            if order.kind is AssignmentKind.RUN and order.attempt not in self._phases:
                self._phases[order.attempt] = AttemptPhase.PREPARING
                self._read_at_s[order.attempt] = time.monotonic()
                self._context.do(partial(self._take, order))
            elif order.kind is AssignmentKind.REAP and order.attempt not in self._collecting:
                self._collecting.add(order.attempt)
                self._context.do(partial(self._collect, order))

    # An order to run.

    def _take(self, order: Assignment) -> None:
        if self._processes.was_launched(order.attempt):
            self._processes.settle(self._processes.folder(order.attempt))
        elif (plan := self._plan_of(order)) is not None:
            self._launch(order, plan)
        else:
            self._prepare(order, self._board.cluster(), pauses(1.0, 10.0))

    def _plan_of(self, order: Assignment) -> RunnerPlan | None:
        if not _stays_prepared(order):
            return None
        plan = self._plans.get(_prepared(order))
        try:
            if plan is not None:
                check_order(order, plan.release_root, self._settings)
                return plan if inputs_are_here(order, self._settings) else None
        except (CannotRunHereError, InputRefusedError):
            del self._plans[_prepared(order)]
        return None

    def _prepare(self, order: Assignment, cluster: ClusterId, waits: Iterator[float]) -> None:
        if order.attempt not in self._orders:
            self._phases.pop(order.attempt, None)
            return
        if order.task.spark_mode is SparkMode.CONNECT and self._connect_forks.pid is None:
            self._connect_forks.start()  # it imports while the order is prepared
        self._submit(self._prepare_pool, prepare_if_here, order, cluster, waits)

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        how: Callable[[Assignment, WorkerSettings, ReleaseProvider, ClusterId], RunnerPlan | None],
        order: Assignment,
        cluster: ClusterId,
        waits: Iterator[float],
    ) -> None:
        future = pool.submit(how, order, self._settings, self._releases, cluster)
        future.add_done_callback(
            lambda done: self._loop.post(partial(self._prepared, order, cluster, done, waits))
        )

    def _prepared(
        self,
        order: Assignment,
        cluster: ClusterId,
        done: Future[RunnerPlan | None],
        waits: Iterator[float],
    ) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or order.attempt not in self._orders:  # withdrawn before it was launched
            self._phases.pop(order.attempt, None)
        elif error is not None and may_heal(error):
            _log.warning("preparation_must_wait", attempt=order.attempt, error=str(error)[:300])
            self._loop.after(next(waits), partial(self._prepare, order, cluster, waits))
        elif error is not None:
            why = str(error) or type(error).__name__
            self._context.refuse(order, why, pipeline_at_fault=is_of_pipeline(error))
        elif (plan := done.result()) is not None:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            if _stays_prepared(order):
                self._plans[_prepared(order)] = plan
            self._launch(order, plan)
        else:
            self._submit(self._fetch_pool, prepare, order, cluster, waits)

    def _launch(self, order: Assignment, plan: RunnerPlan) -> None:
        self._context.do(partial(self._start, order, plan))

    def _start(self, order: Assignment, plan: RunnerPlan) -> None:
        if before := earlier(AttemptId.parse(order.attempt)):
            # This session has read the order, so it also sees the last checkpoints of earlier attempts.
            plan = replace(plan, checkpoint=inherited(self._board.read_all(dict.fromkeys(before))))
        if order.task.env:
            plan = replace(plan, environment={**plan.environment, **order.task.env})
        holder = self._holder_of(order)
        self.executors[holder].launch(order, plan)
        read_at_s = self._read_at_s.pop(order.attempt, None)
        if read_at_s is not None and self._phases.get(order.attempt) is AttemptPhase.RUNNING:
            self._context.metrics.launched(holder, time.monotonic() - read_at_s)

    def _holder_of(self, order: Assignment) -> Holder:
        if order.task.runs_in_cluster:
            return Holder.APPLICATION
        return Holder.POOLED if order.task.is_pooled and self._pool.works else Holder.PROCESS

    # An order to collect what an attempt left.

    def _collect(self, order: Assignment) -> None:
        attempt = order.attempt
        newest = self._orders.get(attempt)
        if newest is None or newest.kind is not AssignmentKind.REAP:
            self._collecting.discard(attempt)
            return
        folder = self._processes.folder(attempt)
        if folder.exists and not folder.is_delivered:
            if self._phases.get(attempt) in (None, AttemptPhase.DONE):
                self._processes.settle(folder)
        elif collect(self._board, order, self.executors):
            return
        again_s = _COLLECT_FOLLOWED_AGAIN_S if order.task.runs_in_cluster else _COLLECT_AGAIN_S
        self._loop.after(again_s, partial(self._context.do, partial(self._collect, order)))

    def _clean(self) -> None:
        self._context.do(partial(self._processes.clean, self._orders))
        if self._settings.data is not None and self._has_read_orders:
            inputs = {place for order in self._orders.values() for place in order.inputs.values()}
            self._context.do(partial(self._settings.data.remove_unused, inputs))
        self._loop.after(_CLEAN_EVERY_S, self._clean)

    def _probe_environments(self) -> None:
        """A later heartbeat reports what is mended, upgraded or broken."""
        self._fetch_pool.submit(self._settings.environments.probe)
        self._loop.after(_PROBE_ENVIRONMENTS_EVERY_S, self._probe_environments)
