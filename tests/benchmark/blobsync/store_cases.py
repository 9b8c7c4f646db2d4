"""Cases with an existing store: readiness, and the time to open it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.benchmark.blobsync.entry import Case, Entry
from tests.benchmark.blobsync.lab import Lab
from tests.benchmark.blobsync.our_entries import OurEntries
from tests.benchmark.blobsync.sample import Work

STORE = ("readiness", "open")


def readiness_case(lab: Lab) -> Case:
    """The time of one query of readiness when nothing has changed."""
    ref = lab.source("small", lab.scale.small).ref
    lab.renew_host()
    calls = lab.scale.readiness_calls

    ours = OurEntries(lab.host, lab.side, ref)

    def ready(place: Path) -> None:
        ours.open(place)
        lab.host.do("want", ref)

    def ask() -> Work:
        work = lab.host.do("readiness", calls=calls)
        return replace(work, wall_s=work.wall_s / calls, cpu_s=work.cpu_s / calls)

    entry = ours.process_doing(ask, name="ours-host", label="ours, in a process", before=ready)
    return Case("readiness", f"second query of readiness, {lab.scale.small.count:,} artifacts", (entry,))


def open_case(lab: Lab) -> Case:
    """Opening a store of many artifacts: alone, and until all of them are reported ready."""
    ref = lab.source("many", lab.scale.many, upload=False).ref
    root = lab.bench.folder / "bases" / "many"
    root.parent.mkdir(exist_ok=True)
    lab.host.do("open", path=str(root))
    lab.host.do("want", ref)
    lab.host.do("close")
    lab.renew_host()

    def finish(_place: Path) -> None:
        lab.host.do("close")

    def opened(_place: Path) -> Work:
        return lab.host.do("open_only", path=str(root))

    def opened_and_ready(_place: Path) -> Work:
        first = lab.host.do("open", path=str(root))
        then = lab.host.do("want", ref)
        return replace(
            then,
            wall_s=first.wall_s + then.wall_s,
            cpu_s=first.cpu_s + then.cpu_s,
            peak_bytes=max(first.peak_bytes, then.peak_bytes),
            parts={"open": first.wall_s, "until ready": then.wall_s},
        )

    entries = (
        Entry("ours-open", "ours, opened", opened, False, finish=finish),
        Entry("ours-open-ready", "ours, until all is reported ready", opened_and_ready, False, finish=finish),
    )
    return Case("open", f"a store of {lab.scale.many.count:,} artifacts", entries)
