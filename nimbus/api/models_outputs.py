"""Models of answers about outputs of tasks."""

from __future__ import annotations

from nimbus.api.models import Model, of
from nimbus.domain.outputs import ListedFile


@of(ListedFile)
class OutputFileModel(Model):
    """One file of an output."""


class OutputModel(Model):
    """The committed output of a task."""

    task: str
    run: str
    """The run whose attempt made it: another one if the task is reused."""
    attempt: int
    reference: str
    """Relative to `worker.data`: a folder, or the key of a manifest."""
    uri: str | None
    """Where its files are; null: `unreadable` says why."""
    worker: str
    host: str | None
    """Name of the worker's host; null: the worker is not registered now."""
    files: list[OutputFileModel]
    """By name: in each folder first the files, then what its folders hold. Links and special files are left
    out, and names that are not Unicode in form NFC, or have control characters or backslashes."""
    truncated: bool
    """More files follow: ask with this `task`, and the last path as `after`."""
    total_files: int | None
    """Of the whole output; null: not known, because the list is truncated."""
    total_bytes: int | None
    unreadable: str
    """Why this scheduler cannot list it, and what to do; empty: it can."""


class OutputsModel(Model):
    """The committed outputs of a run."""

    run_id: str
    outputs: list[OutputModel]
    complete: bool
    """False: the run has more outputs than one answer lists."""
