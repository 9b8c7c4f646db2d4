"""The group that all commands belong to."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    r"""Publish files as immutable releases to an S3 bucket, and keep verified copies of them on this host.

    A release is named `name@digest`; the first digits do where they are enough, and `name` alone means the
    one that was published last.

    The bucket may come from BLOBSYNC_BUCKET, BLOBSYNC_ENDPOINT and BLOBSYNC_PREFIX, the local store from
    BLOBSYNC_STORE, credentials from where boto3 looks for them (AWS_ACCESS_KEY_ID and so on).

    \b
    python -m blobsync publish flights ./flights --include '**/*.py'
    python -m blobsync sync flights --store /var/lib/blobs --tree
    python -m blobsync status --store /var/lib/blobs

    Exit codes: 0 done, 1 something is missing, damaged, different or was refused, 2 wrong usage, 3 no such
    release or file, 6 bucket not reachable, 7 not allowed, 8 the local disk failed.
    """
