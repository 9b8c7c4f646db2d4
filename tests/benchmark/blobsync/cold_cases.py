"""Everything is in S3 and nothing is here."""

from __future__ import annotations

from tests.benchmark.blobsync.entry import Case
from tests.benchmark.blobsync.lab import Lab
from tests.benchmark.blobsync.our_entries import cold_entries, floor_entry
from tests.benchmark.blobsync.peers import comparator

COLD = ("small", "medium", "large", "unchunked")

_WORDS = {
    "small": "(a) cold, {}",
    "medium": "(b) cold, {}",
    "large": "(c) cold, {}, verified by BLAKE3",
    "unchunked": "(c) cold, {}, verified by SHA-256 alone",
}
_WITH_TAR = {"small", "medium"}


def cold_case(lab: Lab, name: str) -> Case:
    """One of `COLD`.

    A file above 16 MiB always has BLAKE3 digests of its chunks; so SHA-256 alone is measured with as many
    bytes in files that have none.
    """
    files = getattr(lab.scale, name)
    source = lab.source(name, files)
    lab.renew_host()
    entries = cold_entries(lab.host, lab.side, source.ref)
    entries.append(floor_entry(lab.publisher, source.objects, "sha256" if name == "unchunked" else "blake3"))
    entries += [peer.entry(lab.side, source.key) for peer in lab.peers() if peer.name != "rclone-checksum"]
    if name in _WITH_TAR:
        entries += comparator(lab.tools, lab.side, *lab.archive(source))
    return Case(
        name, _WORDS[name].format(files.words), lab.takes_part(entries), source.digests, files.total_bytes
    )
