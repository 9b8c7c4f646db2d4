"""`nimbus pipeline publish`: files to storage, then one command to the leader."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from nimbus.cli.exits import Exit
from nimbus.cli.options import config_option, examples, remote, report_command
from nimbus.cli.output import Output, console
from nimbus.cli.words import size

if TYPE_CHECKING:
    from blobsync import PublishProgress
    from nimbus.cli.client import Api


@click.command(
    epilog=examples(
        "nimbus pipeline publish examples/hello --activate",
        "nimbus pipeline publish flights --config configs/ha.yaml --server http://s1:8470",
    )
)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--activate", is_flag=True, help="Make it the active release, too.")
@config_option
@remote
def publish(api: Api, out: Output, folder: Path, activate: bool, config: Path | None) -> int:
    """Upload FOLDER as a release, and make it known to the cluster.

    What storage has already is not sent again, so publishing twice is cheap, and safe. A release is seen
    whole or not at all: an interrupted upload leaves nothing that runs.
    """
    from blobsync import publish as upload
    from nimbus.cli.sources import read_sources
    from nimbus.cli.storage import object_store, settings_of

    spec, files = read_sources(folder)
    store = object_store(settings_of(config))
    with _bar() as progress:
        release = upload(store, name=spec.name, files=files, progress=progress)
    if not out.as_json:
        out.line(release.digest)
        out.note(
            f"{spec.name}: uploaded {release.uploaded_count} files ({size(release.uploaded_bytes)}), "
            f"reused {release.reused_count} ({size(release.reused_bytes)})"
        )
    answer = api.command(
        "POST",
        f"/pipelines/{quote(spec.name, safe='')}/releases",
        {"digest": release.digest, "activate": activate},
    )
    code = report_command(out, answer, quiet=True)
    if out.as_json:
        out.data(
            {
                "name": spec.name,
                "digest": release.digest,
                "uploaded_count": release.uploaded_count,
                "uploaded_bytes": release.uploaded_bytes,
                "reused_count": release.reused_count,
                "reused_bytes": release.reused_bytes,
                "command": answer,
            }
        )
    elif code is Exit.OK:
        out.note(answer["outcome"]["message"])
    return code


@contextmanager
def _bar() -> Iterator[Callable[[PublishProgress], None] | None]:
    """A progress bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    columns = (TextColumn("{task.description:9}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(now: PublishProgress) -> None:
            if now.phase not in tasks:
                tasks[now.phase] = bar.add_task(now.phase)
            bar.update(tasks[now.phase], completed=now.done_bytes, total=now.total_bytes)

        yield show
