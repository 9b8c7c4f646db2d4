"""Files lie in S3 as others put them there, one object each, and nothing is here."""

from __future__ import annotations

from tests.benchmark.blobsync import content
from tests.benchmark.blobsync.bench_server import RELEASES
from tests.benchmark.blobsync.entry import Case
from tests.benchmark.blobsync.lab import Lab
from tests.benchmark.blobsync.our_entries import OurEntries

LOOSE_CASE = "loose"
_BELOW = "foreign"


def loose_case(lab: Lab) -> Case:
    """The files of the case `small`, in our bucket; all contenders fetch the same objects."""
    files = lab.scale.small
    folder = lab.bench.folder / "sources" / LOOSE_CASE
    content.make(folder, files)
    key = f"{RELEASES}/{_BELOW}"
    lab.bench.upload(folder, key)
    entries = []
    if lab.ours:
        lab.renew_host()
        ours = OurEntries(lab.host, lab.side, lab.publisher.adopt(LOOSE_CASE, _BELOW))
        entries += [ours.command(), ours.process()]
    entries += [peer.entry(lab.side, key) for peer in lab.peers() if peer.name != "rclone-checksum"]
    return Case(
        LOOSE_CASE,
        f"(d) cold, objects of others, {files.words}",
        lab.takes_part(entries),
        content.digests(folder),
        files.total_bytes,
    )
