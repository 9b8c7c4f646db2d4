"""`nimbus artifacts`: objects in storage that no release needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import config_option, examples, object_store, settings_of, store_session
from nimbus.cli.output import Output, output_option
from nimbus.domain.wording import format_size

if TYPE_CHECKING:
    from blobsync import CollectionReport


@click.group(
    cls=LazyGroup,
    lazy={"gc": Lazy("nimbus.cli.artifacts:gc", "List what a garbage collection would delete.")},
)
def artifacts() -> None:
    """Find objects in storage that no release needs."""


@click.command(epilog=examples("nimbus artifacts gc --dry-run --config configs/ha.yaml"))
@click.option("--dry-run", is_flag=True, help="Required: only the leader deletes.")
@config_option
@output_option
def gc(dry_run: bool, config: Path | None, output: str) -> int:
    """List what the leader's next collection in the bucket would delete, and why the rest is kept.

    Reads the releases in use from ZooKeeper, and lists the bucket. Writes and deletes nothing. The leader
    collects by itself if the configuration has `artifacts.gc: true`.
    """
    from blobsync import collect_garbage
    from nimbus.adapters.store.calls import calls_on
    from nimbus.adapters.store.cluster import TreeWholeState
    from nimbus.scheduler.garbage import bucket_policy, live_releases

    if not dry_run:
        raise CliError(
            "only the leader deletes: set artifacts.gc to true in the configuration of all "
            "schedulers. To see what it would delete, use --dry-run.",
            code="only_the_leader",
            exit_code=Exit.USAGE,
        )
    settings = settings_of(config)
    with store_session(settings) as session:
        in_use = live_releases(TreeWholeState(calls_on(session), settings.cluster.root))
        store, policy = object_store(settings.storage), bucket_policy(settings.artifacts)
        report = collect_garbage(store, in_use, policy=policy, dry_run=True)
    out = Output(output)
    if out.as_json:
        out.data(
            {
                "in_use": sorted(f"{ref.name}@{ref.digest}" for ref in in_use),
                "enabled": settings.artifacts.gc,
                **report.as_data(),
            }
        )
        return Exit.OK
    _print_report(out, report, len(in_use))
    if not settings.artifacts.gc:
        out.note("none of this is deleted: artifacts.gc is off in this configuration")
    return Exit.OK


def _print_report(out: Output, report: CollectionReport, in_use: int) -> None:
    rows = [
        ("keep", kind.value, reason.value, tally.count, format_size(tally.size_bytes))
        for kind, reasons in report.kept.items()
        for reason, tally in reasons.items()
    ]
    rows += [
        ("delete", kind.value, "", tally.count, format_size(tally.size_bytes))
        for kind, tally in report.due.items()
    ]
    out.table(("would", "kind", "because", "objects", "size"), rows, empty="the bucket holds no release")
    out.note(f"{in_use} releases are in use")
    if report.missing_count:
        out.note(
            f"releases in use lack {report.missing_count} objects: publish them again with the same files"
        )
    for why in filter(None, (report.clock_trouble, report.postponed)):
        out.note(why)
