"""Manifests and layouts of the releases that were complete here. Thread-safe."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from blobsync.errors import CorruptBlobError, InvalidLayoutError, InvalidManifestError
from blobsync.local.disk import FileIdentity, identity, regular
from blobsync.local.foundation import Foundation
from blobsync.release.layout import Layout
from blobsync.release.manifest import Manifest, ReleaseRef
from blobsync.storage.releases import verified_manifest

_CACHED_ARTIFACTS = 20_000
"""Of parsed manifests, in memory."""


@dataclass(frozen=True, slots=True)
class KeptRelease:
    """What a release is, and which packs have its small files."""

    manifest: Manifest
    layout: Layout


class ReleaseFiles:
    """Kept releases. Damaged files go to quarantine, and count as not kept.

    Args:
        base: The store.
    """

    def __init__(self, base: Foundation) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._parsed: OrderedDict[tuple[Path, FileIdentity], Manifest] = OrderedDict()

    def keep(self, manifest: Manifest, layout: Layout) -> None:
        """Write both, the manifest last. OSError passes through."""
        path, data = self._path(manifest.ref, ".layout"), layout.encode()
        if self.layout(manifest.ref) != layout:
            self._base.install_document(path, data)
        if self.manifest(manifest.ref) is None:
            self._base.install_document(self._path(manifest.ref, ".json"), manifest.canonical)

    def kept(self, ref: ReleaseRef) -> KeptRelease | None:
        """See `blobsync.LocalStore.kept`. OSError passes through."""
        manifest, layout = self.manifest(ref), self.layout(ref)
        return None if manifest is None or layout is None else KeptRelease(manifest, layout)

    def manifest(self, ref: ReleaseRef) -> Manifest | None:
        """The manifest of a kept release; None: it is not here, or was damaged."""
        path = self._path(ref, ".json")
        read = _read(path)
        if read is None:
            return None
        data, found = read
        with self._lock:
            known = self._parsed.get((path, found))
        if known is not None and known.canonical == data:
            return known
        try:
            manifest = verified_manifest(data, ref.name, ref.digest)
        except (CorruptBlobError, InvalidManifestError) as exc:
            self._base.quarantine(path, f"{exc}; SHA-256 {hashlib.sha256(data).hexdigest()}")
            return None
        with self._lock:
            self._parsed[path, found] = manifest
            while sum(len(item.artifacts) for item in self._parsed.values()) > _CACHED_ARTIFACTS:
                self._parsed.popitem(last=False)
        return manifest

    def layout(self, ref: ReleaseRef) -> Layout | None:
        """The layout of a kept release; None: it is not here, or was damaged."""
        path = self._path(ref, ".layout")
        read = _read(path)
        if read is None:
            return None
        try:
            return Layout.parse(read[0])
        except InvalidLayoutError as exc:
            self._base.quarantine(path, str(exc))
            return None

    def refs(self) -> list[ReleaseRef]:
        """All that are kept, sorted; unread."""
        found = (self._base.root / "releases").glob("*/*.json")
        refs = [
            ReleaseRef(path.parent.name, path.stem) for path in found if path.with_suffix(".layout").exists()
        ]
        return sorted(refs, key=lambda ref: (ref.name, ref.digest))

    def _path(self, ref: ReleaseRef, suffix: str) -> Path:
        return self._base.root / "releases" / ref.name / f"{ref.digest}{suffix}"


def _read(path: Path) -> tuple[bytes, FileIdentity] | None:
    if regular(path) is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(), identity(os.fstat(file.fileno()))
    except FileNotFoundError:  # collected just now
        return None
