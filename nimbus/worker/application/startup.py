"""What a bootstrap is told: its startup document, the token for its attempt, the archive of its release."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest
from nimbus.domain.workers import Assignment
from nimbus.worker.application.bootstrap import PACKED
from nimbus.worker.driver_plan import context_document, driver_document
from nimbus.worker.settings import RunnerPlan

_PIECE_BYTES = 1 << 20
_KIT = (
    *(f"blobsync/{name}.py" for name in ("__init__", "errors", "log", "names", "retry")),
    *(f"blobsync/bucket/{name}.py" for name in ("__init__", "ports")),
    "nimbus/__init__.py",
    "nimbus/checkpoint.py",
    "nimbus/result.py",
    "nimbus/task.py",
    *(f"nimbus/authoring/{name}.py" for name in ("__init__", "description", "options", "pipelines", "tasks")),
    *(f"nimbus/domain/{name}.py" for name in ("__init__", "errors", "intervals", "local_dates")),
    *(f"nimbus/templates/{name}.py" for name in ("__init__", "dates", "names", "sandbox")),
    "nimbus/worker/__init__.py",
    *(
        f"nimbus/worker/{name}.py"
        for name in (
            "class_archive", "driver", "driver_progress", "environment", "files", "flushing", "program",
            "spark_pipeline", "sql_split", "sql_task",
        )
    ),
    *(
        f"nimbus/worker/data/{name}.py"
        for name in (
            "__init__", "bucket", "manifest", "notes", "ports", "signed", "source", "source_offer", "tree",
        )
    ),
    *(f"nimbus/worker/application/{name}.py" for name in ("__init__", "bootstrap", "committing")),
)  # fmt: skip
"""What a driver imports, and no more."""
_KIT_PACKAGES = ("jinja2", "markupsafe")
"""For `sql` tasks. The compiled part of markupsafe stays here: it has one in Python, too."""


def token_for(key: bytes, attempt: str, pipeline: PipelineName, release: ReleaseDigest) -> str:
    """The token for an attempt alone, and for its release."""
    return hmac.new(key, f"{attempt}\n{pipeline}\n{release}".encode(), hashlib.sha256).hexdigest()


def data_token_for(key: bytes, attempt: str, *, uri: str, output: str, inputs: Sequence[str]) -> str:
    """The token that lets an attempt have addresses signed, of its output and its inputs alone."""
    said = json.dumps(["data", attempt, uri, output, sorted(inputs)])
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
        order: To run the attempt.
        plan: How to run it.
        target: The place it is submitted to.
        endpoints: Base URLs of schedulers.
        key: Of all tokens.
        release_sha256: Of the archive of its release.
        driver_id: `folder`: the cluster names the driver's folder by it; or else the variable that says it.
    """
    timeout, context = order.timeout, context_document(plan, order, Path("/nowhere"))
    data: dict[str, Any] = context["data"]
    told = {**data, "inputs": list(data["inputs"].values())}
    return json.dumps(
        {
            "attempt": order.attempt,
            "pipeline": order.pipeline,
            "release": order.release,
            "release_sha256": release_sha256,
            "target": target,
            "worker": plan.worker,
            "host": plan.host,
            "driver_id": driver_id,
            "endpoints": list(endpoints),
            "token": token_for(key, order.attempt, order.pipeline, order.release),
            "data_token": None if plan.data_uri is None else data_token_for(key, order.attempt, **told),
            "timeout_s": None if timeout is None else timeout.total_seconds(),
            "stop_grace_s": plan.stop_grace_s,
            "driver": driver_document(plan, order),
            "context": context,
            "environment": {
                **plan.telemetry.variables(plan.cluster, AttemptId.parse(order.attempt)),
                **order.task.env,
            },
        },
        separators=(",", ":"),
    )


def packed(document: str) -> str:
    """A startup document without characters that mean something to a shell: YARN's scripts quote badly."""
    return PACKED + base64.b64encode(zlib.compress(document.encode())).decode()


def build_kit() -> bytes:
    """A zip file with what a driver in a cluster imports, of this release of Nimbus."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as kit:
        root = Path(__file__).parents[3]
        for name in _KIT:
            kit.write(root / name, name)
        for package in _KIT_PACKAGES:
            spec = find_spec(package)
            assert spec is not None  # noqa: S101 - a dependency
            assert spec.origin is not None  # noqa: S101 - a package
            folder = Path(spec.origin).parent
            for file in sorted(folder.rglob("*.py")):
                kit.write(file, f"{package}/{file.relative_to(folder)}")
    return buffer.getvalue()


def release_archive(root: Path) -> Iterator[bytes]:
    """A tar file of a release's files, in pieces. The same bytes on each host: no times, no owners."""
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
    found: list[Path] = []
    for folder, _, names in os.walk(root):
        found += [Path(folder, name) for name in names]
    return sorted(found)
