"""`adopt`."""

from __future__ import annotations

import click

from blobsync.cli.group import main
from blobsync.cli.options import Setting, command_of
from blobsync.cli.publishing import bar_of_publish
from blobsync.cli.words import size
from blobsync.errors import BlobSyncConfigError
from blobsync.names import is_release_name


@command_of(main)
@click.argument("name")
@click.option("--below", required=True, help="Folder of the bucket, after --prefix, where the objects lie.")
@click.option("--configuration", multiple=True, help="Pattern of configuration files; repeatable.")
@click.option("--dependency", multiple=True, help="Pattern of wheels, jars, archives; repeatable.")
@click.option("--allow-secret", multiple=True, help="Pattern of files to take though named like secrets.")
@click.option("--by", help="Who adopts, for people.  [default: user@host]")
@click.option("--dry-run", is_flag=True, help="Read all, say what it would be; write nothing.")
def adopt(
    setting: Setting,
    name: str,
    below: str,
    configuration: tuple[str, ...],
    dependency: tuple[str, ...],
    allow_secret: tuple[str, ...],
    by: str | None,
    dry_run: bool,
) -> None:
    """Make a release of NAME of objects that lie in the bucket, one for each file.

    They may have been put there by any tool. Each is read once, to learn its digest; nothing is copied, and
    nothing of it is ever removed by `gc`. Whoever overwrites one breaks the release: adopt them again.
    """
    from blobsync.publishing.adopting import adopt as adopt_objects

    if not is_release_name(name):
        raise BlobSyncConfigError(
            f"{name[:200]!r} cannot name a release; use up to 128 letters, digits, dots, dashes and "
            "underscores"
        )
    with setting.bucket() as store, bar_of_publish(setting) as progress:
        made = adopt_objects(
            store,
            name=name,
            prefix=below,
            configuration=configuration,
            dependencies=dependency,
            allow_secrets=allow_secret,
            progress=progress,
            retry=setting.retry,
            published_by=by,
            dry_run=dry_run,
        )
    files = len(made.manifest.artifacts)
    setting.say(
        {
            "name": name,
            "digest": made.digest,
            "files": files,
            "dry_run": made.dry_run,
            "read_bytes": made.read_bytes,
            "sent_bytes": made.sent_bytes,
            "loose": made.layout.loose,
        },
        f"{name}@{made.digest}\n"
        f"{'would adopt' if made.dry_run else 'adopted'} {files} objects of {size(made.read_bytes)} "
        f"where they lie",
    )
