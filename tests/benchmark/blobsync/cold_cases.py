"""Cases in which all files are in S3, and none is on this host."""

from __future__ import annotations

from tests.benchmark.blobsync.entry import Case
from tests.benchmark.blobsync.lab import Lab
from tests.benchmark.blobsync.our_entries import OurEntries
from tests.benchmark.blobsync.peers import comparator

COLD = ("small", "medium", "large")

_WORDS = {
    "small": "(a) cold, {}",
    "medium": "(b) cold, {}",
    "large": "(c) cold, {}",
}
_WITH_TAR = {"small", "medium"}


def cold_case(lab: Lab, name: str) -> Case:
    """One of `COLD`. Large files are verified by BLAKE3, and in separate runs by SHA-256 as well."""
    files = getattr(lab.scale, name)
    source = lab.source(name, files)
    lab.renew_host()
    ours = OurEntries(lab.host, lab.side, source.ref)
    entries = [ours.command(), ours.process(), ours.command(tree=True), ours.process(tree=True)]
    if name == "large":
        entries += [ours.command(digests="sha256"), ours.process(digests="sha256")]
    entries.append(ours.floor(lab.publisher, source.objects, "blake3"))
    entries += [peer.entry(lab.side, source.key) for peer in lab.peers() if peer.name != "rclone-checksum"]
    if name in _WITH_TAR:
        entries += comparator(lab.tools, lab.side, *lab.archive(source))
    return Case(
        name, _WORDS[name].format(files.words), lab.takes_part(entries), source.digests, files.total_bytes
    )
