"""`nimbus cluster destroy`: delete a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import config_option, examples
from nimbus.cli.output import Output, logs_on_stderr, output_option
from nimbus.cli.words import size
from nimbus.domain.wording import counted

if TYPE_CHECKING:
    from blobsync import ObjectInfo, S3ObjectStore
    from nimbus.adapters.store.tree import ClusterTree
    from nimbus.config import Settings

CLOSE_LIMIT = timedelta(seconds=5)


@click.command(
    epilog=examples(
        "nimbus cluster destroy --config /etc/nimbus.yaml",
        "nimbus cluster destroy --config /etc/nimbus.yaml --yes-delete /nimbus --with-storage",
    )
)
@click.option("--yes-delete", metavar="ROOT", help="Confirm with the cluster's root.")
@click.option("--with-storage", is_flag=True, help="Also releases, history and logs in the bucket.")
@config_option
@output_option
def destroy(config: Path | None, output: str, yes_delete: str | None, with_storage: bool) -> int:
    """Delete a cluster: everything below its root in ZooKeeper, or in a single scheduler's database.

    Without --yes-delete it only lists what exists. Refused while a scheduler or worker runs. With
    --with-storage it also deletes Nimbus's objects in the bucket below storage.prefix, which other clusters
    may use, too. Outputs of tasks (worker.data) and folders of daemons always stay. If it is interrupted,
    repeat it; until then no scheduler or worker of this cluster starts.
    """
    from nimbus.adapters.store.tree import ClusterTree
    from nimbus.bootstrap.foundation import epoch_file, open_session
    from nimbus.cli.storage import object_store, settings_of

    settings, out = settings_of(config), Output(output)
    if yes_delete not in (None, settings.cluster.root):
        raise CliError(
            f"the configuration names the cluster {settings.cluster.root}, not {yes_delete}: "
            "nothing is removed.",
            code="other_cluster",
            exit_code=Exit.USAGE,
        )
    store = object_store(settings.storage) if with_storage else None
    with logs_on_stderr():
        session = open_session(settings)
        try:
            tree = ClusterTree(session, settings.cluster.root)
            _show(out, settings, tree, store, removed=yes_delete is not None)
            if yes_delete is None:
                out.note(f"nothing is removed; to remove all of it: --yes-delete {settings.cluster.root}")
                return Exit.USAGE
            _remove(tree, store)
            if (epochs := epoch_file(settings)) is not None:
                epochs.unlink(missing_ok=True)  # else the next start would look for a cluster that was lost
        finally:
            session.close(CLOSE_LIMIT)
            if store is not None:
                store.close()
    out.note(f"{settings.cluster.root} is removed")
    return Exit.OK


def _show(
    out: Output, settings: Settings, tree: ClusterTree, store: S3ObjectStore | None, *, removed: bool
) -> None:
    """Print what exists, or was removed: the command's only data on standard output."""
    root, counts = settings.cluster.root, tree.counts()
    objects = [] if store is None else list(_objects(store))
    size_bytes = sum(found.size_bytes for found in objects)
    if out.as_json:
        stored = {"objects": len(objects), "size_bytes": size_bytes} if store is not None else None
        out.data({"root": root, "nodes": dict(counts), "storage": stored, "removed": removed})
        return
    rows = [(f"{root}/{name}", counted(count, "node")) for name, count in sorted(counts.items())]
    if store is not None:
        where = f"s3://{settings.storage.bucket}/{settings.storage.prefix}".rstrip("/")
        rows.append((where, f"{counted(len(objects), 'object')}, {size(size_bytes)}"))
    out.table(("what", "holds"), rows, empty=f"there is nothing below {root}")


def _remove(tree: ClusterTree, store: S3ObjectStore | None) -> None:
    """Delete everything in an order that can be repeated: the mark that deletion has begun goes last."""
    from nimbus.adapters.store.tree import DESTROY, ClusterInUseError

    if foreign := tree.foreign():
        raise ClusterInUseError(f"these are not of a cluster of Nimbus: {', '.join(foreign[:5])}.")
    there = tree.exists()
    if there:
        tree.begin(DESTROY)
        tree.remove()
    if store is not None:
        store.delete_many(found.key for found in _objects(store))
        for room in _rooms():
            store.abandon_uploads(room, timedelta(0))
    if there:
        tree.remove_root()


def _objects(store: S3ObjectStore) -> Iterator[ObjectInfo]:
    from blobsync import valid_objects

    for room in _rooms():
        yield from valid_objects(store, room)


def _rooms() -> list[str]:
    """The prefixes of all keys that Nimbus writes in the bucket."""
    from blobsync.bucket.keys import ROOMS

    return sorted({*ROOMS, "history/", "logs/"})
