"""What the command line exits with, and how it says an error."""

from __future__ import annotations

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
    "collection_refused": Exit.ODD,
    "release_absent": Exit.NOT_FOUND,
    "blob_missing": Exit.NOT_FOUND,
    "blob_not_found": Exit.NOT_FOUND,
    "store_unavailable": Exit.UNREACHABLE,
    "bucket_missing": Exit.UNREACHABLE,
    "store_access_denied": Exit.DENIED,
    "store_refused": Exit.DENIED,
    "local_store": Exit.DISK,
}


def fail(error: BlobSyncError) -> NoReturn:
    """Say what went wrong, and end."""
    click.echo(f"error: {error}", err=True)
    sys.exit(_EXITS.get(error.code, Exit.FAILED))
