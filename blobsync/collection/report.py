"""What a collection did, or would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from blobsync.collection.decision import Tallies
from blobsync.collection.inventory import Kind, Tally

MAX_TOLD = 100
"""So many keys are listed, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionReport:
    """What one run did; after a dry run, what it would have done.

    Attributes:
        dry_run: Nothing was written or deleted.
        kept: By kind and reason; see `Reason`.
        due: What was to be deleted, by kind.
        deleted: What was, by kind; a dry run deletes nothing.
        failed: Keys that could not be deleted, with the error, at most `MAX_TOLD` of them.
        failed_count: How many there are.
        abandoned_uploads: Unfinished uploads that were removed, or would be.
        foreign: What is no business of collections, and was left alone.
        missing: Keys that kept releases need and the store does not have, at most `MAX_TOLD` of them.
        missing_count: How many there are.
        postponed: Why what is due was left, in whole or part; empty: it was not.
        clock_trouble: Why the grace began anew for everything; empty: it did not.
        unreadable_tombstones: Keys of tombstones that this version cannot read. They condemn nothing, and
            are left for a person to remove.
        is_stopped: The run was told to stop before it was done.
    """

    dry_run: bool
    kept: Tallies
    due: Mapping[Kind, Tally]
    deleted: Mapping[Kind, Tally]
    failed: tuple[tuple[str, str], ...] = ()
    failed_count: int = 0
    abandoned_uploads: int = 0
    foreign: Tally = field(default_factory=Tally)
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    postponed: str = ""
    clock_trouble: str = ""
    unreadable_tombstones: tuple[str, ...] = ()
    is_stopped: bool = False

    def as_data(self) -> dict[str, Any]:
        """For machines: plain dictionaries, lists, texts and numbers."""
        return {
            "dry_run": self.dry_run,
            "kept": {
                kind.value: {reason.value: asdict(tally) for reason, tally in reasons.items()}
                for kind, reasons in self.kept.items()
            },
            "due": {kind.value: asdict(tally) for kind, tally in self.due.items()},
            "deleted": {kind.value: asdict(tally) for kind, tally in self.deleted.items()},
            "failed": [{"key": key, "error": error} for key, error in self.failed],
            "failed_count": self.failed_count,
            "abandoned_uploads": self.abandoned_uploads,
            "foreign": asdict(self.foreign),
            "missing": list(self.missing),
            "missing_count": self.missing_count,
            "postponed": self.postponed,
            "clock_trouble": self.clock_trouble,
            "unreadable_tombstones": list(self.unreadable_tombstones),
            "is_stopped": self.is_stopped,
        }
