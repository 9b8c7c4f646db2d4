"""Pages about releases: the list of a pipeline, one release, and its differences from another one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from typing import Annotated, Any, NamedTuple

from anyio.to_thread import run_sync
from fastapi import APIRouter
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import DigestText, FilePathText, PipelineNameText
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.routes.releases import (
    MAX_FILES,
    DefinitionChangeModel,
    TextDiffModel,
    diff_releases,
    get_release,
    list_releases,
)
from nimbus.api.services import ApiServices
from nimbus.definition.difference import in_words
from nimbus.domain.cluster.revisions import of_pipeline
from nimbus.domain.ids import ReleaseDigest
from nimbus.web.pages import Pages, none_if_empty, segment

_RELEASES = 50
_CHOICES = 20
"""Limit of releases that a page offers for a comparison."""
_DIFF_CHARACTERS = 48 * 1024
"""Limit of a text diff in one page."""
_SIGNS = {"+": "added", "-": "removed", "@": "hunk", "\\": "hunk"}


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/pipelines/{name}/releases")
    def releases(request: Request, name: PipelineNameText, cursor: CursorText = None) -> Response:
        page = list_releases(services, name, PageQuery(_RELEASES, cursor))
        active = known_pipeline(services, name).release
        shown = {
            "name": name,
            "base": f"/ui/pipelines/{segment(name)}",
            "active": active,
            "releases": page.releases,
            "complete": page.complete,
            "older": page.next_cursor,
        }
        return pages.answer(request, "releases.html", shown, about=name)

    @routes.get("/pipelines/{name}/releases/{digest}")
    async def release(
        request: Request,
        name: PipelineNameText,
        digest: DigestText,
        against: Annotated[DigestText | None, BeforeValidator(none_if_empty)] = None,
        file: Annotated[FilePathText | None, BeforeValidator(none_if_empty)] = None,
    ) -> Response:
        def page() -> Response:
            shown = _release(services, name, digest)
            other = against if "against" in request.query_params else shown["before"]
            if other is not None:
                diff = diff_releases(services, name, digest, other, file)
                shown |= {"against": other, "diff": diff} | _text(diff.text)
                shown["definition"] = diff.definition and together(diff.definition)
            return pages.answer(request, "release.html", shown, about=name)

        return await run_sync(page, limiter=services.comparing)

    return routes


def _release(services: ApiServices, name: str, digest: ReleaseDigest) -> dict[str, Any]:
    listed = list_releases(services, name, PageQuery(_CHOICES + 1)).releases
    older = dropwhile(lambda release: release.digest != digest, listed)
    record = known_pipeline(services, name)
    return {
        "base": f"/ui/pipelines/{segment(name)}",
        "release": get_release(services, name, digest),
        "active": record.release,
        "revision": of_pipeline(record),
        "others": [release for release in listed if release.digest != digest][:_CHOICES],
        "before": next(
            (release.digest for release in older if release.published_at and release.digest != digest), None
        ),
        "against": None,
        "most": MAX_FILES,
        "in_words": in_words,
    }


class ShownChange(NamedTuple):
    """A change of the definition."""

    of: DefinitionChangeModel
    """That of the first task."""
    about: str
    keys: list[str]


def together(changes: Iterable[DefinitionChangeModel]) -> list[ShownChange]:
    """The same change of several tasks as one: a change of `defaults` is one of every task."""
    alike: dict[tuple[str, str], list[DefinitionChangeModel]] = {}
    for change in changes:
        task, _, key = change.about.partition(": ")
        is_task = task.startswith("task ") and key
        same = json.dumps([key, change.change, change.before, change.after]) if is_task else ""
        alike.setdefault((change.key if not is_task else "", same), []).append(change)
    return [
        ShownChange(of[0], of[0].about if len(of) == 1 else _about(of), [change.key for change in of])
        for of in alike.values()
    ]


def _about(changes: Sequence[DefinitionChangeModel]) -> str:
    """Such as `8 tasks, load, clean and others: retries.limit`."""
    _, _, key = changes[0].about.partition(": ")
    first, second = (change.about.partition(": ")[0].removeprefix("task ") for change in changes[:2])
    others = f"{first}, {second} and others" if len(changes) > 2 else f"{first} and {second}"
    return f"{len(changes)} tasks, {others}: {key}"


def _text(text: TextDiffModel | None) -> dict[str, Any]:
    if text is None or text.diff is None:
        return {"lines": [], "left_out": 0}
    shown = _first(text.diff, _DIFF_CHARACTERS)
    return {
        "lines": [(_SIGNS.get(line[:1], "same"), line) for line in shown],
        "left_out": len(text.diff) - len(shown),
    }


def _first(lines: Sequence[str], most: int) -> list[str]:
    """The first lines, with at most `most` characters together."""
    digests: list[str] = []
    for line in lines:
        most -= len(line) + 1
        if most < 0:
            break
        digests.append(line)
    return digests
