"""`nimbus pipeline publish`: upload files to storage, then send one command to the leader.

In between it may wait until enough schedulers have verified the release.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import config_option, dry_run_option, duration, examples, remote, report_command
from nimbus.cli.output import Output, console, logs_on_stderr
from nimbus.domain.wording import counted, format_size

if TYPE_CHECKING:
    from blobsync import ObjectStore, Progress, PublishedRelease, ReplicaReport
    from nimbus.client.api import Api


@click.command(
    epilog=examples(
        "nimbus pipeline publish examples/hello --activate",
        "nimbus pipeline publish flights --config configs/ha.yaml --server http://s1:8470",
        "nimbus pipeline publish flights --activate --min-replicas 2 --replica-timeout 5m",
    )
)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--activate", is_flag=True, help="Make it the active release, too.")
@click.option(
    "--min-replicas",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Wait until this many schedulers have verified the release before it is activated.",
)
@click.option(
    "--replica-timeout",
    callback=duration,
    default="5m",
    show_default=True,
    metavar="D",
    help="Longest wait, such as 30s or 5m.",
)
@click.option(
    "--replica-policy",
    type=click.Choice(["reject", "proceed"]),
    default="reject",
    show_default=True,
    help="After that time: do not activate it and exit with 4, or activate it with a warning.",
)
@dry_run_option
@config_option
@remote
def publish(
    api: Api,
    out: Output,
    folder: Path,
    activate: bool,
    min_replicas: int,
    replica_timeout: timedelta,
    replica_policy: str,
    dry_run: bool,
    config: Path | None,
) -> int:
    """Upload FOLDER as a release, and enter it in the cluster's catalog.

    Files that storage already has are not sent again, so publishing twice is cheap and safe. A release
    becomes visible only as a whole: an interrupted upload leaves no release.
    """
    from blobsync import publish as upload
    from nimbus.cli.options import object_store, storage_of
    from nimbus.cli.pipeline.sources import dry_run as run_dry
    from nimbus.cli.pipeline.sources import read_sources, warnings

    wish = _ReplicaWish(min_replicas, replica_timeout, replica_policy)
    spec, files = read_sources(folder)
    for warning in warnings(folder, spec, files):
        out.note(warning)
    if dry_run:
        run_dry(spec, files, out.note)
    store = object_store(storage_of(config))
    with _bar() as progress:
        release = upload(store, name=spec.name, files=files, progress=progress)
    if not out.as_json:
        out.line(release.digest)
        uploaded = counted(release.uploaded_count, "file")
        out.note(
            f"{spec.name}: uploaded {uploaded} ({format_size(release.uploaded_bytes)}), "
            f"reused {release.reused_count} ({format_size(release.reused_bytes)})"
        )
    return _CatalogEntry(api, out, store, spec.name, release, wish).create(activate=activate)


@dataclass(frozen=True, slots=True)
class _ReplicaWish:
    """How many schedulers must have a release, and what happens if too few have it in time."""

    wanted: int
    timeout: timedelta
    policy: str
    """`reject` or `proceed`."""


@dataclass
class _CatalogEntry:
    """Enters an uploaded release in the catalog, waits for replicas if requested, and activates it."""

    api: Api
    out: Output
    store: ObjectStore
    name: str
    release: PublishedRelease
    wish: _ReplicaWish
    replicas: ReplicaReport | None = None

    def create(self, *, activate: bool) -> Exit:
        """Do it and print the results; return the exit code."""
        # Schedulers fetch releases of the catalog, so it is entered first, and activated when verified.
        answer = self._command(activate=activate and not self.wish.wanted)
        code = report_command(self.out, answer, quiet=True)
        if self.wish.wanted and code is Exit.OK:
            self.out.note(f"waiting until {self.wish.wanted} schedulers have verified it")
            self.replicas = self._await_replicas()
            code = self._judged(self.replicas)
            if activate and code is Exit.OK:
                answer = self._command(activate=True)
                code = report_command(self.out, answer, quiet=True)
        if self.out.as_json:
            self.out.data(self._data(answer))
        elif code is Exit.OK:
            self.out.note(answer["outcome"]["message"])
        return code

    def _command(self, *, activate: bool) -> dict[str, Any]:
        body = {"digest": self.release.digest, "activate": activate}
        return self.api.command("POST", ("pipelines", self.name, "releases"), body)

    def _await_replicas(self) -> ReplicaReport:
        """Too few are no error here: the report's `warning` describes what is missing."""
        from blobsync import ReplicaBoard, ReplicaPolicy, wait_for_replicas

        board, wish = ReplicaBoard(self.store), self.wish
        with logs_on_stderr():
            return wait_for_replicas(
                board, self.release.digest, wish.wanted, wish.timeout, ReplicaPolicy.PROCEED
            )

    def _judged(self, report: ReplicaReport) -> Exit:
        if report.warning is None:
            self.out.note(f"verified by {', '.join(report.replicas.holders)}")
            return Exit.OK
        self.out.note(f"warning: {report.warning}")
        if self.wish.policy == "proceed":
            return Exit.OK
        self.out.note(
            f"the release is published and was not activated; once it is there: nimbus pipeline activate "
            f"{self.name} --digest {self.release.digest}"
        )
        return Exit.REFUSED

    def _data(self, answer: dict[str, Any]) -> dict[str, Any]:
        release, report = self.release, self.replicas
        return {
            "name": self.name,
            "digest": release.digest,
            "uploaded_count": release.uploaded_count,
            "uploaded_bytes": release.uploaded_bytes,
            "reused_count": release.reused_count,
            "reused_bytes": release.reused_bytes,
            "replicas": None
            if report is None
            else {
                "wanted": report.wanted,
                "holders": list(report.replicas.holders),
                "lacking": list(report.replicas.lacking),
                "silent": list(report.replicas.silent),
                "warning": report.warning,
            },
            "command": answer,
        }


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None] | None]:
    """A progress bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:9}"), BarColumn(), DownloadColumn(binary_units=True))
    with Bars(*columns, console=console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(now: Progress) -> None:
            if now.phase not in tasks:
                tasks[now.phase] = bar.add_task(now.phase)
            bar.update(tasks[now.phase], completed=now.done_bytes, total=now.total_bytes)

        yield show
