"""One entry for each change of state, with its reason: for logs, metrics and tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import structlog

from leader.elector import Verdict
from leader.protocol.record import record

_log = structlog.get_logger("leader")


@record
class Move:
    """One change of state. The names below are computed when they are read.

    Args:
        machine: `latch` or `participant`.
        event: What caused it.
    """

    machine: str
    before: object
    after: object
    event: object

    @property
    def was(self) -> str:
        """Name of the state before."""
        return _shown(self.before)

    @property
    def now(self) -> str:
        """Name of the state after."""
        return _shown(self.after)

    @property
    def on(self) -> str:
        """Name of the event that caused it."""
        return _shown(self.event)

    @property
    def reason(self) -> str | None:
        """Why, if the event or the new state has a reason."""
        return getattr(self.event, "reason", None) or getattr(self.after, "reason", None)


def _shown(state_or_event: object) -> str:
    """Its name in logs and metrics: `shown_as`, which outlives the name of its class, or that name."""
    return getattr(state_or_event, "shown_as", type(state_or_event).__name__)


@record
class Granted:
    """Leadership was confirmed, `took` after the lock was gained."""

    epoch: int
    took: timedelta


@record
class Revoked:
    """Confirmed leadership ended."""

    epoch: int
    reason: str


@record
class Judged:
    """The guard answered, `took` after it was asked."""

    epoch: int
    verdict: Verdict
    took: timedelta


Entry = Move | Granted | Revoked | Judged


class Journal(Protocol):
    """Receives the entries in order, on the driver thread, some milliseconds after each change."""

    def record(self, entry: Entry) -> None:
        """Record `entry`. Must return quickly: the election waits."""


class DeferredJournal:
    """Keeps entries until `flush`, so that a change of leader does not wait for a log."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: list[Entry] = []

    @property
    def empty(self) -> bool:
        """True when there is nothing to flush."""
        return not self._entries

    def record(self, entry: Entry) -> None:
        """See `Journal.record`."""
        self._entries.append(entry)

    def flush(self) -> None:
        """Pass the entries on, in order. If the journal raises, this is logged and the entry is lost."""
        entries, self._entries = self._entries, []
        for entry in entries:
            try:
                self._journal.record(entry)
            except Exception:  # noqa: BLE001 - foreign code: a lost entry must not end leadership
                _log.exception("journal_raised")


class LogJournal:
    """Writes each entry as one structured log line."""

    def __init__(self, participant: str = "") -> None:
        self._log = _log.bind(participant=participant) if participant else _log

    def record(self, entry: Entry) -> None:
        """See `Journal.record`."""
        match entry:
            case Move(machine):
                self._log.info(
                    "election_moved",
                    machine=machine,
                    was=entry.was,
                    now=entry.now,
                    on=entry.on,
                    reason=entry.reason,
                )
            case Granted(epoch, took):
                self._log.info("leadership_granted", epoch=epoch, took_s=round(took.total_seconds(), 6))
            case Revoked(epoch, reason):
                self._log.info("leadership_revoked", epoch=epoch, reason=reason)
            case Judged(epoch, verdict, took):
                self._log.info(
                    "guard_answered",
                    epoch=epoch,
                    ready=verdict.ready,
                    reasons=list(verdict.reasons),
                    took_s=round(took.total_seconds(), 6),
                )
