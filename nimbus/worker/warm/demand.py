"""Decides when to start warm drivers, and for which tasks: pure, from orders, waiting drivers and memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from nimbus.worker.warm.plan import WarmPlan

EXPECTED_S = 600.0
"""How long after a task with a key was ordered, or ran, another one is expected."""
KEEP_FREE_BYTES = 2 << 30
"""Memory that must stay available if a warm driver uses its maximum."""
COLD_START_S = 10.0
"""How long after a cold start no driver is warmed, because that would slow the cold start down."""
GIVE_BACK_BYTES = 1 << 30
"""With less available memory than this, waiting drivers are ended."""


@dataclass(slots=True)
class Demand:
    """Which keys are in use on this worker. Worker thread."""

    _seen_s: dict[str, float] = field(default_factory=dict)
    _plans: dict[str, WarmPlan] = field(default_factory=dict)
    _attempts: dict[str, str] = field(default_factory=dict)
    _cold_s: dict[str, float] = field(default_factory=dict)

    def started_cold(self, attempt: str, now_s: float) -> None:
        """An attempt of a Spark task was launched without a warm driver."""
        self._cold_s[attempt] = now_s

    def is_starting_cold(self, running: Collection[str], now_s: float) -> bool:
        """True if one of these attempts may still be starting cold."""
        self._cold_s = {
            attempt: begun
            for attempt, begun in self._cold_s.items()
            if attempt in running and now_s - begun < COLD_START_S
        }
        return bool(self._cold_s)

    def ordered(self, attempt: str, plan: WarmPlan, now_s: float) -> None:
        """A task was ordered for which a driver of this plan fits."""
        key = plan.key
        self._plans[key], self._seen_s[key], self._attempts[attempt] = plan, now_s, key

    def expected(self, running: Collection[str], now_s: float) -> list[WarmPlan]:
        """Plans for which another task is expected, newest first; other plans are dropped.

        Args:
            running: Attempts that have not ended.
            now_s: Same clock as `ordered`.
        """
        self._attempts = {attempt: key for attempt, key in self._attempts.items() if attempt in running}
        for key in self._attempts.values():
            self._seen_s[key] = now_s
        self._seen_s = {key: seen for key, seen in self._seen_s.items() if now_s - seen <= EXPECTED_S}
        self._plans = {key: self._plans[key] for key in self._seen_s}
        newest_first = sorted(self._seen_s, key=lambda key: self._seen_s[key], reverse=True)
        return [self._plans[key] for key in newest_first]


def why_not_now(
    plan: WarmPlan, *, busy: int, slots: int, available_bytes: int, starting_cold: bool = False
) -> str | None:
    """Why no driver is started now; None: one is started.

    Args:
        plan: The driver's plan.
        busy: Attempts that are being prepared or run.
        slots: The worker's slots. If all are used, no task waits for a driver, and the running ones need the
            processors; but a worker with one slot starts a warm driver in parallel with its task.
        available_bytes: Available memory.
        starting_cold: See `Demand.is_starting_cold`.
    """
    if starting_cold:
        return "a Spark task has just started"
    if busy >= max(slots, 2):
        return "all slots are taken"
    if available_bytes - plan.memory_bytes < KEEP_FREE_BYTES:
        free, needed = available_bytes / 2**30, (plan.memory_bytes + KEEP_FREE_BYTES) / 2**30
        return f"{free:.1f} GiB of memory are available, {needed:.1f} GiB would be needed"
    return None
