"""Virtual time: one shared clock that never steps, and a wall clock for each process that may step."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Time:
    """The true elapsed time."""

    s: float = 0.0


@dataclass
class ProcessClock:
    """See `nimbus.ports.Clock`."""

    time: Time
    wall_offset_s: float = 0.0
    """The error of the wall clock."""
    booted_s: float = field(default=0.0)
    """The arbitrary zero of the elapsed clock."""

    def now(self) -> datetime:
        """The wall clock."""
        return START + timedelta(seconds=self.time.s + self.wall_offset_s)

    def elapsed_s(self) -> float:
        """The elapsed time, which never steps."""
        return self.time.s - self.booted_s
