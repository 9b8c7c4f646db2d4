"""State of a followed driver between checks. Pure: the time is an argument of each call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nimbus.domain.slots import Slots
from nimbus.worker.application.follow import GONE_S, Seen
from nimbus.worker.application.manager import DriverReport, DriverState
from nimbus.worker.host.clock import pauses

SILENT_S = 60.0
"""After this time without a beat, the progress shows that the driver is not heard."""


@dataclass(slots=True, eq=False, kw_only=True)
class Followed:
    """One driver. Times are seconds of `time.monotonic`."""

    attempt: str
    driver: str
    since_s: float
    """Time of its submission, by this worker or another."""
    report: DriverReport | None = None
    look_at_s: float = 0.0
    looking: bool = False
    told: Mapping[str, str] = field(default_factory=dict)
    """The last `news` written into its beat."""
    _number: object = None
    """Number of the last seen beat of its bootstrap."""
    _heard_at_s: float = float("-inf")
    _gone_first_s: float | None = None
    """Time of the first of the consecutive reports that it is gone."""
    _gone_last_s: float = 0.0
    _stopping_since_s: float | None = None
    _ended_since_s: float | None = None
    _killed_for: str = ""
    _kill_again_s: float = float("-inf")
    _kill_pauses: Iterator[float] = field(default_factory=lambda: pauses(5.0, 60.0))

    def take_in(self, slots: Slots, now_s: float) -> None:
        """Update from ZooKeeper."""
        if slots.claim is not None and slots.claim.driver is not None:
            self.driver = slots.claim.driver.id
        if (number := slots.progress.get("number")) is not None and number != self._number:
            self._number, self._heard_at_s = number, now_s
        if slots.stop_requested and self._stopping_since_s is None:
            self._stopping_since_s = now_s
        if slots.end is not None and self._ended_since_s is None:
            self._ended_since_s = now_s

    def take_report(self, report: DriverReport, now_s: float) -> None:
        """Update from a report of the cluster. "Gone" is checked again soon: one report does not count."""
        self.report = report
        if report.state is not DriverState.GONE:
            self._gone_first_s = None
            return
        self._gone_last_s = now_s
        self._gone_first_s = now_s if self._gone_first_s is None else self._gone_first_s
        if now_s - self._gone_first_s < GONE_S:
            self.look_at_s = now_s

    def seen(self, slots: Slots, now_s: float) -> Seen:
        """The observed state."""
        stopping, ended, gone = self._stopping_since_s, self._ended_since_s, self._gone_first_s
        return Seen(
            slots=slots,
            report=self.report,
            gone_for_s=0.0 if gone is None else self._gone_last_s - gone,
            heard_for_s=now_s - self._heard_at_s,
            ended_for_s=0.0 if ended is None else now_s - ended,
            stopping_for_s=None if stopping is None else now_s - stopping,
            waiting_for_s=now_s - self.since_s,
        )

    def news(self, slots: Slots, now_s: float) -> dict[str, str]:
        """The cluster's report on a driver that waits or is not heard; others report their own progress."""
        if self.report is None:
            return {}
        if slots.claim is None:
            return {"cluster": self.report.words}
        silent_s = now_s - max(self._heard_at_s, self.since_s)
        return {"silent": self.report.words} if silent_s >= SILENT_S else {}

    def kill_is_due(self, now_s: float) -> bool:
        """True if it must be killed, perhaps again. The next check is then due soon."""
        if now_s < self._kill_again_s:
            return False
        self._kill_again_s = now_s + next(self._kill_pauses)
        self.look_at_s = now_s
        return True

    def is_new(self, reason: str) -> bool:
        """True if the reason to kill it differs from the last one."""
        is_new, self._killed_for = reason != self._killed_for, reason
        return is_new
