"""A decision: what is written, what is known afterwards, and what is started once it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.run import Run
from nimbus.domain.writes import Write
from nimbus.engine.facts import Facts


@dataclass(frozen=True, slots=True)
class PrepareRelease:
    """Bring a release to this leader's own disk, verify it, and read its definition."""

    release: ReleaseOf


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """Store a finished run in history."""

    run: Run


@dataclass(frozen=True, slots=True)
class ResignLeadership:
    """Close the latch and queue again."""

    reason: str


Effect = PrepareRelease | ArchiveRun | ResignLeadership


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One step of the leader. All `writes` are one fenced transaction.

    A decision has writes or effects, never both: the answer to a write may be lost, and with it what would
    follow. What must follow is decided next, from the records that the write left.
    """

    name: str
    """Past tense, constant: the log's and the metric's key."""
    facts: Facts
    """What holds once the writes are done."""
    writes: tuple[Write, ...] = ()
    effects: tuple[Effect, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    """For the log line."""
