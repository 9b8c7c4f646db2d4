"""The command line: the group of all commands, what it exits with, and how it says an error.

The module of a command is imported when the command is asked for.
"""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from importlib import import_module
from typing import NoReturn

import click

from blobsync.errors import BlobSyncError

_MODULES = {
    "publish": "publishing",
    "sync": "syncing",
    "status": "syncing",
    "verify": "verifying",
    "ls": "looking",
    "cat": "looking",
    "diff": "looking",
    "gc": "collecting",
    "probe": "verifying",
}


class _Lazily(click.Group):
    """Imports what a command needs when it is asked for; its module adds it to the group."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _MODULES:
            import_module(f"blobsync.cli.{_MODULES[cmd_name]}")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Lazily, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Publish files as immutable releases to an S3 bucket, and keep verified copies of them on this host.

    A release is named `name@digest`; the first digits do where they are enough, and `name` alone means the
    one that was published last.

    The bucket may come from BLOBSYNC_BUCKET, BLOBSYNC_ENDPOINT and BLOBSYNC_PREFIX, the local store from
    BLOBSYNC_STORE, credentials from where boto3 looks for them (AWS_ACCESS_KEY_ID and so on). Where a command
    can look into either and both are named, it looks into the local store; unless --bucket is on the command
    line and --store is not.

    The answer is on stdout, with `-o json` as one JSON document; all else is on stderr.

    \b
    python -m blobsync publish flights ./flights --include '**/*.py'
    python -m blobsync sync flights --store /var/lib/blobs --tree
    python -m blobsync status --store /var/lib/blobs

    Exit codes: 0 done, 1 something is missing, damaged, different or was refused, 2 wrong usage, 3 no such
    release or file, 6 bucket not reachable, 7 not allowed, 8 the local disk failed, 70 any other failure,
    130 interrupted.
    """  # noqa: D301 - click's own escape, before lines that it must not join


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
