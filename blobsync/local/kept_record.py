"""What a kept release consists of, in a small file beside its manifest, so that a look need not read that.

A manifest of 100,000 files takes long to be read and checked; whether all is here needs only the few objects
that it consists of. The record is written when the release was found complete, and says that it was, by this
layout. It is trusted as far as the store's index is: it is ours, and has a digest of its own. One that is
missing, damaged, or of another layout costs a reading of the manifest, nothing else. Pure.

Two lines: SHA-256 of the second, in hexadecimal, and JSON:

    {"blobs":[["<sha256>",SIZE,["<chunk>",...]],...],"files":N,"layout":"<SHA-256 of the layout's file>",
     "manifest_bytes":N,"release":"<digest>","schema":1,"size_bytes":N}
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from blobsync.release.blob import Blob

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """See the module.

    Attributes:
        release: Digest of the manifest.
        layout: SHA-256 of the layout as it was written.
        manifest_bytes: Size of the manifest's file.
        file_count: Files of the release.
        size_bytes: Of their distinct contents.
        blobs: What it consists of beside the packs of its layout.
    """

    release: str
    layout: str
    manifest_bytes: int
    file_count: int
    size_bytes: int
    blobs: tuple[Blob, ...]

    def encode(self) -> bytes:
        """As it is stored."""
        document = {
            "blobs": [[blob.sha256, blob.size_bytes, blob.chunks] for blob in self.blobs],
            "files": self.file_count,
            "layout": self.layout,
            "manifest_bytes": self.manifest_bytes,
            "release": self.release,
            "schema": SCHEMA,
            "size_bytes": self.size_bytes,
        }
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        return f"{hashlib.sha256(body).hexdigest()}\n".encode() + body

    @classmethod
    def parse(cls, data: bytes, *, release: str, layout: str) -> KeptRecord | None:
        """Read a record; None: it is damaged, or not of that release and layout."""
        digest, _, body = data.partition(b"\n")
        if digest != hashlib.sha256(body).hexdigest().encode():
            return None
        document = json.loads(body)  # we wrote it, as its digest says
        if document["schema"] != SCHEMA or (document["release"], document["layout"]) != (release, layout):
            return None
        blobs = tuple(Blob(sha256, size, tuple(chunks)) for sha256, size, chunks in document["blobs"])
        return cls(
            release, layout, document["manifest_bytes"], document["files"], document["size_bytes"], blobs
        )
