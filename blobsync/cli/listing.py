"""The commands `ls`, `cat` and `diff`: the files of releases, in the local store or in the bucket."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from blobsync.bucket.ports import ObjectStore
from blobsync.cli import refs
from blobsync.cli.main import BlobsyncExit, main
from blobsync.cli.options import Setting, command_of, size, table
from blobsync.release.manifest import Artifact, Manifest

_SHORT = 12


@command_of(main)
@click.argument("release", required=False)
def ls(setting: Setting, release: str | None) -> None:
    """List releases, or the files of RELEASE. With --store in the local store, else in the bucket.

    In a bucket, `ls` lists names, and `ls name@` lists the releases of that name.
    """
    if release is not None and not release.endswith("@"):
        with _manifests(setting) as manifest_of:
            manifest = manifest_of(release)
        setting.say(_data(manifest), _files(manifest))
    elif not setting.means_bucket:
        with setting.store() as local:
            refs = [ref for ref in local.releases() if release in {None, f"{ref.name}@"}]
        data = [{"name": ref.name, "digest": ref.digest} for ref in refs]
        setting.say({"releases": data}, "\n".join(f"{ref.name}@{ref.digest}" for ref in refs))
    else:
        with setting.bucket() as store:
            _list_bucket(setting, store, release)


@command_of(main)
@click.argument("release")
@click.argument("path")
def cat(setting: Setting, release: str, path: str) -> None:
    """Write the file PATH of RELEASE to stdout, verified. With --store from the local store.

    There, a file above 4 MiB is compared only by size, time and inode; `verify` reads its bytes.
    """
    out = sys.stdout.buffer
    if not setting.means_bucket:
        with setting.store() as local:
            for piece in local.read(refs.in_store(local, release), path):
                out.write(piece)
    else:
        from blobsync.bucket.releases import fetch_layout, fetch_manifest, read_file

        with setting.bucket() as store:
            ref = refs.in_bucket(store, release)
            manifest = fetch_manifest(store, ref.name, ref.digest)
            for piece in read_file(store, manifest, fetch_layout(store, ref.name, ref.digest), path):
                out.write(piece)
    out.flush()


@command_of(main)
@click.argument("before")
@click.argument("after")
def diff(setting: Setting, before: str, after: str) -> int:
    """List the files that differ between the releases BEFORE and AFTER. Exit code 1: some differ."""
    with _manifests(setting) as manifest_of:
        old = {item.path: item for item in manifest_of(before).artifacts}
        new = {item.path: item for item in manifest_of(after).artifacts}
    added = sorted(new.keys() - old.keys())
    removed = sorted(old.keys() - new.keys())
    changed = sorted(path for path in new.keys() & old.keys() if new[path] != old[path])
    known = {item.sha256 for item in old.values()}
    fresh = {item.sha256: item.size_bytes for item in new.values() if item.sha256 not in known}
    lines = [f"+ {path}" for path in added] + [f"- {path}" for path in removed]
    lines += [f"~ {path}" for path in changed]
    lines.append(
        f"{len(added)} added, {len(removed)} removed, {len(changed)} changed; new bytes: "
        f"{size(sum(fresh.values()))}"
    )
    data = {"added": added, "removed": removed, "changed": changed, "new_bytes": sum(fresh.values())}
    setting.say(data, "\n".join(lines))
    return BlobsyncExit.PROBLEM if added or removed or changed else BlobsyncExit.OK


@contextmanager
def _manifests(setting: Setting) -> Iterator[Callable[[str], Manifest]]:
    """Give a function that reads the manifest of a release that a person named."""
    if not setting.means_bucket:
        with setting.store() as local:
            yield lambda text: refs.kept_in_store(local, refs.in_store(local, text)).manifest
        return
    from blobsync.bucket.releases import fetch_manifest

    with setting.bucket() as store:

        def fetched(text: str) -> Manifest:
            ref = refs.in_bucket(store, text)
            return fetch_manifest(store, ref.name, ref.digest)

        yield fetched


def _list_bucket(setting: Setting, store: ObjectStore, release: str | None) -> None:
    from blobsync.bucket.releases import list_names, list_releases, published

    if release is None:
        names = list_names(store)
        setting.say({"names": names}, "\n".join(names))
        return
    name = release.removesuffix("@")
    visible = set(list_releases(store, name))
    times = {entry.digest: entry.at for entry in reversed(published(store, name)) if entry.digest in visible}
    ordered = sorted(visible, key=lambda digest: (str(times.get(digest, "")), digest))
    data = [
        {"digest": digest, "published_at": times[digest].isoformat() if digest in times else None}
        for digest in reversed(ordered)
    ]
    rows = [("published", "release")]
    rows += [(item["published_at"] or "not known", f"{name}@{item['digest']}") for item in data]
    setting.say({"name": name, "releases": data}, table(rows))


def _data(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "digest": manifest.digest,
        "size_bytes": manifest.size_bytes,
        "files": [_file(item) for item in manifest.artifacts],
    }


def _file(item: Artifact) -> dict[str, Any]:
    return {
        "path": item.path,
        "size_bytes": item.size_bytes,
        "sha256": item.sha256,
        "role": item.role.value,
        "executable": item.executable,
    }


def _files(manifest: Manifest) -> str:
    rows = [("size", "sha256", "role", "path")]
    rows += [
        (size(item.size_bytes), item.sha256[:_SHORT], item.role.value, item.path)
        for item in manifest.artifacts
    ]
    count = len(manifest.artifacts)
    return f"{table(rows)}\n{count} files, {size(manifest.size_bytes)}, {manifest.name}@{manifest.digest}"
