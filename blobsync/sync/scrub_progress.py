"""How far the scrub is. A value, so that whoever asks never waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """Of the rounds that this process makes; of several on one store, one does each.

    Attributes:
        is_running: A round is under way.
        done_releases: Releases that it, or else the last one, has been through.
        total_releases: Of how many.
        done_objects: Packs and large files verified in it.
        damaged_objects: Put away, since the start of the process.
        failed_objects: That the disk did not give, since the start of the process.
        finished_rounds: Since the start of the process.
        finished_at: End of the last of them, for people.
    """

    is_running: bool = False
    done_releases: int = 0
    total_releases: int = 0
    done_objects: int = 0
    damaged_objects: int = 0
    failed_objects: int = 0
    finished_rounds: int = 0
    finished_at: datetime | None = None


class ScrubTally:
    """Keeps `progress` true. Told on the scrub's thread; `progress` is read on any."""

    def __init__(self) -> None:
        self.progress = ScrubProgress()

    @contextmanager
    def round(self, releases: int) -> Iterator[None]:
        """A round through so many releases; one that breaks off is not finished."""
        self.progress = replace(
            self.progress, is_running=True, done_releases=0, total_releases=releases, done_objects=0
        )
        try:
            yield
            self.progress = replace(
                self.progress,
                finished_rounds=self.progress.finished_rounds + 1,
                finished_at=datetime.now(UTC),
            )
        finally:
            self.progress = replace(self.progress, is_running=False)

    def been_through(self, releases: int, objects: int) -> None:
        """So far in this round."""
        self.progress = replace(self.progress, done_releases=releases, done_objects=objects)

    def damaged(self) -> None:
        """An object was put away."""
        self.progress = replace(self.progress, damaged_objects=self.progress.damaged_objects + 1)

    def failed(self) -> None:
        """The disk did not give an object."""
        self.progress = replace(self.progress, failed_objects=self.progress.failed_objects + 1)
