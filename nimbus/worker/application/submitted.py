"""A submitted driver: its record on disk, what a worker knows about it, and what the worker decides.

All but the records is pure: the time is an argument of each call. The cluster's report decides only that a
driver is gone, and only if the driver's bootstrap sends no heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from nimbus.domain.attempts.slots import Slots
from nimbus.worker.application.manager import DriverState, DriverStatus
from nimbus.worker.host.clock import pauses
from nimbus.worker.host.files import read_if_there, sync_folder, write_atomic

HEARD_S = 12.0
"""A bootstrap whose last heartbeat is newer than this is alive, whatever the cluster reports."""
END_GRACE_S = 20.0
"""How long a driver may take to end after its END."""
KILL_GRACE_S = 60.0
"""How long a cluster may take to end a killed driver; then a stopped attempt is closed anyway."""
GONE_S = 6.0
"""How long a cluster must report that a driver is gone, because its END may be on its way."""
SILENT_S = 60.0
"""After this time without a heartbeat, the progress shows that the driver is not heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionRecord:
    """One submission."""

    attempt: str
    target: str
    driver: str | None = None
    """The cluster's id for the driver; None: the submission is in progress, or its outcome is unknown."""


_RECORD = TypeAdapter(SubmissionRecord)


class SubmissionRecords:
    """The folder of a worker's submissions: one file for each attempt. Any thread."""

    def __init__(self, work_dir: Path) -> None:
        self._folder = work_dir / "applications"

    def note(self, record: SubmissionRecord) -> None:
        """Write a record durably; it replaces the previous one."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._place(record.attempt), _RECORD.dump_json(record))
        try:
            sync_folder(self._folder)
        except OSError:
            self.forget(record.attempt)
            raise

    def of(self, attempt: str) -> SubmissionRecord | None:
        """The record of an attempt; None if this worker did not submit it."""
        data = read_if_there(self._place(attempt))
        return None if data is None else _RECORD.validate_json(data)

    def all(self) -> Iterator[SubmissionRecord]:
        """All readable records."""
        for place in sorted(self._folder.glob("*.json")) if self._folder.is_dir() else ():
            try:
                yield _RECORD.validate_json(place.read_bytes())
            except ValueError:
                continue

    def forget(self, attempt: str) -> None:
        """Remove a record. Safe to repeat."""
        self._place(attempt).unlink(missing_ok=True)

    def _place(self, attempt: str) -> Path:
        return self._folder / f"{attempt}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The observed state of a submitted attempt at one moment."""

    slots: Slots
    report: DriverStatus | None
    gone_for_s: float
    """Time between the first and the last of consecutive reports that the driver is gone."""
    heard_for_s: float
    """Time since the bootstrap's last heartbeat; infinite: never."""
    ended_for_s: float
    stopping_for_s: float | None
    waiting_for_s: float


@dataclass(frozen=True, slots=True)
class GoOn:
    """Do nothing now."""


@dataclass(frozen=True, slots=True)
class StopFollowing:
    """Stop following: END is filled, and the driver is gone."""


@dataclass(frozen=True, slots=True)
class EndDriver:
    """End the driver, and check again."""

    why: str


@dataclass(frozen=True, slots=True)
class EndAs:
    """Write END."""

    why: str
    stopped: bool = False
    """True if it ended on request; else it is lost, or was never started."""


Action = GoOn | StopFollowing | EndDriver | EndAs


def decide(observed: Observed, *, stop_grace_s: float, queue_timeout_s: float) -> Action:
    """What to do for a submitted attempt, whose bootstrap may take `stop_grace_s` to stop."""
    is_gone = observed.report is not None and observed.report.state is DriverState.GONE
    if observed.slots.end is not None:
        if is_gone:
            return StopFollowing()
        return EndDriver("its attempt has ended") if observed.ended_for_s > END_GRACE_S else GoOn()
    words = "" if observed.report is None else observed.report.words
    if is_gone and observed.gone_for_s >= GONE_S and observed.heard_for_s >= HEARD_S:
        return EndAs(_gone(observed, words), stopped=observed.stopping_for_s is not None)
    if is_gone:
        return GoOn()
    if observed.stopping_for_s is not None:
        return _stopping(observed, observed.stopping_for_s, stop_grace_s)
    if observed.slots.claim is None and observed.waiting_for_s > queue_timeout_s:
        return EndAs(f"its driver did not start within {queue_timeout_s:.0f} s: the cluster says {words}")
    return GoOn()


def _stopping(observed: Observed, stopping_for_s: float, stop_grace_s: float) -> Action:
    """Without a claim, a leader closes it. With a claim, its bootstrap ends it, or else the cluster."""
    if stopping_for_s <= stop_grace_s:
        return GoOn()
    if stopping_for_s > stop_grace_s + KILL_GRACE_S and observed.heard_for_s >= HEARD_S:
        # Its output is not used any more, and no attempt follows this one.
        words = "nothing" if observed.report is None else observed.report.words
        why = f"stopped on request; its driver is not heard and may live: the cluster says {words}"
        return EndAs(why, stopped=True)
    return EndDriver("it did not obey a stop")


def _gone(observed: Observed, words: str) -> str:
    if observed.slots.claim is None:
        return f"its driver ended before it could claim the attempt: the cluster says {words}"
    return f"its driver is gone from the cluster, which says {words}"


@dataclass(slots=True, eq=False, kw_only=True)
class Followed:
    """One driver. Times are seconds of `time.monotonic`."""

    attempt: str
    driver: str
    since_s: float
    """Time of its submission, by this worker or another."""
    report: DriverStatus | None = None
    ask_at_s: float = 0.0
    is_asked: bool = False
    reported: Mapping[str, str] = field(default_factory=dict)
    """The last `progress` written into its heartbeat."""
    _number: object = None
    _heard_at_s: float = float("-inf")
    _gone_first_s: float | None = None
    _gone_last_s: float = 0.0
    _stopping_since_s: float | None = None
    _ended_since_s: float | None = None
    _killed_for: str = ""
    _kill_again_s: float = float("-inf")
    _kill_pauses: Iterator[float] = field(default_factory=lambda: pauses(5.0, 60.0))

    def take_slots(self, slots: Slots, now_s: float) -> None:
        """Update from ZooKeeper."""
        if slots.claim is not None and slots.claim.driver is not None:
            self.driver = slots.claim.driver.id
        if (number := slots.progress.get("number")) is not None and number != self._number:
            self._number, self._heard_at_s = number, now_s
        if slots.stop_requested and self._stopping_since_s is None:
            self._stopping_since_s = now_s
        if slots.end is not None and self._ended_since_s is None:
            self._ended_since_s = now_s

    def take_report(self, report: DriverStatus, now_s: float) -> None:
        """Update from a report of the cluster. "Gone" is checked again soon: one report does not count."""
        self.report = report
        if report.state is not DriverState.GONE:
            self._gone_first_s = None
            return
        self._gone_last_s = now_s
        self._gone_first_s = now_s if self._gone_first_s is None else self._gone_first_s
        if now_s - self._gone_first_s < GONE_S:
            self.ask_at_s = now_s

    def observed(self, slots: Slots, now_s: float) -> Observed:
        """The observed state."""
        stopping, ended, gone = self._stopping_since_s, self._ended_since_s, self._gone_first_s
        return Observed(
            slots=slots,
            report=self.report,
            gone_for_s=0.0 if gone is None else self._gone_last_s - gone,
            heard_for_s=now_s - self._heard_at_s,
            ended_for_s=0.0 if ended is None else now_s - ended,
            stopping_for_s=None if stopping is None else now_s - stopping,
            waiting_for_s=now_s - self.since_s,
        )

    def progress(self, slots: Slots, now_s: float) -> dict[str, str]:
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
        self.ask_at_s = now_s
        return True

    def is_new(self, reason: str) -> bool:
        """True if the reason to kill it differs from the last one."""
        is_new, self._killed_for = reason != self._killed_for, reason
        return is_new
