"""How many bytes publish and sync move, all of them and for a change, as a proxy counts them."""

from __future__ import annotations

from tests.benchmark.blobsync import content
from tests.benchmark.blobsync.byte_counter import ByteCounter
from tests.benchmark.blobsync.lab import Lab
from tests.benchmark.blobsync.our_process import OurHost


def bytes_moved(lab: Lab) -> dict[str, int]:
    """Bytes of both directions, headers included, and of the files themselves.

    The files are like those of the cases, but others: those are in the bucket already.
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
