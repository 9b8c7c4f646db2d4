"""Scripts, style and icon: read once, and served under a URL that changes with their content."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_KEPT_FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _Asset:
    data: bytes
    packed: bytes
    media_type: str


class Assets:
    """All static files of this package."""

    def __init__(self) -> None:
        self._files: dict[str, _Asset] = {}
        digest = hashlib.sha256()
        folder = resources.files("nimbus.web") / "static"
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            data, kind = file.read_bytes(), file.name[file.name.rindex(".") :]
            digest.update(data)
            self._files[file.name] = _Asset(data, gzip.compress(data, 9, mtime=0), _TYPES[kind])
        self.version = digest.hexdigest()[:12]
        """Version of the content, which is part of each URL."""

    def answer(self, request: Request, version: str, name: str) -> Response | None:
        """A file; None: there is no such file.

        For another release's version, ours is sent without caching: schedulers are upgraded one by one.
        """
        asset = self._files.get(name)
        if asset is None:
            return None
        kept = _KEPT_FOR_GOOD if version == self.version else "no-store"
        headers = {"Cache-Control": kept, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(asset.data, media_type=asset.media_type, headers=headers)
        return Response(
            asset.packed, media_type=asset.media_type, headers={**headers, "Content-Encoding": "gzip"}
        )
