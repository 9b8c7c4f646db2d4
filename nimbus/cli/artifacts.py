"""`nimbus artifacts`: objects in storage that no release needs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.lazy import Lazy, LazyGroup
from nimbus.cli.options import config_option, examples
from nimbus.cli.output import Output, logs_on_stderr, output_option
from nimbus.domain.wording import format_size

if TYPE_CHECKING:
    from blobsync import CollectionReport, ReleaseRef
    from nimbus.config import Settings


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
    from nimbus.cli.options import settings_of

    if not dry_run:
        raise CliError(
            "only the leader deletes: set artifacts.gc to true in the configuration of all "
            "schedulers. To see what it would delete, use --dry-run.",
            code="only_the_leader",
            exit_code=Exit.USAGE,
        )
    settings = settings_of(config)
    with logs_on_stderr():
        report, in_use = _examined(settings)
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


def _examined(settings: Settings) -> tuple[CollectionReport, frozenset[ReleaseRef]]:
    from blobsync import collect_garbage
    from nimbus.adapters.store.calls import calls_on
    from nimbus.adapters.store.cluster import TreeWholeState
    from nimbus.bootstrap.resources import open_session
    from nimbus.cli.options import object_store
    from nimbus.scheduler.garbage import bucket_policy, live_releases

    session = open_session(settings)
    try:
        in_use = live_releases(TreeWholeState(calls_on(session), settings.cluster.root))
    finally:
        session.close(timedelta(seconds=5))
    policy = bucket_policy(settings.artifacts)
    return collect_garbage(object_store(settings.storage), in_use, policy=policy, dry_run=True), in_use


def _print_report(out: Output, report: CollectionReport, in_use: int) -> None:
    """Print the report as text."""
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
