"""The command line: the group of all commands, the exit codes, and how errors are printed.

The module of a command is imported when the command is used.
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
    "ls": "listing",
    "cat": "listing",
    "diff": "listing",
    "gc": "collecting",
    "probe": "verifying",
}


class _Lazily(click.Group):
    """Imports the module of a command when the command is used. The module adds it to the group."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _MODULES:
            import_module(f"blobsync.cli.{_MODULES[cmd_name]}")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Lazily, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Publish files as immutable releases to an S3 bucket, and keep verified copies of them on this host.

    A release is named `name@digest`. The first digits of the digest are enough if no other release of the
    name begins with them. `name` alone means the release that was published last.

    The environment may name the bucket (BLOBSYNC_BUCKET, BLOBSYNC_ENDPOINT, BLOBSYNC_PREFIX) and the local
    store (BLOBSYNC_STORE). Credentials are found as boto3 finds them (AWS_ACCESS_KEY_ID and so on). Some
    commands work on the bucket or on the local store. If both are named, they use the local store, unless
    --bucket is on the command line and --store is not.

    The answer is on stdout, with `-o json` as one JSON document. Everything else is on stderr.

    \b
    python -m blobsync publish flights ./flights --include '**/*.py'
    python -m blobsync sync flights --store /var/lib/blobs --tree
    python -m blobsync status --store /var/lib/blobs

    Exit codes: 0 done, 1 something is missing, damaged, different or was refused, 2 wrong usage, 3 no such
    release or file, 6 bucket not reachable, 7 not allowed, 8 the local disk failed, 70 any other failure,
    130 interrupted.
    """  # noqa: D301 - click's own escape, before lines that it must not join


class BlobsyncExit(IntEnum):
    """Documented in `python -m blobsync --help`."""

    OK = 0
    PROBLEM = 1
    """Something is missing, damaged, different or was refused."""
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 6
    DENIED = 7
    DISK = 8
    FAILED = 70
    INTERRUPTED = 130


_EXITS = {
    "blobsync_config": BlobsyncExit.USAGE,
    "invalid_key": BlobsyncExit.USAGE,
    "unmatched_pattern": BlobsyncExit.USAGE,
    "unsafe_source": BlobsyncExit.PROBLEM,
    "source_changed": BlobsyncExit.PROBLEM,
    "corrupt_blob": BlobsyncExit.PROBLEM,
    "corrupt_pack": BlobsyncExit.PROBLEM,
    "invalid_manifest": BlobsyncExit.PROBLEM,
    "invalid_layout": BlobsyncExit.PROBLEM,
    "invalid_pack": BlobsyncExit.PROBLEM,
    "release_corrupt": BlobsyncExit.PROBLEM,
    "gc_refused": BlobsyncExit.PROBLEM,
    "release_absent": BlobsyncExit.NOT_FOUND,
    "blob_missing": BlobsyncExit.NOT_FOUND,
    "blob_not_found": BlobsyncExit.NOT_FOUND,
    "bucket_unavailable": BlobsyncExit.UNREACHABLE,
    "bucket_missing": BlobsyncExit.UNREACHABLE,
    "bucket_access_denied": BlobsyncExit.DENIED,
    "bucket_refused": BlobsyncExit.DENIED,
    "local_store": BlobsyncExit.DISK,
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
"""Parameters that errors name, and the option of each."""


def in_options(message: str) -> str:
    """Replace the names of parameters in an error of the library by the names of options."""
    return re.sub(r"\b[a-z]+_[a-z_]+\b", lambda match: _OPTIONS.get(match[0], match[0]), message)


def fail(error: BlobSyncError) -> NoReturn:
    """Print an error, and exit with its code."""
    click.echo(f"error: {in_options(str(error))}", err=True)
    sys.exit(_EXITS.get(error.code, BlobsyncExit.FAILED))
