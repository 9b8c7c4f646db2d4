"""The input of a bootstrap: its startup document, the token for its attempt, the archive of its release."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest
from nimbus.worker.application.bootstrap import PACKED
from nimbus.worker.driver.files import context_document, driver_plan
from nimbus.worker.host.identity import host_id
from nimbus.worker.libraries import find_wheels
from nimbus.worker.settings import RunnerPlan

_PIECE_BYTES = 1 << 20


def token_for(key: bytes, attempt: str, pipeline: PipelineName, release: ReleaseDigest) -> str:
    """The token for one attempt and its release."""
    return hmac.new(key, f"{attempt}\n{pipeline}\n{release}".encode(), hashlib.sha256).hexdigest()


def data_token_for(key: bytes, attempt: str, *, uri: str, output: str, inputs: Sequence[str]) -> str:
    """The token with which an attempt gets presigned URLs, only for its output and its inputs."""
    said = json.dumps(["data", attempt, uri, output, sorted(inputs)])
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def secrets_token_for(key: bytes, attempt: str, pipeline: PipelineName, names: Mapping[str, str]) -> str:
    """The token with which an attempt gets its task's secrets. `names`: as of `TaskSpec.secrets`."""
    said = json.dumps(["secrets", attempt, pipeline, sorted(names.items())])
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def startup_document(
    order: Assignment,
    plan: RunnerPlan,
    *,
    target: str,
    endpoints: Sequence[str],
    key: bytes,
    release_sha256: str,
    driver_id: str,
) -> str:
    """The document for the bootstrap of an attempt.

    Args:
        order: The order to run the attempt.
        plan: The attempt's plan.
        target: The target of the submission.
        endpoints: Base URLs of schedulers.
        key: The key of all tokens.
        release_sha256: Digest of the archive of its release.
        driver_id: `folder` if the driver's folder is named by its id, else the variable that contains the id.
    """
    timeout, context = order.timeout, context_document(plan, order, Path("/nowhere"))
    data: dict[str, Any] = context["data"]
    secrets = order.task.secrets
    told = {**data, "inputs": list(data["inputs"].values())}
    return json.dumps(
        {
            "attempt": order.attempt,
            "pipeline": order.pipeline,
            "release": order.release,
            "release_sha256": release_sha256,
            "target": target,
            "worker": plan.worker,
            "host": host_id(),
            "driver_id": driver_id,
            "endpoints": list(endpoints),
            "token": token_for(key, order.attempt, order.pipeline, order.release),
            "data_token": None if plan.data_uri is None else data_token_for(key, order.attempt, **told),
            "secrets": dict(secrets),
            "secrets_token": secrets_token_for(key, order.attempt, order.pipeline, secrets),
            "timeout_s": None if timeout is None else timeout.total_seconds(),
            "stop_grace_s": plan.stop_grace_s,
            "driver": asdict(driver_plan(plan, order)),
            "wheels": find_wheels(plan.release_root, order.task.dependencies),
            "context": context,
            "environment": {
                **plan.telemetry.variables(plan.cluster, AttemptId.parse(order.attempt)),
                **order.task.env,
            },
        },
        separators=(",", ":"),
    )


def packed(document: str) -> str:
    """Encode a startup document without shell characters, because YARN's scripts do not quote correctly."""
    return PACKED + base64.b64encode(zlib.compress(document.encode())).decode()


def release_archive(root: Path) -> Iterator[bytes]:
    """A tar file of a release's files, in pieces. It has no times or owners, so it is equal on all hosts."""
    for path in _files_below(root):
        status = path.stat()
        entry = tarfile.TarInfo(path.relative_to(root).as_posix())
        entry.size = status.st_size
        entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        yield entry.tobuf(tarfile.PAX_FORMAT)
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
        yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def archive_digest(root: Path) -> str:
    """SHA-256 of `release_archive`."""
    digest = hashlib.sha256()
    for piece in release_archive(root):
        digest.update(piece)
    return digest.hexdigest()


def _files_below(root: Path) -> list[Path]:
    files: list[Path] = []
    for folder, _, names in os.walk(root):
        files += [Path(folder, name) for name in names]
    return sorted(files)
