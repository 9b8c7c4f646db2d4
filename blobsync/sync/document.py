"""Readiness as a small document, for publishing where documents must be small, as in ZooKeeper. Pure."""

from __future__ import annotations

import json
from typing import Any

from blobsync.sync.readiness import Readiness, ReleaseReadiness, ReleaseState

SCHEMA = 1
MAX_BYTES = 32 << 10
MAX_NAMES = 20
_MAX_REASON_CHARS = 300
_MIN_BYTES = 2 << 10


def readiness_document(
    readiness: Readiness, *, max_names: int = MAX_NAMES, max_bytes: int = MAX_BYTES
) -> bytes:
    """Canonical JSON that says how things stand, in a bounded size: the same readiness gives the same bytes.

    What is not ready comes first. When there is not enough room, names of missing files go first, then whole
    releases from the end; `left_out` says how many of those.

    Args:
        readiness: What to tell.
        max_names: Missing files that are named, over all releases; the counts tell of the rest.
        max_bytes: Of the document; at least 2 KiB.

    Raises:
        ValueError: `max_bytes` is below that.
    """
    if max_bytes < _MIN_BYTES:
        raise ValueError(f"a readiness document needs {_MIN_BYTES} bytes, not {max_bytes}")
    names, count = max_names, len(readiness.releases)
    while len(made := _encoded(readiness, names, count)) > max_bytes:
        if names:
            names //= 2
        else:
            count //= 2
    return made


def _encoded(readiness: Readiness, max_names: int, max_releases: int) -> bytes:
    found = sorted(
        readiness.releases.values(),
        key=lambda item: (item.state is ReleaseState.READY, item.ref.name, item.ref.digest),
    )
    releases = []
    for item in found[:max_releases]:
        releases.append(_release(item, max_names))
        max_names -= min(max_names, len(item.missing))
    document = {
        "schema": SCHEMA,
        "ready": readiness.all_ready,
        "missing_count": readiness.missing_count,
        "missing_bytes": readiness.missing_bytes,
        "total_bytes": readiness.total_bytes,
        "quarantined_count": readiness.quarantined_count,
        "disk": {"condition": readiness.disk.condition.value, "reason": _short(readiness.disk.reason)},
        "releases": releases,
        "left_out": len(found) - len(releases),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _release(item: ReleaseReadiness, max_names: int) -> dict[str, Any]:
    return {
        "name": item.ref.name,
        "digest": item.ref.digest,
        "state": item.state.value,
        "artifact_count": item.artifact_count,
        "missing_count": len(item.missing),
        "missing_bytes": item.missing_bytes,
        "reason": _short(item.reason),
        "missing": [
            {
                "path": file.path,
                "role": file.role.value,
                "size_bytes": file.size_bytes,
                "state": file.state.value,
            }
            for file in item.missing[:max_names]
        ],
    }


def _short(text: str) -> str:
    # A lone surrogate, as of a file name in some error, is no JSON.
    clean = text.encode(errors="replace").decode()
    return clean if len(clean) <= _MAX_REASON_CHARS else clean[: _MAX_REASON_CHARS - 1] + "…"
