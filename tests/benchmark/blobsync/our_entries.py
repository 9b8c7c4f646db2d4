"""Blobsync as a contender: as a command, and in a running process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync.bench_server import RELEASES
from tests.benchmark.blobsync.command_side import Command, CommandSide
from tests.benchmark.blobsync.entry import Entry
from tests.benchmark.blobsync.line_process import PROJECT
from tests.benchmark.blobsync.our_process import OurHost, Ref
from tests.benchmark.blobsync.sample import Work

Before = Callable[[Path], object]
_IN_PROCESS, _COMMAND, _TREE, _SHA256 = (
    "ours, in a process",
    "ours, a command",
    ", and a tree",
    ", SHA-256 too",
)


@dataclass(frozen=True)
class OurEntries:
    """Makes our contenders for one release.

    Args:
        host: The running process.
        side: Starts commands.
        root: The store that every run uses; None: a new store for each run.
    """

    host: OurHost
    side: CommandSide
    ref: Ref
    root: Path | None = None

    def process(self, *, tree: bool = False, digests: str = "blake3", before: Before | None = None) -> Entry:
        """In the running process: from `want` until all files are ready, or until the tree exists.

        Args:
            tree: Whether it also makes a folder of the files.
            digests: How large files are verified: `blake3`, or `sha256` for both.
            before: Opens the store and does all other preparation; None: only opens the store.
        """
        word = "tree" if tree else "want"
        return self.process_doing(
            lambda: self.host.do(word, self.ref),
            name=f"ours-host{'-tree' * tree}{'-sha256' * (digests == 'sha256')}",
            label=_IN_PROCESS + _TREE * tree + _SHA256 * (digests == "sha256"),
            before=before or (lambda place: self.open(place, digests)),
        )

    def process_doing(self, run: Callable[[], Work], *, name: str, label: str, before: Before) -> Entry:
        """Another operation in the running process, whose store is open."""

        def prepare(place: Path) -> None:
            before(place)

        def finish(_place: Path) -> None:
            self.host.do("close")

        return Entry(
            name,
            label,
            lambda _place: run(),
            is_command=False,
            prepare=prepare,
            finish=finish,
            tree=lambda _place: self.host.tree(self.ref),
        )

    def command(self, *, tree: bool = False, digests: str = "blake3", before: Before | None = None) -> Entry:
        """As a command, from the start of a new interpreter. The arguments are those of `process`."""

        def prepare(place: Path) -> None:
            if before is not None:
                before(place)
                self.host.do("close")

        def tree_of(place: Path) -> Path:
            self.open(place)  # in the running process, to check the files that the command fetched
            try:
                return self.host.tree(self.ref)
            finally:
                self.host.do("close")

        return Entry(
            f"ours-command{'-tree' * tree}{'-sha256' * (digests == 'sha256')}",
            _COMMAND + _TREE * tree + _SHA256 * (digests == "sha256"),
            lambda place: self.side.run(self._words(self.root or place, tree, digests)),
            is_command=True,
            prepare=prepare,
            tree=tree_of,
        )

    def floor(self, publisher: OurHost, objects: Mapping[str, int], digest: str) -> Entry:
        """The floor of a cold case, see `floor`. It does not run in `host`, whose memory is measured."""

        def prepare(_place: Path) -> None:
            publisher.do("prepare_floor", bucket=RELEASES, objects=dict(objects), digest_by=digest)

        return Entry(
            "floor",
            f"floor: our objects, hashed ({digest}), flushed",
            lambda place: publisher.do("floor", path=str(place)),
            is_command=False,
            prepare=prepare,
        )

    def open(self, place: Path, digests: str = "blake3") -> None:
        """Open the store in the running process."""
        self.host.do("open", path=str(self.root or place), digests=digests)

    def _words(self, root: Path, tree: bool, digests: str) -> Command:
        ref = self.ref
        if (PROJECT / "blobsync" / "cli" / "syncing.py").is_file():
            command = [sys.executable, "-m", "blobsync", "sync", f"{ref.name}@{ref.digest}"]
            return [*command, "--store", str(root), "--digests", digests, *(["--tree"] if tree else [])]
        script = [sys.executable, "-m", "tests.benchmark.blobsync.our_script", "tree" if tree else "store"]
        return [*script, digests, str(root), ref.name, ref.digest]
