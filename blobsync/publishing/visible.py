"""The last steps of publishing, after which a release is there for everybody."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable

from blobsync.publishing.remote import Remote
from blobsync.release.layout import MAX_PUBLISHER_CHARS, Layout
from blobsync.release.manifest import Manifest
from blobsync.storage import keys
from blobsync.storage.releases import Publication, publication_key, stored_manifest


def make_visible(manifest: Manifest, layout: Layout, remote: Remote, check: Callable[[], None]) -> int:
    """Write layout, history, and last the manifest. Gives the bytes that were written.

    Args:
        manifest: What is published.
        layout: Where it is.
        remote: Where to.
        check: Called before each write; it raises if the publish may not go on.
    """
    name, digest = manifest.name, manifest.digest
    entry = publication_key(name, Publication(layout.published_at, digest))
    last = [
        (keys.layout(name, digest), layout.encode()),
        (entry, b""),
        (keys.manifest(name, digest), stored_manifest(manifest)),
    ]
    for key, data in last:
        if not remote.dry_run:
            check()
        remote.write(key, data)
    return sum(len(data) for _, data in last)


def whoever() -> str:
    """Who publishes, for people: user and host."""
    try:
        who = f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # no such user: as in many containers
        who = f"{os.getuid()}@{socket.gethostname()}"
    return "".join(sign for sign in who if sign.isprintable())[:MAX_PUBLISHER_CHARS]
