"""The commands `verify` (is a release complete and undamaged?) and `probe` (what does a server support?)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict

import click

from blobsync.bucket.audit import Audit, Auditor
from blobsync.bucket.ports import ObjectStore, OnProgress
from blobsync.bucket.releases import list_names, list_releases
from blobsync.cli import refs
from blobsync.cli.main import BlobsyncExit, main
from blobsync.cli.options import DAMAGED_RELEASE, NO_BUCKET, Setting, Show, bars, command_of, size
from blobsync.errors import BlobMissingError, BlobSyncConfigError, InvalidLayoutError, InvalidManifestError
from blobsync.local.objects import MissingObjects
from blobsync.local.store import LocalStore
from blobsync.progress import Throttle
from blobsync.release.manifest import ReleaseRef


@command_of(main)
def probe(setting: Setting) -> int:
    """Test what the bucket's server really supports, and say what that means.

    Writes and removes a few objects. Exit code 1: the server lacks something that this library needs.
    """
    if setting.s3 is None:
        raise BlobSyncConfigError(NO_BUCKET)
    from blobsync.probe import probe as find_out

    report = find_out(setting.s3)
    setting.say(report.as_data(), "\n".join(report.lines()))
    return BlobsyncExit.OK if report.usable else BlobsyncExit.PROBLEM


@command_of(main)
@click.argument("release", nargs=-1)
@click.option("--rate", type=click.FloatRange(min=0.001), help="Limit of reading, in MiB per second.")
@click.option(
    "--deep", is_flag=True, help="In the bucket: read and verify every byte, not only sizes and tables."
)
def verify(setting: Setting, release: tuple[str, ...], rate: float | None, deep: bool) -> int:
    """Check each RELEASE, or all releases. With --store in the local store, else in the bucket.

    In the local store, every byte is read. Damaged files go to quarantine, and `sync` fetches them again. If
    the manifest or layout of a release is damaged ("kept" is false), its files are not checked. In the
    bucket, nothing is changed; `publish --repair` of the same files repairs the release. Exit code 1:
    something is damaged or missing.
    """
    if setting.means_bucket:
        return _verify_bucket(setting, release, rate, deep)
    if deep:
        raise BlobSyncConfigError("--deep is for the bucket; in a local store, every byte is always read")
    return _verify_store(setting, release, rate)


def _verify_store(setting: Setting, release: tuple[str, ...], rate: float | None) -> int:
    with setting.store() as local:
        wanted = [refs.in_store(local, text) for text in release] or local.releases()
        with bars() as show:
            releases = {ref: _verify_kept(local, ref, show, rate) for ref in wanted}
    data = [
        {
            "name": ref.name,
            "digest": ref.digest,
            "kept": missing is not None,
            "damaged": [] if missing is None else [item.path for item in missing.artifacts],
        }
        for ref, missing in releases.items()
    ]
    lines = [f"{ref}: {_verdict(missing)}" for ref, missing in releases.items()]
    damaged = any(missing is None or missing for missing in releases.values())
    if damaged:
        lines.append("`sync` fetches what is damaged or missing")
    setting.say({"releases": data}, "\n".join(lines))
    return BlobsyncExit.PROBLEM if damaged else BlobsyncExit.OK


def _verify_kept(local: LocalStore, ref: ReleaseRef, show: Show, rate: float | None) -> MissingObjects | None:
    """What a release lacks in a local store; None: its manifest or layout is damaged."""
    kept = refs.undamaged_in_store(local, ref)
    if kept is None:
        return None
    try:
        return local.verify(ref, on_progress=_meter(show, kept.record.size_bytes, rate))
    except (BlobMissingError, InvalidLayoutError, InvalidManifestError):
        return None


def _verdict(missing: MissingObjects | None) -> str:
    if missing is None:
        return DAMAGED_RELEASE
    return f"{len(missing.artifacts)} files are damaged or missing" if missing else "all is well"


def _verify_bucket(setting: Setting, release: tuple[str, ...], rate: float | None, deep: bool) -> int:
    with setting.bucket() as store, bars() as show:
        wanted = [refs.in_bucket(store, text) for text in release] or list(_all(store))
        on_progress = _meter(show, 0, rate if deep else None)
        auditor = Auditor(store, retry=setting.retry, deep=deep, on_progress=on_progress)
        audits = [auditor.audit(ref) for ref in wanted]
    lines = [line for audit in audits for line in _lines(audit)]
    if any(audit.flaws for audit in audits):
        lines.append("repair it with `publish --repair` of the same files")
    setting.say({"deep": deep, "releases": [_data(audit) for audit in audits]}, "\n".join(lines))
    if any(audit.is_absent for audit in audits):
        return BlobsyncExit.NOT_FOUND
    return BlobsyncExit.PROBLEM if any(audit.flaws for audit in audits) else BlobsyncExit.OK


def _all(store: ObjectStore) -> Iterator[ReleaseRef]:
    for name in list_names(store):
        yield from (ReleaseRef(name, digest) for digest in list_releases(store, name))


def _lines(audit: Audit) -> Iterator[str]:
    if not audit.flaws:
        yield f"{audit.ref}: all is well: {audit.objects} objects, {size(audit.size_bytes)}"
        return
    yield f"{audit.ref}: {len(audit.flaws)} objects are damaged or missing"
    yield from (f"  {flaw.fault.value}: {flaw.key}: {flaw.reason}" for flaw in audit.flaws)


def _data(audit: Audit) -> dict[str, object]:
    return {
        "name": audit.ref.name,
        "digest": audit.ref.digest,
        "objects": audit.objects,
        "size_bytes": audit.size_bytes,
        "flaws": [asdict(flaw) for flaw in audit.flaws],
    }


def _meter(show: Show, total_bytes: int, rate_mib: float | None) -> OnProgress:
    """Give a function that counts bytes, updates the bar, and waits if there is a rate."""
    throttle, done = Throttle(None if rate_mib is None else rate_mib * (1 << 20), threading.Event()), 0

    def on_progress(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        show("verifying", done, max(done, total_bytes))
        throttle.take(size_bytes)

    return on_progress
