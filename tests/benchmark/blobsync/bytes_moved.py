"""How many bytes publish and sync transfer, for all files and for a change. A proxy counts them."""

from __future__ import annotations

from tests.benchmark.blobsync import content
from tests.benchmark.blobsync.byte_counter import ByteCounter
from tests.benchmark.blobsync.lab import Lab
from tests.benchmark.blobsync.our_process import OurHost


def bytes_moved(lab: Lab) -> dict[str, int]:
    """Bytes in both directions, headers included, and the size of the files.

    The files are similar to those of the cases, but not the same: those are already in the bucket.
    """
    place = lab.bench.folder / "counted"
    old, new, only = place / "old", place / "new", place / "only"
    content.make(old, lab.scale.small, seed=2)
    content.change(old, new, only, lab.scale.changed)
    counter = ByteCounter(lab.bench.server.port)
    host = OurHost(lab.bench, counter.url)
    found = {"files": lab.scale.small.total_bytes}
    try:
        counter.taken()
        first, _ = host.publish("counted", old)
        found["publish_all"] = counter.taken()
        host.do("open", path=str(place / "store"))
        host.do("want", first)
        found["sync_all"] = counter.taken()
        second, _ = host.publish("counted", new)
        found["publish_changed"] = counter.taken()
        host.do("want", second)
        found["sync_changed"] = counter.taken()
        host.do("close")
    finally:
        host.close()
        counter.close()
    return found
