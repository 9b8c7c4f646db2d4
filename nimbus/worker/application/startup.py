"""What a bootstrap is told: its startup document, the token for its attempt, the archive of its release."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.workers import Assignment
from nimbus.worker.driver_plan import context_document, driver_document
from nimbus.worker.settings import RunnerPlan

_PIECE_BYTES = 1 << 20
_KIT = (
    "nimbus/__init__.py",
    "nimbus/task.py",
    "nimbus/domain/__init__.py",
    "nimbus/domain/errors.py",
    "nimbus/worker/__init__.py",
    *(
        f"nimbus/worker/{name}.py"
        for name in (
            "class_archive", "driver", "driver_progress", "environment", "files", "program",
            "sql_split",
            "spark_pipeline", "sql_task",
        )
    ),
    *(
        f"nimbus/worker/data/{name}.py"
        for name in ("__init__", "manifest", "notes", "ports", "source", "source_offer")
    ),
)  # fmt: skip
"""What a driver imports, and no more."""
_KIT_PACKAGES = ("jinja2", "markupsafe")
"""For tasks of type `sql`. The compiled part of markupsafe stays here: it has one in Python, too."""


def token_for(key: bytes, attempt: str, pipeline: PipelineName, release: ReleaseDigest) -> str:
    """The token for an attempt alone, and for its release."""
    return hmac.new(key, f"{attempt}\n{pipeline}\n{release}".encode(), hashlib.sha256).hexdigest()


def startup_document(
    order: Assignment,
    plan: RunnerPlan,
    *,
    target: str,
    endpoints: Sequence[str],
    token: str,
    release_sha256: str,
    driver_id: str,
) -> str:
    """The document for the bootstrap of an attempt.

    Args:
        order: To run the attempt.
        plan: How to run it.
        target: The place it is submitted to.
        endpoints: Base URLs of schedulers.
        token: See `token_for`.
        release_sha256: Of the archive of its release.
        driver_id: `folder`: the cluster names the driver's folder by it; or else the id itself.
    """
    timeout = order.timeout
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
            "token": token,
            "timeout_s": None if timeout is None else timeout.total_seconds(),
            "stop_grace_s": plan.stop_grace_s,
            "driver": driver_document(plan, order),
            "context": context_document(plan, order, Path("/nowhere")),
        },
        separators=(",", ":"),
    )


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
            for file in sorted(folder.glob("*.py")):
                kit.write(file, f"{package}/{file.name}")
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
