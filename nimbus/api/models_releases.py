"""What the API answers about releases, and how two of them differ."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from nimbus.api.models import Model, PageModel
from nimbus.api.routes_commands import ListedCommandModel


class ListedReleaseModel(Model):
    """One release of a pipeline."""

    digest: str
    published_at: datetime | None
    """When it was published last, by the clock of who did it; null: storage does not say."""
    active: bool
    newest: bool
    """No other one was made known to the catalog since."""
    pinned: bool
    """A backfill that is under way needs it."""


class ReleasesModel(PageModel):
    """Releases of a pipeline, those that were published last first."""

    releases: list[ListedReleaseModel]
    complete: bool
    """False: storage did not answer, and only those that the catalog names are listed."""


class ReleaseFileModel(Model):
    """A file of a release."""

    path: str
    size_bytes: int
    sha256: str
    role: str
    executable: bool


class HoldersModel(Model):
    """What schedulers say of a release; ids."""

    holding: list[str]
    """On their disks, verified."""
    lacking: list[str]
    silent: list[str]
    """They have not said anything for ten minutes."""


class ReleaseModel(ListedReleaseModel):
    """One release in full."""

    pipeline: str
    here: bool
    """On the disk of the scheduler that answers, verified."""
    files: list[ReleaseFileModel]
    """By path; at most 500."""
    files_total: int
    size_bytes: int
    """Of all files."""
    holders: HoldersModel | None
    """Null: storage does not say."""
    commands: list[ListedCommandModel]
    """That published and activated it, newest first, as far as history tells."""


class FileChangeModel(Model):
    """A file that is not the same in both releases. Null: it is not there."""

    path: str
    before: ReleaseFileModel | None
    after: ReleaseFileModel | None
    change: Literal["added", "removed", "changed"]


class DefinitionChangeModel(Model):
    """A key of the definition with another value."""

    key: str
    """Such as `tasks.load.timeout_s`, as `GET /pipelines/{name}` shows the definition."""
    about: str
    """The same in words: `task load: timeout_s`."""
    change: Literal["added", "removed", "changed"]
    before: Any
    after: Any


class TextDiffModel(Model):
    """How the text of one file changed."""

    path: str
    diff: list[str] | None
    """Lines of a unified diff, without the names of the files; null: there is none to show."""
    why_none: str = ""
    """Such as that it is no text, that it is above 256 KiB, or that it is not on this disk."""


class ReleaseDiffModel(Model):
    """How a release differs from another one."""

    pipeline: str
    before: str
    """`against`."""
    after: str
    files: list[FileChangeModel]
    """By path; at most 500."""
    files_changed: int
    """All of them."""
    definition: list[DefinitionChangeModel] | None
    """At most 500 keys; null: not both definitions are on the disk of the scheduler that answers."""
    definition_why_none: str = ""
    text: TextDiffModel | None = Field(None, description="Of the `file` that was asked for.")
