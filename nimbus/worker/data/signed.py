"""The bucket of outputs for a driver in a cluster, through presigned URLs from a scheduler.

The cluster gets no credentials of the bucket. A scheduler signs a URL for one object and one method, only for
keys of the attempt's own output and of its inputs, while the attempt is open (`nimbus.scheduler.gateway`).
Runs in drivers, in Spark's Python workers, and in the process that commits an output.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any

from blobsync import (
    BlobNotFoundError,
    BlobSyncError,
    BucketAccessDeniedError,
    BucketRefusedError,
    BucketUnavailableError,
    RetryPolicy,
)
from blobsync.bucket.ports import checked_key
from blobsync.log import log_errors_alone
from nimbus.worker.application.gateway import Gateway, GatewayRefusedError, GatewayUnreachableError
from nimbus.worker.application.reports import END_PATIENCE_S
from nimbus.worker.data.bucket import UPLOAD_RETRY, BucketPlace
from nimbus.worker.data.ports import OutputRefusedError
from nimbus.worker.host.files import digested

MAX_BYTES = 5 << 30
"""Largest object: the limit of S3 for one request."""
_GATEWAY_PATIENCE_S = 20.0
"""Also how long schedulers may lag behind the claim, since a driver whose attempt is forgotten must end."""
_ANSWER_S = 60.0
_CHUNK_BYTES = 1 << 20
_COMMIT_RETRY = RetryPolicy(max_wait=timedelta(seconds=20), deadline=timedelta(seconds=END_PATIENCE_S))
"""For each file: as long as the driver retries END."""


class SignedStore:
    """See `nimbus.worker.data.ports.DataStore`.

    `access`, from the bootstrap: fields of `Gateway`, and `schedulers`, `nonce`, `uri`, `output`, `inputs`.
    """

    def __init__(self, access: Mapping[str, Any]) -> None:
        log_errors_alone(lambda: None)  # hosts of a cluster need no structlog
        self.gateway = Gateway(access)
        self._said = {name: access[name] for name in ("nonce", "uri", "output")}
        self._said["inputs"] = sorted(access["inputs"].values())

    def read(self, key: str) -> Iterator[bytes]:
        """See `DataStore.read`."""
        with self._asked("GET", key) as answer:
            left = int(answer.headers.get("Content-Length", 0))
            while chunk := answer.read(_CHUNK_BYTES):
                left -= len(chunk)
                yield chunk
        if left > 0:  # `read` does not report a connection that was closed early
            raise BucketUnavailableError(f"GET of {key} broke off: {left} bytes are missing")

    def write(self, key: str, data: bytes | Path) -> None:
        """See `DataStore.write`. The server checks the MD5 if it can."""
        with io.BytesIO(data) if isinstance(data, bytes) else data.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            if size > MAX_BYTES:
                raise BucketRefusedError(
                    f"{key} has {size} bytes, and a driver in a cluster stores at most {MAX_BYTES}: "
                    "let the task write several"
                )
            file.seek(0)
            md5 = digested(file, hashlib.md5(usedforsecurity=False)).digest()
            file.seek(0)
            headers = {
                "Content-Length": str(size),
                "Content-MD5": base64.b64encode(md5).decode(),
                "Content-Type": "application/octet-stream",
            }
            with self._asked("PUT", key, file, headers) as answer:
                answer.read()

    def size(self, key: str) -> int | None:
        """See `DataStore.size`."""
        try:
            with self._asked("HEAD", key) as answer:
                return int(answer.headers["Content-Length"])
        except BlobNotFoundError:
            return None

    @contextmanager
    def _asked(
        self, method: str, key: str, data: IO[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        url, required = self._signed(method, key)
        request = urllib.request.Request(url, data, {**(headers or {}), **required}, method=method)  # noqa: S310 - as signed
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310 - as signed
                yield answer
        except urllib.error.HTTPError as exc:
            raise _translated(exc, key) from exc
        except (OSError, HTTPException) as exc:
            raise BucketUnavailableError(f"{method} of {key}: {type(exc).__name__}: {exc}") from exc

    def _signed(self, method: str, key: str) -> tuple[str, Mapping[str, str]]:
        """A signed URL, and the headers that its signature requires."""
        checked_key(key)
        try:
            answer = self.gateway.post(
                "sign", {**self._said, "method": method, "key": key}, _GATEWAY_PATIENCE_S
            )
            return str(answer["url"]), dict(answer["headers"])
        except GatewayRefusedError as exc:
            raise BucketRefusedError(f"no scheduler signs {method} of {key}: {exc}") from exc
        except (GatewayUnreachableError, KeyError) as exc:
            raise BucketUnavailableError(f"{method} of {key}: {exc}") from exc


_stores: dict[tuple[str, str], SignedStore] = {}
_making = threading.Lock()


def signed_store(access: Mapping[str, Any]) -> SignedStore:
    """The store of an attempt's driver, one for each process, so that it keeps the known schedulers."""
    name = access["attempt"], access["nonce"]
    with _making:
        store = _stores.get(name)
        if store is None:
            store = _stores[name] = SignedStore(access)
    store.gateway.learn([*latest(access)["endpoints"], *store.gateway.endpoints])
    return store


def latest(access: Mapping[str, Any]) -> Mapping[str, Any]:
    """`access` with the schedulers that the bootstrap recorded last, if this is its host."""
    try:
        return {**access, "endpoints": json.loads(Path(access["schedulers"]).read_bytes())}
    except (OSError, ValueError):
        return access


def _translated(error: urllib.error.HTTPError, key: str) -> Exception:
    said = f"{key}: the store answers {error.code} {error.reason}"
    if error.code == 404:
        return BlobNotFoundError(key)
    if error.code in (401, 403):
        return BucketAccessDeniedError(said)
    if 400 <= error.code < 500:
        return BucketRefusedError(said)
    return BucketUnavailableError(said)  # also a redirect


def signed_place(
    access: Mapping[str, Any], copies: Path, upload_retry: RetryPolicy = UPLOAD_RETRY
) -> BucketPlace:
    """The bucket of outputs for an attempt in a cluster. `copies` is the folder for copies of inputs."""
    return BucketPlace(access["uri"], copies, lambda: signed_store(access), upload_retry, UPLOAD_RETRY)


class CopiedInputs(Mapping[str, Path]):
    """Inputs of an attempt in a cluster. Each is copied to this host and verified on first access.

    Not earlier: Spark's executors read inputs from the bucket, and an input may not fit on this host's disk.
    `places`: the folder of each copy, by task.
    """

    def __init__(self, access: Mapping[str, Any], places: Mapping[str, Path]) -> None:
        self._access, self._places = access, places
        copies = next(iter(places.values()), Path("/nowhere/none")).parent
        self._bucket = signed_place(
            access, copies
        )  # one object, whose locks ensure that each input is copied once

    def __getitem__(self, task: str) -> Path:
        place = self._places[task]
        if not place.is_dir():
            signed_store(self._access)  # adds later schedulers
            self._bucket.fetch(self._access["inputs"][task])
        return place

    def files(self, task: str) -> Sequence[PurePosixPath]:
        """Paths of an input's files, relative to the input. Copies nothing."""
        signed_store(self._access)
        manifest = self._bucket.manifest(self._access["inputs"][task])
        return [PurePosixPath(file.path) for file in manifest.files]

    def __contains__(self, task: object) -> bool:
        """Check without copying."""
        return task in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def commit(told: dict[str, Any]) -> dict[str, str]:
    """Upload an output, then its manifest. `told`: `access` of `SignedStore`, `output` and `noted`."""
    access = told["access"]
    try:
        place = signed_place(access, Path("/nowhere"), _COMMIT_RETRY)
        return {"output": place.commit(Path(told["output"]), access["output"], Path(told["noted"]))}
    except (OSError, BlobSyncError, OutputRefusedError) as exc:
        return {"fault": f"its output could not be stored: {exc}".encode(errors="replace").decode()}


def commit_output() -> None:
    """Store the output of a driver: in a process that its bootstrap starts after a success.

    From standard input, because it contains tokens. Writes `{"output": <reference>}` or `{"fault": <why>}`.
    """
    sys.stdout.write(json.dumps(commit(json.load(sys.stdin))))
