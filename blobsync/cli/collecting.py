"""The command `gc`, for a bucket or a local store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from blobsync.cli import refs
from blobsync.cli.main import BlobsyncExit, main
from blobsync.cli.options import Setting, command_of, size

if TYPE_CHECKING:
    from blobsync.collection.collector import CollectionReport
    from blobsync.collection.inventory import Kind, Tally
    from blobsync.local.gc import GcReport


@command_of(main)
@click.option("--local", is_flag=True, help="Collect in the local store, not in the bucket.")
@click.option("--keep", multiple=True, help="A release to keep; repeatable.")
@click.option(
    "--keep-newest",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="In the bucket: also keep this many of the newest releases of each name.",
)
@click.option(
    "--keep-days",
    default=14.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="In the bucket: also keep releases that were published in this many last days.",
)
@click.option(
    "--grace-hours",
    default=24.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Shortest time between mark and removal.",
)
@click.option(
    "--max-share",
    default=0.2,
    show_default=True,
    type=click.FloatRange(min=0, max=1, min_open=True),
    help="Refuse to remove more than this share at once.",
)
@click.option("--keep-nothing", is_flag=True, help="Allow a collection that names no release with --keep.")
@click.option("--delete", is_flag=True, help="Mark and remove. Without it, nothing is changed.")
def gc(
    setting: Setting,
    local: bool,
    keep: tuple[str, ...],
    keep_newest: int,
    keep_days: float,
    grace_hours: float,
    max_share: float,
    keep_nothing: bool,
    delete: bool,
) -> int:
    """Remove the objects that no release needs. One run marks them; a later run, after the grace, removes.

    Without --delete it is a dry run. Exit code 1: it was refused, or an object could not be removed.
    """
    grace = timedelta(hours=grace_hours)
    if local:
        from blobsync.local.gc import gc as collect

        with setting.store() as place:
            wanted = {refs.in_store(place, text).digest for text in keep}
            done = collect(
                place, wanted, grace=grace, allow_empty=keep_nothing, max_share=max_share, dry_run=not delete
            )
        _say_store_report(setting, done, delete)
        return BlobsyncExit.OK
    from blobsync.collection.collector import collect_garbage
    from blobsync.collection.decision import CollectionPolicy

    policy = CollectionPolicy(
        grace=grace, keep_age=timedelta(days=keep_days), keep_newest=keep_newest, max_share=max_share
    )
    with setting.bucket() as store:
        report = collect_garbage(
            store,
            {refs.in_bucket(store, text) for text in keep},
            policy=policy,
            allow_empty=keep_nothing,
            dry_run=not delete,
            retry=setting.retry,
        )
    setting.say(report.as_data(), "\n".join(_lines(report)))
    return BlobsyncExit.PROBLEM if report.failed_count else BlobsyncExit.OK


def _say_store_report(setting: Setting, report: GcReport, delete: bool) -> None:
    done = "removed" if delete else "would remove"
    lines = [f"{done} {place}" for place in report.removed]
    lines.append(
        f"{done} {len(report.removed)} of {size(report.freed_bytes)}; {len(report.marked)} of "
        f"{size(report.marked_bytes)} wait until the grace has passed"
    )
    if report.objects_kept_because:
        lines.append(f"no pack or blob was removed: {report.objects_kept_because}")
    setting.say({"dry_run": not delete, **asdict(report)}, "\n".join(lines))


def _lines(report: CollectionReport) -> Iterator[str]:
    for kind, reasons in report.kept.items():
        for reason, tally in reasons.items():
            yield f"keeps {tally.count} of kind {kind.value}, {size(tally.size_bytes)}: {reason.value}"
    if report.foreign.count:
        foreign = size(report.foreign.size_bytes)
        yield f"leaves objects that blobsync did not make: {report.foreign.count}, {foreign}"
    yield from (f"missing: {key}" for key in report.missing)
    if report.missing_count:
        yield f"kept releases lack {report.missing_count} objects; `verify --bucket` names the releases"
    yield from (
        f"a tombstone that cannot be read condemns nothing: {key}" for key in report.unreadable_tombstones
    )
    yield from (f"not removed: {key}: {error}" for key, error in report.failed)
    if report.clock_trouble:
        yield f"the grace begins again: {report.clock_trouble}"
    if report.postponed:
        yield f"postponed: {report.postponed}"
    yield _outcome(report)


def _outcome(report: CollectionReport) -> str:
    uploads = f", and {report.abandoned_uploads} unfinished uploads" if report.abandoned_uploads else ""
    if report.dry_run:
        return f"would remove {_sum(report.due)}{uploads}"
    return f"removed {_sum(report.deleted)}{uploads}"


def _sum(tallies: Mapping[Kind, Tally]) -> str:
    count = sum(tally.count for tally in tallies.values())
    return f"{count} objects of {size(sum(tally.size_bytes for tally in tallies.values()))}"
