"""Models of answers about releases, and about their differences."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from nimbus.api.models import Model, PageModel, of
from nimbus.api.routes_commands import ListedCommandModel
from nimbus.domain.release_files import Holders, ReleaseFile


class ListedReleaseModel(Model):
    """One release of a pipeline."""

    digest: str
    published_at: datetime | None
    """When it was published last, by the publisher's clock; null: storage does not answer."""
    active: bool
    newest: bool
    """True: it is the newest published release in the catalog."""
    pinned: bool
    """True: a backfill that is under way needs it."""


class ReleasesModel(PageModel):
    """Releases of a pipeline, last published first."""

    releases: list[ListedReleaseModel]
    complete: bool
    """False: storage did not answer, and only releases in the catalog are listed."""


@of(ReleaseFile)
class ReleaseFileModel(Model):
    """A file of a release."""


@of(Holders)
class HoldersModel(Model):
    """Ids of schedulers, by what they report about a release."""


class ReleaseModel(ListedReleaseModel):
    """One release in full."""

    pipeline: str
    here: bool
    """True: it is on the answering scheduler's disk, verified."""
    files: list[ReleaseFileModel]
    """By path; at most 500."""
    files_total: int
    size_bytes: int
    """Size of all files."""
    holders: HoldersModel | None
    """Null: storage does not answer."""
    commands: list[ListedCommandModel]
    """Commands that published or activated it, newest first, as far as they are in history."""


class FileChangeModel(Model):
    """A file that differs between both releases. Null: that release does not have it."""

    path: str
    before: ReleaseFileModel | None
    after: ReleaseFileModel | None
    change: Literal["added", "removed", "changed"]


class DefinitionChangeModel(Model):
    """A key of the definition with different values."""

    key: str
    """Path such as `tasks.load.timeout_s`, in the definition of `GET /pipelines/{name}`."""
    about: str
    """The path in words, such as `task load: timeout_s`."""
    change: Literal["added", "removed", "changed"]
    before: Any
    after: Any


class TextDiffModel(Model):
    """The text diff of one file."""

    path: str
    diff: list[str] | None
    """Lines of a unified diff, without the names of the files; null: there is none."""
    why_none: str = ""
    """Why there is none, for example: no text, above 256 KiB, or not on this disk."""


class ReleaseDiffModel(Model):
    """The differences of two releases."""

    pipeline: str
    before: str
    """The release given by `against`."""
    after: str
    files: list[FileChangeModel]
    """By path; at most 500."""
    files_changed: int
    """Number of all changed files."""
    definition: list[DefinitionChangeModel] | None
    """At most 500 keys; null: the answering scheduler does not have both definitions on its disk."""
    definition_why_none: str = ""
    text: TextDiffModel | None = Field(None, description="Text diff of the requested `file`.")
