"""Cases with existing local files: nothing to do, hash all files again, and 1 % of the files changed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync import content
from tests.benchmark.blobsync.entry import Case, Entry
from tests.benchmark.blobsync.lab import Lab, Source
from tests.benchmark.blobsync.our_entries import OurEntries
from tests.benchmark.blobsync.peers import Peer
from tests.benchmark.blobsync.tools import system_tool

KEPT = ("nothing", "rehash", "changed")


@dataclass(frozen=True)
class _Bases:
    """A copy of the files for each tool, made by the tool itself: it finds its own times and names there."""

    lab: Lab
    source: Source
    folder: Path

    def of(self, peer: Peer) -> Path:
        base = self.folder / peer.name
        if not base.exists():
            base.mkdir(parents=True)
            self.lab.side.run(*peer.cold(self.source.key, base))
        return base

    def updating(self) -> list[Peer]:
        """The tools that can update a folder, and detect changes by size and time."""
        able = [peer for peer in self.lab.peers() if peer.again is not None]
        return [peer for peer in able if peer.name != "rclone-checksum"]

    def ours(self, name: str, *, tree: bool = False) -> Path:
        base, host = self.folder / name, self.lab.host
        if self.lab.ours and not base.exists():
            base.parent.mkdir(exist_ok=True)
            host.do("open", path=str(base))
            host.do("want", self.source.ref)
            if tree:
                host.tree(self.source.ref)
            host.do("close")
        return base


def kept_cases(lab: Lab, wanted: set[str]) -> Iterator[Case]:
    """The wanted cases of `KEPT`, in this order, because the last one changes the files in S3."""
    source = lab.source("kept", lab.scale.small)
    bases = _Bases(lab, source, lab.bench.folder / "bases")
    if "nothing" in wanted:
        yield _nothing_to_do(bases)
    if "rehash" in wanted:
        yield _rehash(bases)
    if "changed" in wanted:
        yield _changed(bases)


def _nothing_to_do(bases: _Bases) -> Case:
    lab, ref = bases.lab, bases.source.ref
    root, with_tree = bases.ours("ours"), bases.ours("ours-tree", tree=True)
    lab.renew_host()
    ours, ours_tree = (OurEntries(lab.host, lab.side, ref, each) for each in (root, with_tree))
    entries = [
        ours.command(),
        ours.process(),
        ours_tree.process(tree=True),
        *(_again(bases, peer) for peer in bases.updating()),
    ]
    return Case("nothing", f"nothing to do, {lab.scale.small.words}", lab.takes_part(entries))


def _rehash(bases: _Bases) -> Case:
    lab, ref = bases.lab, bases.source.ref
    root, with_tree = bases.ours("ours"), bases.ours("ours-tree", tree=True)
    lab.renew_host()

    def verifying(store: Path, name: str, label: str) -> Entry:
        ours = OurEntries(lab.host, lab.side, ref, store)
        return ours.process_doing(
            lambda: lab.host.do("verify", ref), name=name, label=label, before=ours.open
        )

    entries = [
        verifying(root, "ours-host", "ours, in a process"),
        verifying(with_tree, "ours-host-tree", "ours, in a process, and its tree"),
        *(_again(bases, peer) for peer in lab.peers() if peer.name == "rclone-checksum"),
    ]
    return Case("rehash", f"all hashed again, {lab.scale.small.words}", lab.takes_part(entries))


def _changed(bases: _Bases) -> Case:
    """Every tool has the old files; some change in S3, in place; then each tool updates its copy."""
    lab, old = bases.lab, bases.source
    updating = bases.updating()
    for peer in updating:
        bases.of(peer)
    new, only = lab.bench.folder / "sources" / "new", lab.bench.folder / "sources" / "only-changed"
    content.change(old.folder, new, only, lab.scale.changed)
    time.sleep(2)  # so that changed files are newer than copies, also in whole seconds
    lab.bench.upload(only, old.key)
    ref, _ = lab.publish(old.ref.name, new)
    lab.renew_host()
    ours = OurEntries(lab.host, lab.side, ref)

    def had_old(place: Path) -> None:
        ours.open(place)
        lab.host.do("want", old.ref)

    def had_old_tree(place: Path) -> None:
        had_old(place)
        lab.host.tree(old.ref)

    entries = [
        ours.command(before=had_old),
        ours.process(before=had_old),
        ours.process(tree=True, before=had_old_tree),
        *(_update(bases, peer) for peer in updating),
    ]
    title = f"{lab.scale.changed} of {lab.scale.small.words} changed"
    return Case("changed", title, lab.takes_part(entries), content.digests(new), lab.scale.small.total_bytes)


def _again(bases: _Bases, peer: Peer) -> Entry:
    """The tool checks its own copy, in which nothing has changed."""
    again = peer.again
    assert again is not None
    base, side, key = bases.of(peer), bases.lab.side, bases.source.key
    return Entry(peer.name, peer.label, lambda _place: side.run(*again(key, base)), is_command=True)


def _update(bases: _Bases, peer: Peer) -> Entry:
    """The tool updates a copy of its old copy."""
    again, base, side, key = peer.again, bases.of(peer), bases.lab.side, bases.source.key
    assert again is not None

    def prepare(place: Path) -> None:
        subprocess.run([system_tool("cp"), "-a", str(base), str(place)], check=True)

    return Entry(
        peer.name,
        peer.label,
        lambda place: side.run(*again(key, place)),
        is_command=True,
        prepare=prepare,
        tree=lambda place: place,
    )
