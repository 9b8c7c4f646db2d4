"""Releases on this disk, for the engine (their definitions) and for the embedded worker (their files)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from blobsync import BlobSyncError, ReleaseRef, Syncer
from nimbus.definition import parse_definition
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipeline import DEFINITION_FILE, PipelineSpec

PREPARE_TIMEOUT = timedelta(seconds=60)
"""How long a command waits for its release to come from storage."""


class LocalReleases:
    """Fetches, verifies and opens releases. Blocks; used on threads that may wait."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer

    def ensure(self, pipeline: PipelineName, digest: ReleaseDigest, timeout: timedelta) -> Path:
        """The folder of a verified release. Raises what `blobsync.Syncer.ensure` raises."""
        return self._syncer.ensure(ReleaseRef(pipeline, digest), timeout)

    def is_here(self, pipeline: PipelineName, digest: ReleaseDigest) -> bool:
        """Whether a release is complete on this disk. Raises `blobsync.LocalStoreError`."""
        return self._syncer.is_here(ReleaseRef(pipeline, digest))

    def prepare(self, release: ReleaseOf) -> PipelineSpec:
        """Bring a release here and read its definition. See `nimbus.engine.effects.ReleasePreparer`."""
        try:
            folder = self.ensure(release.pipeline, release.digest, PREPARE_TIMEOUT)
        except BlobSyncError as exc:
            raise RefusedError(exc.code, f"release {release.digest[:12]} cannot be used: {exc}") from exc
        try:
            text = (folder / DEFINITION_FILE).read_bytes()
        except FileNotFoundError as exc:
            raise RefusedError(
                "no_definition",
                f"release {release.digest[:12]} has no {DEFINITION_FILE}: publish the pipeline's folder.",
            ) from exc
        try:
            spec = parse_definition(text, f"{release.pipeline}/{DEFINITION_FILE}")
        except NimbusError as exc:
            raise RefusedError(exc.code, str(exc)) from exc
        if spec.name != release.pipeline:
            raise RefusedError(
                "name_mismatch",
                f"release {release.digest[:12]} is of pipeline {spec.name!r}, not {release.pipeline!r}.",
            )
        return spec
