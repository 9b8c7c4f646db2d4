"""Releases in a bucket in memory and on a real disk, for tests of the API."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from blobsync import (
    LocalStore,
    ReleaseRef,
    ReplicaBoard,
    ReplicaRecord,
    RetryPolicy,
    Syncer,
    collect,
    publish,
)
from blobsync.testing.memory import MemoryObjectStore
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.scheduler.releases import StoredReleases


class ReleaseStage:
    """A bucket, and the disk of one scheduler, which is created at its first use."""

    def __init__(self) -> None:
        self.bucket = MemoryObjectStore()

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory()  # ends with this object

    @cached_property
    def local(self) -> LocalStore:
        return LocalStore(Path(self._folder.name) / "store")

    @cached_property
    def stored(self) -> StoredReleases:
        return StoredReleases(self.bucket, self.local)

    def __getattr__(self, name: str) -> Any:
        """Create the store at its first use, because many tests do not need it."""
        return getattr(self.stored, name)

    def publish(self, pipeline: str, files: Mapping[str, bytes], *, here: bool = True) -> ReleaseOf:
        """Publish files as a release. `here`: also sync it to the disk."""
        with tempfile.TemporaryDirectory() as folder:
            for path, data in files.items():
                target = Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            made = publish(self.bucket, name=pipeline, files=collect(Path(folder), include=["**/*"]))
        if here:
            syncer = Syncer(self.bucket, self.local, retry=RetryPolicy())
            syncer.ensure(ReleaseRef(pipeline, made.digest), timedelta(seconds=30))
            syncer.close(timedelta(seconds=30))
        return ReleaseOf(PipelineName(pipeline), ReleaseDigest(made.digest))

    def announce(self, scheduler: str, *releases: ReleaseOf) -> None:
        """Let a scheduler report that it has verified releases."""
        digests = tuple(sorted(release.digest for release in releases))
        ReplicaBoard(self.bucket).announce(ReplicaRecord(scheduler, digests, datetime.now(UTC)))
