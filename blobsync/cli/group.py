"""The group that all commands belong to."""

from __future__ import annotations

from importlib import import_module

import click

_MODULES = {
    "publish": "publishing",
    "adopt": "adopting",
    "sync": "syncing",
    "status": "syncing",
    "verify": "verifying",
    "ls": "looking",
    "cat": "looking",
    "diff": "looking",
    "gc": "collecting",
    "probe": "probing",
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
    r"""Publish files as immutable releases to an S3 bucket, and keep verified copies of them on this host.

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
    """
