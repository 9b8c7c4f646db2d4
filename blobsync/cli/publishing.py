"""The command `publish`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from blobsync.cli.main import main
from blobsync.cli.options import Setting, bars, command_of, is_watched, size
from blobsync.errors import BlobSyncConfigError
from blobsync.names import is_release_name

if TYPE_CHECKING:
    from blobsync.progress import Progress


@command_of(main)
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--include", multiple=True, default=("**/*",), show_default=True, help="Pattern; repeatable.")
@click.option("--configuration", multiple=True, help="Pattern of configuration files; repeatable.")
@click.option("--dependency", multiple=True, help="Pattern of wheels, jars, archives; repeatable.")
@click.option(
    "--allow-secret", multiple=True, help="Pattern of files to publish although they are named like secrets."
)
@click.option("--by", help="Who publishes; for people.  [default: user@host]")
@click.option("--dry-run", is_flag=True, help="Report what would be sent; write nothing.")
@click.option("--repair", is_flag=True, help="Send everything again, since the bucket has wrong bytes.")
def publish(
    setting: Setting,
    name: str,
    folder: Path,
    include: tuple[str, ...],
    configuration: tuple[str, ...],
    dependency: tuple[str, ...],
    allow_secret: tuple[str, ...],
    by: str | None,
    dry_run: bool,
    repair: bool,
) -> None:
    """Publish the files of FOLDER as a release of NAME.

    Files and folders whose names begin with a dot are published only if a pattern says so, as `.config/*`.

    Files that the bucket has already are not sent again. Others see all of a release or nothing of it. If a
    publish is interrupted, run it again: it continues where it stopped.
    """
    from blobsync.publishing.publisher import publish as publish_files
    from blobsync.publishing.sources import collect

    if not is_release_name(name):
        raise BlobSyncConfigError(
            f"{name[:200]!r} cannot name a release; use up to 128 letters, digits, dots, dashes and "
            "underscores"
        )
    files = collect(
        folder,
        include=include,
        configuration=configuration,
        dependencies=dependency,
        allow_secrets=allow_secret,
    )
    with setting.bucket() as store, bars() as show:

        def progress(now: Progress) -> None:
            show(now.phase.value, now.done_bytes, now.total_bytes)

        made = publish_files(
            store,
            name=name,
            files=files,
            progress=progress if is_watched() else None,
            retry=setting.retry,
            published_by=by,
            dry_run=dry_run,
            repair=repair,
        )
    setting.say(
        {
            "name": name,
            "digest": made.digest,
            "files": len(files),
            "dry_run": made.dry_run,
            "uploaded_count": made.uploaded_count,
            "uploaded_bytes": made.uploaded_bytes,
            "reused_count": made.reused_count,
            "reused_bytes": made.reused_bytes,
            "sent_bytes": made.sent_bytes,
            "packs_written": [pack.name for pack in made.packs_written],
        },
        f"{name}@{made.digest}\n"
        f"{'would send' if made.dry_run else 'sent'} {size(made.sent_bytes)} for {made.uploaded_count} new "
        f"blobs of {size(made.uploaded_bytes)}; reused {made.reused_count} of {size(made.reused_bytes)}",
    )
