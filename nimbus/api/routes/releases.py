"""Releases: the list, one in full, and the differences of two.

Reading files and comparing them blocks; `ApiServices.comparing` bounds how many requests do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query
from pydantic import Field

from nimbus.api.models import Model, PageModel, PipelineSpecModel, of
from nimbus.api.paging import PageQuery, Paging
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import DigestText, FilePathText, PipelineNameText
from nimbus.api.routes.commands import CommandFilter, ListedCommandModel, list_commands
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.services import ApiServices, if_available
from nimbus.definition.difference import changes
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.pipelines.release_files import (
    FileChange,
    Holders,
    ReleaseFile,
    ReleasePublication,
    TooDifferentError,
    changed_files,
    unified_diff,
)
from nimbus.ports import DefinitionNotHereError


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


MAX_FILES = 500
"""Limit of files in one answer, and of changed keys."""
MAX_TEXT_BYTES = 256 * 1024
"""Limit of each of two compared files."""
_COMMANDS = 50


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["pipelines"], prefix=f"{prefix}/pipelines/{{name}}/releases")

    @routes.get("")
    def releases(name: PipelineNameText, paging: Paging) -> ReleasesModel:
        """Releases of a pipeline, last published first."""
        return list_releases(services, name, paging)

    @routes.get("/{digest}")
    async def release(name: PipelineNameText, digest: DigestText) -> ReleaseModel:
        """One release: its files, who published and activated it, which schedulers have it."""
        return await run_sync(get_release, services, name, digest, limiter=services.comparing)

    @routes.get("/{digest}/diff")
    async def release_diff(
        name: PipelineNameText,
        digest: DigestText,
        against: Annotated[DigestText, Query(description="The release to compare with.")],
        file: Annotated[
            FilePathText | None, Query(description="A file that differs, to compare its texts.")
        ] = None,
    ) -> ReleaseDiffModel:
        """Differences of two releases: files by digest, the definition key by key."""
        return await run_sync(
            diff_releases, services, name, digest, against, file, limiter=services.comparing
        )

    return routes


def list_releases(services: ApiServices, name: str, paging: PageQuery) -> ReleasesModel:
    """Releases in storage or in the catalog, last published first."""
    record = known_pipeline(services, name)
    published = _published(services, record.name)
    at = {publication.digest: publication.at for publication in reversed(published or ())}
    digests = dict.fromkeys([*at, *filter(None, (record.published, record.release)), *record.pinned])
    rows = [_listed(record, digest, at.get(digest)) for digest in digests]
    page = paging.page(
        rows,
        lambda row: ("" if row.published_at is None else row.published_at.isoformat(), row.digest),
        newest_first=True,
    )
    return ReleasesModel(releases=page.rows, complete=published is not None, **page.rest)


def get_release(services: ApiServices, name: str, digest: ReleaseDigest) -> ReleaseModel:
    """One release in full.

    Raises ObjectNotFoundError: storage has no such release; StorageUnavailableError: the release is not on
    this disk, and storage does not answer.
    """
    record = known_pipeline(services, name)
    release = ReleaseOf(record.name, digest)
    files = _files(services, release)
    published = _published(services, record.name) or ()
    at = next((publication.at for publication in published if publication.digest == digest), None)
    return ReleaseModel.from_records(
        _listed(record, release.digest, at),
        pipeline=record.name,
        here=services.releases.is_here(release),
        files=files[:MAX_FILES],
        files_total=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        holders=if_available(lambda: services.releases.holders(digest), "holders_unknown"),
        commands=_commands(services, release),
    )


def diff_releases(
    services: ApiServices, name: str, digest: ReleaseDigest, against: ReleaseDigest, file: str | None
) -> ReleaseDiffModel:
    """The differences of `digest` from `against`; with `file`, also its text diff.

    Raises ObjectNotFoundError: storage has no such release, or the file does not differ;
    StorageUnavailableError: a release is not on this disk, and storage does not answer.
    """
    record = known_pipeline(services, name)
    before, after = (ReleaseOf(record.name, side) for side in (against, digest))
    changed = changed_files(_files(services, before), _files(services, after))
    definition, why_none = _definition_changes(services, before, after)
    return ReleaseDiffModel(
        pipeline=record.name,
        before=before.digest,
        after=after.digest,
        files=[_file_change(change) for change in changed[:MAX_FILES]],
        files_changed=len(changed),
        definition=definition,
        definition_why_none=why_none,
        text=None if file is None else _text(services, before, after, _named(changed, file, release=after)),
    )


def _listed(record: PipelineRecord, digest: ReleaseDigest, at: datetime | None) -> ListedReleaseModel:
    return ListedReleaseModel(
        digest=digest,
        published_at=at,
        active=digest == record.release,
        newest=digest == record.published,
        pinned=digest in record.pinned,
    )


def _files(services: ApiServices, release: ReleaseOf) -> Sequence[ReleaseFile]:
    files = services.releases.files(release)
    if files is None:
        raise ObjectNotFoundError(
            "unknown_release",
            f"pipeline {release.pipeline} has no release {release.digest[:12]} in storage: see "
            "`nimbus pipeline releases`.",
        )
    return files


def _published(services: ApiServices, pipeline: PipelineName) -> Sequence[ReleasePublication] | None:
    """Published releases; None: storage does not answer."""
    return if_available(
        lambda: services.releases.published(pipeline), "releases_not_listed", pipeline=pipeline
    )


def _commands(services: ApiServices, release: ReleaseOf) -> list[ListedCommandModel]:
    wanted = CommandFilter(pipeline=release.pipeline, release=release.digest)
    return list_commands(services, wanted, PageQuery(_COMMANDS)).commands


def _file_change(change: FileChange) -> FileChangeModel:
    how = "added" if change.before is None else "removed" if change.after is None else "changed"
    return FileChangeModel.from_records(change, change=how)


def _definition_changes(
    services: ApiServices, before: ReleaseOf, after: ReleaseOf
) -> tuple[list[DefinitionChangeModel] | None, str]:
    """The changed keys, or the reason why they are not known."""
    try:
        old, new = (
            PipelineSpecModel.model_validate(services.definitions.definition(release)).model_dump(mode="json")
            for release in (before, after)
        )
    except (DefinitionNotHereError, RefusedError) as exc:
        return None, str(exc)
    models = [
        DefinitionChangeModel(
            key=change.key, about=change.about, change=change.verb, before=change.now, after=change.then
        )
        for change in changes(old, new)
    ]
    return models[:MAX_FILES], ""


def _named(changed: Sequence[FileChange], path: str, *, release: ReleaseOf) -> FileChange:
    file = next((change for change in changed if change.path == path), None)
    if file is None:
        raise ObjectNotFoundError(
            "unknown_file",
            f"{path[:200]!r} is the same in both releases of {release.pipeline}, or in neither.",
        )
    return file


def _text(services: ApiServices, before: ReleaseOf, after: ReleaseOf, change: FileChange) -> TextDiffModel:
    """The text diff of one file, or the reason why there is none."""
    texts = []
    for release, file in ((before, change.before), (after, change.after)):
        if file is None:
            texts.append("")
            continue
        if file.size_bytes > MAX_TEXT_BYTES:
            return TextDiffModel(path=change.path, diff=None, why_none="It is above 256 KiB.")
        data = services.releases.content(release, change.path)
        if data is None:
            why = f"Release {release.digest[:12]} is not on the disk of the scheduler that answers."
            return TextDiffModel(path=change.path, diff=None, why_none=why)
        try:
            texts.append(data.decode())
        except UnicodeDecodeError:
            return TextDiffModel(path=change.path, diff=None, why_none="It is no text in UTF-8.")
        if "\0" in texts[-1]:
            return TextDiffModel(path=change.path, diff=None, why_none="It is no text in UTF-8.")
    try:
        return TextDiffModel(path=change.path, diff=unified_diff(*texts))
    except TooDifferentError as exc:
        return TextDiffModel(path=change.path, diff=None, why_none=f"It is not compared: {exc}.")
