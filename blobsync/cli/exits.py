"""What the command line exits with, and how it says an error."""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from typing import NoReturn

import click

from blobsync.errors import BlobSyncError


class Exit(IntEnum):
    """Documented in `python -m blobsync --help`."""

    OK = 0
    ODD = 1
    """Something is missing, damaged, different or was refused."""
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 6
    DENIED = 7
    DISK = 8
    FAILED = 70
    INTERRUPTED = 130


_EXITS = {
    "blobsync_config": Exit.USAGE,
    "invalid_key": Exit.USAGE,
    "unmatched_pattern": Exit.USAGE,
    "unsafe_source": Exit.ODD,
    "source_changed": Exit.ODD,
    "corrupt_blob": Exit.ODD,
    "corrupt_pack": Exit.ODD,
    "invalid_manifest": Exit.ODD,
    "invalid_layout": Exit.ODD,
    "invalid_pack": Exit.ODD,
    "release_corrupt": Exit.ODD,
    "gc_refused": Exit.ODD,
    "release_absent": Exit.NOT_FOUND,
    "blob_missing": Exit.NOT_FOUND,
    "blob_not_found": Exit.NOT_FOUND,
    "store_unavailable": Exit.UNREACHABLE,
    "bucket_missing": Exit.UNREACHABLE,
    "store_access_denied": Exit.DENIED,
    "store_refused": Exit.DENIED,
    "local_store": Exit.DISK,
}


_OPTIONS = {
    "allow_empty": "--keep-nothing",
    "allow_secrets": "--allow-secret",
    "ca_bundle": "--ca-bundle",
    "endpoint_url": "--endpoint",
    "keep_age": "--keep-days",
    "keep_newest": "--keep-newest",
    "max_share": "--max-share",
    "published_by": "--by",
}
"""What parameters, which errors speak of, are called here."""


def in_options(message: str) -> str:
    """Say options where the library says parameters."""
    return re.sub(r"\b[a-z]+_[a-z_]+\b", lambda found: _OPTIONS.get(found[0], found[0]), message)


def fail(error: BlobSyncError) -> NoReturn:
    """Say what went wrong, and end."""
    click.echo(f"error: {in_options(str(error))}", err=True)
    sys.exit(_EXITS.get(error.code, Exit.FAILED))
