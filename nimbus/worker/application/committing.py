"""Stores the output of a driver in a cluster: a process that the bootstrap starts after a success.

Reads its input as JSON from standard input, because it contains tokens, and writes to standard output
either `{"output": <reference>}` or `{"fault": <why>}`.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from blobsync import BlobSyncError, RetryPolicy
from nimbus.worker.application.reports import END_PATIENCE_S
from nimbus.worker.data.ports import OutputRefusedError
from nimbus.worker.data.signed import signed_place

_RETRY = RetryPolicy(max_wait=timedelta(seconds=20), deadline=timedelta(seconds=END_PATIENCE_S))
"""For each file: as long as the driver retries END."""


def commit(told: dict[str, Any]) -> dict[str, str]:
    """Upload an output, then its manifest.

    Args:
        told: `access`, see `SignedStore`; `output` and `noted`, see `DataPlace.commit`.
    """
    access = told["access"]
    try:
        place = signed_place(access, Path("/nowhere"), _RETRY)
        return {"output": place.commit(Path(told["output"]), access["output"], Path(told["noted"]))}
    except (OSError, BlobSyncError, OutputRefusedError) as exc:
        return {"fault": f"its output could not be stored: {exc}".encode(errors="replace").decode()}


def main() -> None:
    """Run as a program."""
    sys.stdout.write(json.dumps(commit(json.load(sys.stdin))))
