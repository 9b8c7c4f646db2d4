"""`gc` and `probe`: looking after a bucket and a local store."""

from __future__ import annotations

from datetime import timedelta

import click

from blobsync.cli import refs
from blobsync.cli.exits import Exit
from blobsync.cli.group import main
from blobsync.cli.options import Setting, command_of
from blobsync.cli.words import size
from blobsync.errors import BlobSyncConfigError


@command_of(main)
def probe(setting: Setting) -> int:
    """Find out what the bucket's server really does, and what that means. Writes and removes a few objects.

    Exit code 1 if something is missing that garbage collection needs.
    """
    if setting.s3 is None:
        raise BlobSyncConfigError("say which bucket: --bucket, or BLOBSYNC_BUCKET in the environment")
    from blobsync.storage.probe import probe as find_out

    report = find_out(setting.s3)
    setting.say(report.as_data(), "\n".join(report.lines()))
    return Exit.OK if report.usable else Exit.ODD


@command_of(main)
@click.option("--local", is_flag=True, help="Of the local store; else of the bucket.")
@click.option("--keep", multiple=True, help="A release that is still wanted; repeatable.")
@click.option("--keep-newest", default=10, show_default=True, help="Of each name, in the bucket.")
@click.option("--grace-hours", default=24.0, show_default=True, help="Least time between mark and removal.")
@click.option("--max-share", default=0.2, show_default=True, help="Refuse to remove more than this share.")
@click.option("--keep-nothing", is_flag=True, help="No release is wanted, and that is no mistake.")
@click.option("--delete", is_flag=True, help="Do it. Without it nothing is marked or removed.")
def gc(
    setting: Setting,
    local: bool,
    keep: tuple[str, ...],
    keep_newest: int,
    grace_hours: float,
    max_share: float,
    keep_nothing: bool,
    delete: bool,
) -> None:
    """Remove what no release needs, in two runs: the first marks, a later one, after the grace, removes.

    A dry run unless --delete is said.
    """
    grace = timedelta(hours=grace_hours)
    if local:
        _collect_store(setting, keep, grace, max_share, keep_nothing, delete)
    else:
        _collect_bucket(setting, keep, keep_newest, grace, max_share, keep_nothing, delete)


def _collect_store(
    setting: Setting, keep: tuple[str, ...], grace: timedelta, share: float, nothing: bool, delete: bool
) -> None:
    from blobsync.local.gc import gc as collect

    with setting.store() as store:
        digests = {refs.in_store(store, text).digest for text in keep}
        report = collect(
            store, digests, grace=grace, allow_empty=nothing, max_share=share, dry_run=not delete
        )
    done = "removed" if delete else "would remove"
    lines = [f"{done} {place}" for place in report.removed]
    lines.append(
        f"{done} {len(report.removed)} of {size(report.freed_bytes)}; {len(report.marked)} of "
        f"{size(report.marked_bytes)} wait for the grace"
    )
    if report.objects_kept_because:
        lines.append(f"no pack or blob was touched: {report.objects_kept_because}")
    data = {
        "dry_run": not delete,
        "removed": report.removed,
        "marked": report.marked,
        "freed_bytes": report.freed_bytes,
        "marked_bytes": report.marked_bytes,
        "objects_kept_because": report.objects_kept_because,
    }
    setting.say(data, "\n".join(lines))


def _collect_bucket(
    setting: Setting,
    keep: tuple[str, ...],
    keep_newest: int,
    grace: timedelta,
    share: float,
    nothing: bool,
    delete: bool,
) -> None:
    raise BlobSyncConfigError("collecting in a bucket is not here yet; use --local")
