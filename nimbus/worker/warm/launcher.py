"""Gives attempts of Spark tasks to fitting warm drivers, and keeps such drivers ready. Worker thread."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import structlog

from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.fork_launcher import ForkLauncher
from nimbus.worker.free_room import available_memory
from nimbus.worker.procfs import ProcessId
from nimbus.worker.settings import RunnerStartup
from nimbus.worker.warm.demand import GIVE_BACK_BYTES, Demand, why_not_now
from nimbus.worker.warm.pair import FOLDER, WarmPair
from nimbus.worker.warm.plan import WarmPlan, warm_plan

_TRY_AGAIN_S = 3600.0

_log = structlog.get_logger(__name__)


class WarmLauncher:
    """See `nimbus.worker.launcher.Launcher`. Attempts without a fitting warm driver are forked."""

    def __init__(
        self,
        forks: ForkLauncher,
        work_dir: Path,
        *,
        limit: int,
        slots: int,
        memory: Callable[[], int] = available_memory,
        command: Sequence[str] = (),
    ) -> None:
        """`limit`: most waiting drivers. `command`: the driver's command, replaced in tests."""
        self._forks, self._work_dir, self._command = forks, work_dir, command
        self._limit, self._slots, self._memory = limit, slots, memory
        self._demand = Demand()
        self._failed: dict[str, tuple[str, float]] = {}
        """Keys whose drivers did not become ready: the reason, and the time of the next try."""
        self.pairs: list[WarmPair] = []
        self.state = "off" if limit == 0 else "none: no Spark task was here lately"
        """The state as text, for the worker's registration."""

    def start(self) -> None:
        """Start the fork server, and remove files of an earlier worker's drivers."""
        self._forks.start()
        root = self._work_dir / FOLDER
        for place in root.iterdir() if root.is_dir() else ():
            if not place.is_symlink():
                shutil.rmtree(place, ignore_errors=True)
            elif not (place.exists() and AttemptFolder(place.resolve()).is_locked()):
                place.unlink(missing_ok=True)

    def __call__(self, folder: AttemptFolder, startup: RunnerStartup) -> ProcessId | None:
        """Give the attempt to a warm driver, or fork a runner."""
        plan = warm_plan(startup.plan, folder.order()) if self._limit else None
        if plan is not None:
            self._demand.ordered(str(folder.attempt), plan, time.monotonic())
            pair = self._take(plan.key)
            if pair is not None:
                taken = pair.hand_over(folder, startup)
                pair.close()
                if taken:
                    _log.info("attempt_given_to_warm_driver", attempt=str(folder.attempt))
                    return pair.runner
                _log.warning("warm_driver_lost", attempt=str(folder.attempt))
            self._demand.started_cold(str(folder.attempt), time.monotonic())
        return self._forks(folder, startup)

    def _take(self, key: str) -> WarmPair | None:
        """Remove and return a ready driver of this key."""
        self._look()
        for pair in self.pairs:
            if pair.is_ready and pair.plan.key == key:
                self.pairs.remove(pair)
                return pair
        return None

    def _look(self) -> None:
        for pair in list(self.pairs):
            if not pair.look():
                _log.warning("warm_driver_ended", runner=pair.runner.pid, last_words=pair.last_words)
                if not pair.is_ready:
                    self._failed[pair.plan.key] = (pair.last_words, time.monotonic() + _TRY_AGAIN_S)
                self._end(pair)

    def _end(self, pair: WarmPair) -> None:
        pair.close()
        self.pairs.remove(pair)

    def keep_ready(self, running: Collection[str]) -> None:
        """Start a needed warm driver, and end unneeded ones.

        Args:
            running: Attempts of this worker that have not ended.
        """
        if self._limit == 0:
            return
        self._look()
        available, now_s = self._memory(), time.monotonic()
        expected = self._demand.expected(running, now_s)
        self._failed = {key: failed for key, failed in self._failed.items() if now_s < failed[1]}
        keys = {plan.key for plan in expected}
        for pair in list(self.pairs):
            if pair.plan.key not in keys or available < GIVE_BACK_BYTES:
                self._end(pair)
        warmed = {pair.plan.key for pair in self.pairs}
        missing = next((plan for plan in expected if plan.key not in warmed), None)
        why: str | None = None
        if not expected:
            why = "no Spark task was here lately"
        elif missing is not None and len(self.pairs) < self._limit:
            why = self._warm_unless(missing, running, available, now_s)
        self.state = self._told(why)

    def _warm_unless(
        self, plan: WarmPlan, running: Collection[str], available_bytes: int, now_s: float
    ) -> str | None:
        """Start a driver, or return why not."""
        why = why_not_now(
            plan,
            busy=len(running),
            slots=self._slots,
            available_bytes=available_bytes,
            starting_cold=self._demand.is_starting_cold(running, now_s),
        )
        if plan.key in self._failed:
            why = self._failed[plan.key][0]
        if why is not None:
            return why
        try:
            self.pairs.append(WarmPair(self._work_dir, self._forks, plan, self._command))
        except OSError as exc:
            _log.warning("warm_driver_not_started", error=str(exc))
            return str(exc)
        _log.info("warm_driver_started", runner=self.pairs[-1].runner.pid)
        return None

    def _told(self, why: str | None) -> str:
        ready = sum(pair.is_ready for pair in self.pairs)
        counts = [f"{ready} ready"] * bool(ready)
        counts += [f"{len(self.pairs) - ready} starting"] * (ready < len(self.pairs))
        return ", ".join(counts) or f"none: {why or 'one is started soon'}"

    def close(self) -> None:
        """End waiting drivers and the fork server. Drivers with an attempt continue."""
        for pair in list(self.pairs):
            self._end(pair)
        self._forks.close()
