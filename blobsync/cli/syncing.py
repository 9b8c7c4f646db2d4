"""The commands `sync` and `status`: releases on this host."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from blobsync.cli import refs
from blobsync.cli.main import BlobsyncExit, main
from blobsync.cli.options import DAMAGED_RELEASE, Setting, bars, command_of, is_watched, size, table
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import call_retrying
from blobsync.sync.readiness import Readiness, ReleaseReadiness, ReleaseState

if TYPE_CHECKING:
    from blobsync.local.disk_state import DiskState
    from blobsync.local.store import LocalStore
    from blobsync.sync.syncer import Syncer

_CLOSE = timedelta(seconds=5)
_SHOW_EVERY_S = 0.1
_SHOWN_MISSING = 10


@command_of(main)
@click.argument("release", nargs=-1, required=True)
@click.option("--tree", is_flag=True, help="Also make a folder of each release, and print its path.")
@click.option(
    "--within",
    default=3600.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Give up after this many seconds. What has arrived stays.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(min=0.001),
    help="Limit of all downloads together, in MiB per second.",
)
def sync(
    setting: Setting, release: tuple[str, ...], tree: bool, within: float, bandwidth: float | None
) -> int:
    """Bring each RELEASE into the local store, verified and durable.

    Objects that are here already are not fetched. An interrupted download continues where it stopped. Several
    `sync` may run at the same time.
    """
    from blobsync.sync.syncer import Syncer

    until = time.monotonic() + within
    with setting.bucket() as store, setting.store(makes=True) as local:
        wanted = [
            call_retrying(partial(refs.in_bucket, store, text), setting.retry, what="releases")
            for text in release
        ]
        changed = threading.Event()
        syncer = Syncer(
            store,
            local,
            retry=setting.retry,
            on_change=lambda _readiness: changed.set(),
            bandwidth_bytes_per_s=None if bandwidth is None else int(bandwidth * (1 << 20)),
        )
        syncer.start()
        try:
            syncer.want(wanted)
            readiness = _await(syncer, wanted, changed, until)
            states = [readiness.releases.get(ref) or _not_begun(ref) for ref in wanted]
            is_ready = all(state.state is ReleaseState.READY for state in states)
            trees = {str(ref): str(local.materialise(ref)) for ref in wanted if tree and is_ready}
        finally:
            syncer.close(_CLOSE)
    lines = [line for state in states for line in _lines(state)]
    lines += [f"{ref} is at {path}" for ref, path in trees.items()]
    data = [_data(state) | ({"tree": trees[str(state.ref)]} if trees else {}) for state in states]
    setting.say({"releases": data}, "\n".join(lines))
    return BlobsyncExit.OK if is_ready else _worst(states, readiness.disk)


@command_of(main)
@click.argument("release", nargs=-1)
def status(setting: Setting, release: tuple[str, ...]) -> int:
    """List the releases that the local store keeps, and how many files of each are missing.

    Compares only size, time and inode of files that were verified; `verify` reads them. Uses no bucket. Exit
    code 1: something is missing, or a damaged manifest or layout was found ("kept" is false).
    """
    with setting.store() as local:
        wanted = [refs.in_store(local, text) for text in release] or local.releases()
        data = [_standing(local, ref) for ref in wanted]
        disk = local.disk_state()
    rows = [("release", "files", "bytes", "missing")]
    rows += [
        (
            f"{row['name']}@{row['digest'][:12]}",
            str(row["files"]),
            size(row["size_bytes"]),
            str(row["missing"]) if row["kept"] else DAMAGED_RELEASE,
        )
        for ref, row in zip(wanted, data, strict=True)
    ]
    setting.say({"releases": data, "disk": {"ok": disk.ok, "reason": disk.reason}}, table(rows))
    return (
        BlobsyncExit.OK
        if all(release["kept"] and release["missing"] == 0 for release in data)
        else BlobsyncExit.PROBLEM
    )


def _await(syncer: Syncer, wanted: list[ReleaseRef], changed: threading.Event, until: float) -> Readiness:
    """Wait until all releases are ready, none of the others can become ready, or the time is over."""
    printed = set[str]()
    with bars() as show:
        while True:
            changed.clear()
            readiness = syncer.readiness()
            known = all(ref in readiness.releases for ref in wanted)
            if (known and (readiness.all_ready or _hopeless(readiness))) or time.monotonic() >= until:
                return readiness
            _print_reasons(readiness, printed)
            progress = syncer.progress()
            show("syncing", progress.done_bytes, progress.total_bytes)
            left_s = until - time.monotonic()
            changed.wait(max(0.01, min(left_s, _SHOW_EVERY_S if is_watched() else left_s)))


def _not_begun(ref: ReleaseRef) -> ReleaseReadiness:
    reason = "nothing was done in time; find out whether the disk hangs, or a stopped process uses the store"
    return ReleaseReadiness(ref, ReleaseState.SYNCING, reason=reason)


def _print_reasons(readiness: Readiness, printed: set[str]) -> None:
    """Print each reason for which the bucket or the disk cannot be used, once."""
    for release in readiness.releases.values():
        if release.state is ReleaseState.UNAVAILABLE and release.reason not in printed:
            printed.add(release.reason)
            click.echo(f"{release.ref}: {release.reason}; retrying", err=True)
    if (
        not readiness.disk.ok and readiness.disk.condition not in printed
    ):  # its reason names one of many objects
        printed.add(readiness.disk.condition)
        click.echo(readiness.disk.reason, err=True)


def _hopeless(readiness: Readiness) -> bool:
    """True if no release that is not ready can become ready."""
    lost = {ReleaseState.ABSENT, ReleaseState.CORRUPT, ReleaseState.READY}
    return all(release.state in lost for release in readiness.releases.values())


def _worst(states: list[ReleaseReadiness], disk: DiskState) -> int:
    kinds = {state.state for state in states}
    if ReleaseState.UNAVAILABLE in kinds:
        return BlobsyncExit.UNREACHABLE
    if ReleaseState.ABSENT in kinds:
        return BlobsyncExit.NOT_FOUND
    return BlobsyncExit.PROBLEM if disk.ok or ReleaseState.CORRUPT in kinds else BlobsyncExit.DISK


def _lines(release: ReleaseReadiness) -> Iterator[str]:
    if release.state is ReleaseState.READY:
        yield f"{release.ref.name}@{release.ref.digest}: ready"
        return
    yield f"{release.ref.name}@{release.ref.digest}: {release.state.value}: {release.reason}"
    for item in release.missing[:_SHOWN_MISSING]:
        yield f"  missing: {item.path} ({size(item.size_bytes)})"
    if len(release.missing) > _SHOWN_MISSING:
        yield f"  and {len(release.missing) - _SHOWN_MISSING} more"


def _data(release: ReleaseReadiness) -> dict[str, Any]:
    return {
        "name": release.ref.name,
        "digest": release.ref.digest,
        "state": release.state.value,
        "reason": release.reason,
        "missing": [item.path for item in release.missing],
        "missing_bytes": release.missing_bytes,
    }


def _standing(local: LocalStore, ref: ReleaseRef) -> dict[str, Any]:
    kept = refs.undamaged_in_store(local, ref)
    return {
        "name": ref.name,
        "digest": ref.digest,
        "kept": kept is not None,
        "files": kept.record.file_count if kept is not None else 0,
        "size_bytes": kept.record.size_bytes if kept is not None else 0,
        "missing": len(local.missing(kept).artifacts) if kept is not None else 0,
    }
