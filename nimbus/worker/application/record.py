"""A worker's records of its submissions on disk: written right before and right after each one.

<work_dir>/applications/<attempt>.json
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from nimbus.worker.host.files import read_if_there, sync_folder, write_atomic


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
