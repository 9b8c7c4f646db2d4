"""Sends alerts, and traces and lineage of runs. Each target and each kind has its own thread.

Traces and lineage are derived from a run's record, which stays in ZooKeeper until everything is sent or given
up. So a new leader sends what its predecessor may not have sent, under the same ids.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import structlog

from nimbus.domain.cluster.alerts import Alert, DeliveryFailure, message
from nimbus.domain.ids import RunId
from nimbus.domain.runs.run import Run
from nimbus.engine.events import AlertTried, Event
from nimbus.ports import AlertNotSentError, AlertTarget, Clock, RunSink
from nimbus.telemetry.engine import ExportMetrics

_log = structlog.get_logger(__name__)
_NOT_SURE = "this scheduler did not know whether it leads"


class AlertSender:
    """Threads `nimbus-alert-<target>_0`. The engine gives each at most one alert at a time."""

    def __init__(
        self,
        targets: Mapping[str, AlertTarget],
        *,
        cluster: str,
        public_url: str,
        leads_in: Callable[[int], bool],
        enqueue: Callable[[Event], None],
    ) -> None:
        self._targets = targets
        self._cluster, self._public_url = cluster, public_url
        self._leads_in = leads_in
        self._enqueue = enqueue
        self._pools = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"nimbus-alert-{name}") for name in targets
        }

    def start(self, alert: Alert) -> None:
        """Send an alert; the result comes as an event. Any thread; does not block."""
        pool = self._pools.get(alert.target)
        if pool is None:
            error = f"this scheduler's configuration has no target {alert.target} (alerts.targets)"
            self._enqueue(AlertTried(alert.claim, DeliveryFailure(error)))
            return
        try:
            pool.submit(self._send, alert)
        except RuntimeError:  # closed meanwhile: the next leader sends it
            _log.info("alert_left", alert=alert.id)

    def close(self) -> None:
        """Start no more tries. A try under way goes on until its own deadline."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, alert: Alert) -> None:
        # A later leader sends the alert with a note that it may repeat. A late try of ours would be a repeat
        # without that note, even if this scheduler is the later leader.
        if not self._leads_in(alert.epoch):
            self._enqueue(AlertTried(alert.claim, DeliveryFailure(_NOT_SURE)))  # then tried again
            return
        failure = None
        try:
            words = message(alert, cluster=self._cluster, public_url=self._public_url)
            self._targets[alert.target].send(words)
        except AlertNotSentError as exc:
            failure = DeliveryFailure(str(exc), exc.doubtful)
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("alert_failed", alert=alert.id)
            failure = DeliveryFailure(f"{type(exc).__name__}: {exc}", doubtful=True)
        self._enqueue(AlertTried(alert.claim, failure))


FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
"""Longest pause between two tries, while none succeeds."""

Done = Callable[[], None]


class RunExports:
    """Threads `nimbus-export-<kind>_0`. The methods may be called from any thread, and do not block."""

    def __init__(
        self,
        sinks: Mapping[str, RunSink],
        *,
        leads: Callable[[], bool],
        clock: Clock,
        give_up_after: timedelta,
        metrics: ExportMetrics,
    ) -> None:
        self._exports = [
            _Export(kind, sink, leads, clock, give_up_after, metrics) for kind, sink in sinks.items()
        ]

    def follow(self, epoch: int, run: Run) -> None:
        """Export a run, read or written in the term of `epoch`."""
        for export in self._exports:
            if export.follows:
                export.follow(epoch, run)

    def finish(self, run: Run, done: Done) -> None:
        """Send the rest of a finished run. `done` is called when everything is sent or given up."""
        left = _Countdown(len(self._exports), done)
        for export in self._exports:
            export.finish(run, left.one)
        if not self._exports:
            done()

    def close(self) -> None:
        """Start no more sends. The next leader sends the rest."""
        for export in self._exports:
            export.close()


class _Countdown:
    def __init__(self, count: int, done: Done) -> None:
        self._lock, self._left, self._done = threading.Lock(), count, done

    def one(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._done()


class _Export:
    """The export of one kind. Its maps hold runs under way, and finished runs with unsent data."""

    def __init__(
        self,
        kind: str,
        sink: RunSink,
        leads: Callable[[], bool],
        clock: Clock,
        give_up_after: timedelta,
        metrics: ExportMetrics,
    ) -> None:
        self.follows = sink.follows
        self._kind, self._sink, self._leads = kind, sink, leads
        self._clock, self._give_up_after, self._metrics = clock, give_up_after, metrics
        self._lock = threading.Lock()
        self._epoch = 0
        self._latest: dict[RunId, Run] = {}
        self._sent: dict[RunId, Run] = {}
        """The version of each run that was accepted completely."""
        self._done: dict[RunId, Done] = {}
        self._queued: set[RunId] = set()
        self._trying: RunId | None = None
        """The run that is being tried, also during the pause after the try."""
        self._failures = 0
        """Failed tries since the last success. Export thread only."""
        self._failed: set[RunId] = set()
        """Runs, two at most, with a failed try since the last success. Export thread only."""
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"nimbus-export-{kind}")
        metrics.watch(kind, self._waiting)

    def follow(self, epoch: int, run: Run) -> None:
        with self._lock:
            if epoch != self._epoch:  # meanwhile another leader may have sent, or removed, any of them
                self._epoch = epoch
                for kept in (self._latest, self._sent, self._done):
                    kept.clear()
            self._latest[run.id] = run
        self._enqueue(run.id)

    def finish(self, run: Run, done: Done) -> None:
        with self._lock:
            self._latest[run.id], self._done[run.id] = run, done
        self._enqueue(run.id)

    def close(self) -> None:
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._sink.close()

    def _enqueue(self, run: RunId) -> None:
        with self._lock:
            if run in self._queued:
                return
            self._queued.add(run)
        try:
            self._pool.submit(self._work, run)
        except RuntimeError:  # closed meanwhile: the next leader sends it
            _log.info("export_left", kind=self._kind, run=run)

    def _waiting(self) -> int:
        with self._lock:
            return len(self._queued | ({self._trying} - {None}))

    def _work(self, run_id: RunId) -> None:
        with self._lock:
            self._trying = run_id
        try:
            self._see_to(run_id)
        finally:
            with self._lock:
                self._trying = None

    def _see_to(self, run_id: RunId) -> None:
        with self._lock:
            self._queued.discard(run_id)
            epoch, run, before = self._epoch, self._latest.get(run_id), self._sent.get(run_id)
        if run is None:
            return
        if not self._leads():  # the next leader sends it
            self._forget(run_id, epoch)
        elif self._is_overdue(run) and (run_id in self._failed or len(self._failed) > 1):
            self._give_up(run)  # without a try if several others failed: a dead collector takes 10 s each
        elif self._try(before, run):
            self._accepted(run, epoch)
        else:
            self._failures += 1
            if len(self._failed) < 2:  # two are enough, and more would take memory
                self._failed.add(run_id)
            self._metrics.failed(self._kind)
            if self._is_overdue(run):  # accepted others reset the count, so this is checked, too
                self._give_up(run)
                return
            longest_s = min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LONGEST_PAUSE_S)
            self._stopping.wait(random.uniform(longest_s / 2, longest_s))  # noqa: S311 - jitter, no secret
            self._enqueue(run_id)  # behind the others, so that one that is never accepted holds up none

    def _try(self, before: Run | None, run: Run) -> bool:
        try:
            count = self._sink.send(before, run)
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread, and libraries raise what they like
            why = f"{type(exc).__name__}: {exc}"[:300]
            _log.warning("export_failed", kind=self._kind, run=run.id, error=why)
            return False
        self._failures = 0
        self._failed.clear()
        self._metrics.sent(self._kind, count)
        return True

    def _is_overdue(self, run: Run) -> bool:
        return run.finished_at is not None and self._clock.now() > run.finished_at + self._give_up_after

    def _give_up(self, run: Run) -> None:
        with self._lock:
            done = self._take_done(run.id)
        if done is not None:
            self._metrics.dropped(self._kind)
            _log.error("export_given_up", kind=self._kind, run=run.id)
            done()

    def _accepted(self, run: Run, epoch: int) -> None:
        with self._lock:
            if epoch != self._epoch:
                return
            self._sent[run.id] = run
            done = self._take_done(run.id) if run.state.is_final else None
        if done is not None:
            done()

    def _take_done(self, run: RunId) -> Done | None:
        done = self._done.pop(run, None)
        if done is not None:
            self._latest.pop(run, None)
            self._sent.pop(run, None)
        return done

    def _forget(self, run: RunId, epoch: int) -> None:
        with self._lock:
            if epoch == self._epoch:
                for kept in (self._latest, self._sent, self._done):
                    kept.pop(run, None)
