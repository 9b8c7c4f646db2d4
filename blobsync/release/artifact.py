"""One file of a release. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from blobsync.release.blob import Blob

MAX_ARTIFACTS = 100_000
MAX_ARTIFACT_BYTES = 5 << 40  # the largest object S3 has


class Role(StrEnum):
    """What a file is for."""

    CODE = "code"
    CONFIGURATION = "configuration"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a release. `chunks` as of `Blob`."""

    path: str
    size_bytes: int
    sha256: str
    role: Role
    executable: bool
    chunks: tuple[str, ...] = ()

    @property
    def blob(self) -> Blob:
        """Its bytes."""
        return Blob(self.sha256, self.size_bytes, self.chunks)
