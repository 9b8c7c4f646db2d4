"""When drivers are warmed, and for whom: pure decisions over what was ordered, what waits, and memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from nimbus.worker.warm.plan import WarmPlan

EXPECTED_S = 600.0
"""After a task of its key was ordered, or ran, another one is expected for so long."""
KEEP_FREE_BYTES = 2 << 30
"""What must be left of the available memory when a warm driver has taken all that it may take."""
COLD_START_S = 10.0
"""How long a cold start is left alone: a driver that is warmed beside it would slow it down."""
GIVE_BACK_BYTES = 1 << 30
"""With less memory available than this, waiting drivers are ended."""


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
        """Whether one of these attempts may still be at it."""
        self._cold_s = {
            attempt: begun
            for attempt, begun in self._cold_s.items()
            if attempt in running and now_s - begun < COLD_START_S
        }
        return bool(self._cold_s)

    def ordered(self, attempt: str, plan: WarmPlan, now_s: float) -> None:
        """A task was ordered that a driver of this plan fits."""
        key = plan.key
        self._plans[key], self._seen_s[key], self._attempts[attempt] = plan, now_s, key

    def expected(self, running: Collection[str], now_s: float) -> list[WarmPlan]:
        """Plans of which another task is expected, the newest first; the others are forgotten.

        Args:
            running: Attempts that have not ended.
            now_s: As in `ordered`.
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
    """Say why a driver is not warmed now; None: it is.

    Args:
        plan: Of the driver.
        busy: Attempts that are being prepared or run.
        slots: Of the worker. While all are taken no task waits for a driver, and those that run need the
            processors; a worker with one slot warms beside its task all the same.
        available_bytes: Memory.
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
