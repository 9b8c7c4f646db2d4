"""`nimbus cluster acl` and `destroy`: commands about all nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import config_option, examples, object_store, settings_of, store_session
from nimbus.cli.output import Output, output_option
from nimbus.domain.wording import counted, format_size

if TYPE_CHECKING:
    from blobsync import ObjectInfo, S3ObjectStore
    from leader import AclDifference
    from nimbus.adapters.store.calls import StoreSession
    from nimbus.adapters.store.tree import ClusterTree
    from nimbus.config import Settings


@click.command(
    epilog=examples(
        "nimbus cluster acl --config /etc/nimbus.yaml",
        "nimbus cluster acl --fix --config /etc/nimbus.yaml",
        "nimbus cluster acl --fix --also-as former.txt --config /etc/nimbus.yaml",
    )
)
@click.option("--fix", is_flag=True, help="Give these nodes the access list that they should have.")
@click.option(
    "--also-as",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with USER:PASSWORD of a user who can administer the nodes now, such as a former password.",
)
@config_option
@output_option
def acl(config: Path | None, output: str, fix: bool, also_as: Path | None) -> int:
    """List the cluster's nodes in ZooKeeper whose access list is not that of zookeeper.username and password.

    Exit code 1 if there are any. With --fix they are corrected, and the exit code is 0. It is safe to repeat,
    also while daemons run; daemons with another password then lose access. Without a username, or with the
    database of a single scheduler, there is nothing to compare, and the command does nothing.
    """
    from nimbus.bootstrap.start_checks import access_lists, why_none

    settings, out = settings_of(config), Output(output)
    if why := why_none(settings):
        if out.as_json:
            _show(out, [], fixed=False)
        out.note(f"nothing to compare: {why}")
        return Exit.OK
    with store_session(settings) as session:
        if also_as is not None:
            _add_credential(session, also_as)
        enforcement = access_lists(session, settings)
        assert enforcement is not None  # noqa: S101 - `why_none` said so
        differences = enforcement.fix() if fix else enforcement.check()
    _show(out, differences, fixed=fix)
    if fix or not differences:
        return Exit.OK
    out.note("to give them these access lists: --fix")
    return Exit.RUN_FAILED


def _add_credential(session: StoreSession, file: Path) -> None:
    from leader import ZooKeeperSession

    credential = file.read_text().strip()
    if ":" not in credential:
        raise CliError(f"{file} has no USER:PASSWORD", code="bad_credential", exit_code=Exit.USAGE)
    assert isinstance(session, ZooKeeperSession)  # noqa: S101 - the single scheduler's was refused before
    session.call(session.client.add_auth_async, "digest", credential)


def _show(out: Output, differences: list[AclDifference], *, fixed: bool) -> None:
    if out.as_json:
        nodes = [
            {
                "path": node.path,
                "found": [str(entry) for entry in node.found],
                "wanted": [str(entry) for entry in node.wanted],
            }
            for node in differences
        ]
        out.data({"nodes": nodes, "fixed": fixed})
        return
    rows = [(node.path, ", ".join(map(str, node.found)) or "nothing") for node in differences]
    columns = ("node", "was open to" if fixed else "is open to")
    out.table(columns, rows, empty="every node has the access list that it should have")


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
    from nimbus.bootstrap.resources import epoch_file

    settings, out = settings_of(config), Output(output)
    if yes_delete not in (None, settings.cluster.root):
        raise CliError(
            f"the configuration names the cluster {settings.cluster.root}, not {yes_delete}: "
            "nothing is removed.",
            code="other_cluster",
            exit_code=Exit.USAGE,
        )
    storage = closing(object_store(settings.storage)) if with_storage else nullcontext()
    with storage as store, store_session(settings) as session:
        tree = ClusterTree(session, settings.cluster.root)
        _show_contents(out, settings, tree, store, removed=yes_delete is not None)
        if yes_delete is None:
            out.note(f"nothing is removed; to remove all of it: --yes-delete {settings.cluster.root}")
            return Exit.USAGE
        _remove(tree, store)
        if (epochs := epoch_file(settings)) is not None:
            epochs.unlink(missing_ok=True)  # else the next start would look for a cluster that was lost
    out.note(f"{settings.cluster.root} is removed")
    return Exit.OK


def _show_contents(
    out: Output, settings: Settings, tree: ClusterTree, store: S3ObjectStore | None, *, removed: bool
) -> None:
    """Print what exists, or was removed: the command's only data on standard output."""
    root, counts = settings.cluster.root, tree.counts()
    objects = [] if store is None else list(_objects(store))
    size_bytes = sum(item.size_bytes for item in objects)
    if out.as_json:
        stored = {"objects": len(objects), "size_bytes": size_bytes} if store is not None else None
        out.data({"root": root, "nodes": dict(counts), "storage": stored, "removed": removed})
        return
    rows = [(f"{root}/{name}", counted(count, "node")) for name, count in sorted(counts.items())]
    if store is not None:
        where = f"s3://{settings.storage.bucket}/{settings.storage.prefix}".rstrip("/")
        rows.append((where, f"{counted(len(objects), 'object')}, {format_size(size_bytes)}"))
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
        store.delete_many(item.key for item in _objects(store))
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
