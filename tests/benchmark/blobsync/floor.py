"""The floor: the same objects that we fetch, received, hashed, written and flushed, and nothing else.

Two threads, plain sockets, requests signed in advance. No manifest, no unpacking, no check of single files,
no resuming. The difference between our time and the floor is the cost of a release.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from blake3 import blake3

_THREADS = 2
_RANGE_BYTES = 16 << 20
_HASHES: dict[str, Callable[[], Any]] = {"blake3": blake3, "sha256": hashlib.sha256}


@dataclass(frozen=True)
class _Part:
    url: str
    file: str
    start: int
    size_bytes: int


class Floor:
    """See the module. The constructor signs the requests.

    Args:
        objects: Size by key, in the bucket.
        digest: `blake3` or `sha256`.
    """

    def __init__(self, bucket: str, objects: Mapping[str, int], digest: str) -> None:
        import boto3  # not at the top: the process whose memory is measured imports this module, too
        from botocore.config import Config

        config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
        client: Any = boto3.client("s3", endpoint_url=os.environ["BENCH_ENDPOINT"], config=config)
        self._server = urlsplit(os.environ["BENCH_ENDPOINT"]).netloc
        self._hash = _HASHES[digest]
        self._parts: list[_Part] = []
        self._names: list[str] = []
        for key, size in objects.items():
            url = urlsplit(client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}))
            self._names.append(key.replace("/", "-"))
            for start in range(0, size, _RANGE_BYTES):
                part = min(_RANGE_BYTES, size - start)
                self._parts.append(_Part(f"{url.path}?{url.query}", self._names[-1], start, part))

    def run(self, folder: Path) -> None:
        """Fetch all objects into `folder`, durably."""
        folder.mkdir()
        left: queue.SimpleQueue[_Part] = queue.SimpleQueue()
        for part in self._parts:
            left.put(part)
        files = {name: os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in self._names}
        threads = [threading.Thread(target=self._work, args=(left, files)) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not left.empty():
            raise RuntimeError("a thread of the floor failed")
        for fd in (*files.values(), os.open(folder, os.O_RDONLY)):
            os.fsync(fd)
            os.close(fd)

    def _work(self, left: queue.SimpleQueue[_Part], files: Mapping[str, int]) -> None:
        connection = http.client.HTTPConnection(self._server)
        view = memoryview(bytearray(1 << 20))
        while True:
            try:
                part = left.get_nowait()
            except queue.Empty:
                break
            self._receive(connection, part, files[part.file], view)
        connection.close()

    def _receive(
        self, connection: http.client.HTTPConnection, part: _Part, fd: int, view: memoryview
    ) -> None:
        wanted = f"bytes={part.start}-{part.start + part.size_bytes - 1}"
        connection.request("GET", part.url, headers={"Range": wanted})
        answer, digest, at = connection.getresponse(), self._hash(), part.start
        while got := answer.readinto(view):
            digest.update(view[:got])
            at += os.pwrite(fd, view[:got], at)
        if at != part.start + part.size_bytes:
            raise RuntimeError(f"HTTP {answer.status}, {at - part.start} of {part.size_bytes} bytes")
