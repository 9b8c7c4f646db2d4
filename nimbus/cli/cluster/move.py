"""`nimbus cluster export`, `import` and `verify`: the whole state as one archive, for backups and moves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import (
    config_option,
    examples,
    find_config,
    object_store,
    settings_of,
    store_session,
)
from nimbus.cli.output import Output, logs_on_stderr, output_option

if TYPE_CHECKING:
    from blobsync import ReleaseRef
    from nimbus.adapters.sqlite.session import SqliteSession
    from nimbus.adapters.store.moving import ClusterState
    from nimbus.config import Settings

_no_open = click.option("--no-open", is_flag=True, help="Refuse if an attempt is open.")
_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.command(name="export", epilog=examples("nimbus cluster export nimbus.zip --config /etc/nimbus.yaml"))
@_file
@click.option("--live", is_flag=True, help="Allow it while schedulers or workers run: a backup, not a move.")
@_no_open
@config_option
@output_option
def export(file: Path, config: Path | None, output: str, live: bool, no_open: bool) -> int:
    """Write the state of a cluster into FILE: catalog, schedules, settings, runs, backfills, alerts.

    Releases, history and logs stay in the bucket. The file is a snapshot of one moment. With --live the
    cluster continues to change: never start a second cluster from such a file while the first one runs.
    FILE contains parameters and variables in plain text, but no secrets; only you can read it.
    """
    from nimbus import __version__
    from nimbus.adapters.store.moving import read_state, write_archive
    from nimbus.adapters.store.tree import ClusterTree

    settings = settings_of(config)
    with store_session(settings) as session:
        if not live:
            ClusterTree(session, settings.cluster.root).refuse_members()
        state = read_state(session, settings.cluster.root)
    contents = _contents_of(state)
    _check_open(contents.open_attempts, no_open)
    manifest = write_archive(
        file,
        state,
        {
            "nimbus": __version__,
            "root": settings.cluster.root,
            "exported_at": datetime.now(UTC).isoformat(),
            "live": live,
            "open_attempts": len(contents.open_attempts),
            "releases": _spelled(contents.releases),
        },
    )
    _print_manifest(Output(output), manifest)
    return Exit.OK


@click.command(name="import", epilog=examples("nimbus cluster import nimbus.zip --config /etc/new.yaml"))
@_file
@_no_open
@config_option
@output_option
def import_(file: Path, config: Path | None, output: str, no_open: bool) -> int:
    """Create a cluster from a file of `export`, in ZooKeeper or in a single scheduler's database.

    The root must be empty, no scheduler or worker may run, and the bucket must have the releases in
    use. All this is checked before the first write. If it is interrupted, repeat it; until then no scheduler
    or worker of this cluster starts. The new leader adopts open attempts: an attempt whose driver is gone is
    lost, and its task is tried again. Before the import, end the old cluster and its drivers.
    """
    from nimbus.adapters.store.moving import make_cluster, read_archive
    from nimbus.domain.cluster.schema import check_known

    settings, archive = settings_of(config), read_archive(file)
    check_known(archive.state.schema, str(file))
    contents = _contents_of(archive.state)
    _check_open(contents.open_attempts, no_open)
    _check_releases(settings, contents.releases)
    with store_session(settings) as session:
        make_cluster(session, settings.cluster.root, archive.state)
    _print_manifest(Output(output), archive.manifest)
    return Exit.OK


@click.command(epilog=examples("nimbus cluster verify /var/backups/nimbus/20261130T030000Z.zip"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@config_option
@output_option
def verify(file: Path, config: Path | None, output: str) -> int:
    """Prove that a file of `export` can be restored: it is, into an empty database that is removed again.

    What the database holds then is compared with the file. With a configuration, the bucket must have the
    releases in use, too. The cluster is not touched.
    """
    from nimbus.adapters.store.moving import make_cluster, read_archive, read_state
    from nimbus.domain.cluster.schema import check_known

    archive = read_archive(file)
    check_known(archive.state.schema, str(file))
    contents = _contents_of(archive.state)
    if find_config(config) is not None:
        _check_releases(settings_of(config), contents.releases)
    with _empty_database() as session:
        make_cluster(session, "/verified", archive.state)
        restored = read_state(session, "/verified")
    if restored != archive.state:
        message = f"{file} was restored, and what came out is not what is in it: keep an older backup"
        raise CliError(message, code="drill_failed", exit_code=Exit.RUN_FAILED)
    _print_manifest(Output(output), archive.manifest)
    unchecked = (
        "" if find_config(config) else "; without --config, its releases were not looked for in a bucket"
    )
    Output(output).note(f"{file} can be restored{unchecked}")
    return Exit.OK


def _check_open(attempts: tuple[str, ...], no_open: bool) -> None:
    if no_open and attempts:
        raise CliError(
            f"{len(attempts)} attempts are open: {', '.join(attempts[:5])}. Let them end, or leave out "
            "--no-open.",
            code="attempts_open",
            exit_code=Exit.REFUSED,
        )


def _check_releases(settings: Settings, releases: Iterable[ReleaseRef]) -> None:
    """Refuse if the bucket lacks the manifest of a release. The files that it names are not checked."""
    from blobsync.bucket.keys import manifest

    with logs_on_stderr(), closing(object_store(settings.storage)) as store:
        missing = [ref for ref in releases if store.size(manifest(ref.name, ref.digest)) is None]
    if missing:
        raise CliError(
            f"the bucket {settings.storage.bucket} lacks releases that are in use: "
            f"{', '.join(_spelled(missing)[:5])}. Releases are not in the archive: copy the bucket, too.",
            code="releases_missing",
            exit_code=Exit.REFUSED,
        )


def _spelled(releases: Iterable[ReleaseRef]) -> list[str]:
    return sorted(f"{ref.name}@{ref.digest}" for ref in releases)


def _print_manifest(out: Output, manifest: Any) -> None:
    if out.printed_json(dict(manifest)):
        return
    out.table(("part", "nodes"), [(name, part["nodes"]) for name, part in manifest["parts"].items()])
    out.note(
        f"{manifest['open_attempts']} attempts are open; {len(manifest['releases'])} releases are in use"
    )


@contextmanager
def _empty_database() -> Iterator[SqliteSession]:
    """A database of a single scheduler, which is removed at the end."""
    from nimbus.adapters.sqlite.session import SqliteSession

    with tempfile.TemporaryDirectory(prefix="nimbus-state-") as folder, logs_on_stderr():
        session = SqliteSession(Path(folder, "state.db"), timedelta(seconds=30))
        session.start()
        try:
            yield session
        finally:
            session.close(timedelta(seconds=5))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """The parts of a state that are checked before a cluster is moved."""

    open_attempts: tuple[str, ...]
    releases: frozenset[ReleaseRef]
    """Releases in use, which must be in the bucket."""


def _contents_of(state: ClusterState) -> _Contents:
    """Read all pipelines and runs of a state, through a temporary database. UnreadableRecordError."""
    from nimbus.adapters.store.calls import calls_on
    from nimbus.adapters.store.cluster import TreeWholeState
    from nimbus.adapters.store.moving import write_nodes
    from nimbus.scheduler.garbage import live_releases

    with _empty_database() as session:
        calls = calls_on(session)
        calls.ensure("/state")
        write_nodes(calls, "/state", state.nodes)
        whole = TreeWholeState(calls, "/state")
        pipelines, runs = whole.all_pipelines(), whole.all_runs()
        releases = live_releases(whole) if pipelines else frozenset()
    return _Contents(
        open_attempts=tuple(str(attempt) for run in runs for attempt in run.open_attempts()),
        releases=releases,
    )
