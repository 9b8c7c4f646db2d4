"""Routes about releases: the list, one in full, and the differences of two."""

from __future__ import annotations

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query

from nimbus.api.models_releases import ReleaseDiffModel, ReleaseModel, ReleasesModel
from nimbus.api.paging import Paging
from nimbus.api.releases import diff_releases, get_release, list_releases
from nimbus.api.requests import DigestText, FilePathText, PipelineNameText
from nimbus.api.services import ApiServices


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
