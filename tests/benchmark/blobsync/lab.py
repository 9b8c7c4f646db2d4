"""The common parts of all cases: server, tools, processes, and the uploaded files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.benchmark.blobsync import content
from tests.benchmark.blobsync.bench_server import PLAIN, RELEASES, BenchServer, bench_server
from tests.benchmark.blobsync.command_side import CommandSide
from tests.benchmark.blobsync.entry import Entry
from tests.benchmark.blobsync.our_process import OurHost, Ref
from tests.benchmark.blobsync.peers import Peer, peers
from tests.benchmark.blobsync.sample import Work
from tests.benchmark.blobsync.scale import Files, Scale
from tests.benchmark.blobsync.tools import Tool, system_tool


@dataclass(frozen=True)
class Source:
    """Files that are in S3, as plain objects and as our release.

    Args:
        files: Number, size and kind of the files.
        folder: The local folder in which they were created.
        key: Bucket and prefix of the plain objects.
        ref: Our release of the files.
        objects: Size by key of the objects that `publish` put into the bucket.
        uploaded_s: How long rclone took to upload the plain objects; None: they were not uploaded.
        published: The cost of `publish`; None: nothing was published.
    """

    files: Files
    folder: Path
    key: str
    ref: Ref
    objects: Mapping[str, int]
    uploaded_s: float | None
    published: Work | None

    @cached_property
    def digests(self) -> dict[str, str]:
        return content.digests(self.folder)


@dataclass
class Lab:
    """See the module.

    Args:
        only: Contenders that take part; empty: all.
        side: Runs commands.
        publisher: Our process that publishes.
        host: Our process that is measured.
    """

    bench: BenchServer
    scale: Scale
    tools: Mapping[str, Tool]
    only: Sequence[str]
    side: CommandSide
    publisher: OurHost
    host: OurHost
    _sources: dict[str, Source] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether blobsync takes part."""
        return not self.only or any(name.startswith(("ours", "floor")) for name in self.only)

    def takes_part(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        """The contenders that `--only` selects."""
        return tuple(entry for entry in entries if not self.only or entry.name in self.only)

    def peers(self) -> list[Peer]:
        """The other tools that are installed and that `--only` selects."""
        return [peer for peer in peers(self.tools) if not self.only or peer.name in self.only]

    def renew_host(self) -> None:
        """Start a new process, so that the memory of a case does not contain that of the previous case."""
        self.host.close()
        self.host = OurHost(self.bench)

    def pids(self) -> list[int]:
        """Pids of all our running processes."""
        return [self.bench.server.pid, self.side.pid, self.publisher.pid, self.host.pid]

    def sources(self) -> Mapping[str, Source]:
        """All sources made so far, by name."""
        return self._sources

    def close(self) -> None:
        for process in (self.host, self.publisher, self.side):
            process.close()

    def source(self, name: str, files: Files, *, upload: bool = True) -> Source:
        """Make, upload and publish files. Later calls with the same name return the same source."""
        if name not in self._sources:
            folder = self.bench.folder / "sources" / name
            content.make(folder, files)
            key = f"{PLAIN}/{name}"
            uploaded_s = self.bench.upload(folder, key) if upload else None
            before = self._objects()
            ref, published = self.publish(name, folder)
            objects = {key: size for key, size in self._objects().items() if key not in before}
            self._sources[name] = Source(files, folder, key, ref, objects, uploaded_s, published)
        return self._sources[name]

    def publish(self, name: str, folder: Path) -> tuple[Ref, Work | None]:
        """Publish a folder as a release, if blobsync takes part."""
        return self.publisher.publish(name, folder) if self.ours else (Ref(name, ""), None)

    def _objects(self) -> dict[str, int]:
        """Packs and blobs in our bucket."""
        root = self.bench.server.objects / RELEASES
        files = [path for kind in ("packs", "blobs") for path in (root / kind).rglob("*") if path.is_file()]
        return {path.relative_to(root).as_posix(): path.stat().st_size for path in files}

    def archive(self, source: Source) -> tuple[str, Path]:
        """Upload a source as one tar. Returns its key, and a file of SHA-256 sums for `sha256sum`."""
        work = self.bench.folder / "sources"
        archive, sums = work / f"{source.folder.name}.tar", work / f"{source.folder.name}.sums"
        subprocess.run([system_tool("tar"), "-cf", archive, "-C", source.folder, "."], check=True)
        sums.write_text("".join(f"{digest}  {path}\n" for path, digest in source.digests.items()))
        key = f"{PLAIN}/archives/{archive.name}"
        self.bench.upload(archive, key)
        return key, sums


@contextmanager
def lab(place: Path, scale: Scale, tools: Mapping[str, Tool], only: Sequence[str]) -> Iterator[Lab]:
    """Start the server and all processes, and end them afterwards."""
    with ExitStack() as stack:
        bench = stack.enter_context(bench_server(place))
        side = CommandSide(bench)
        stack.callback(side.close)
        publisher = OurHost(bench)
        stack.callback(publisher.close)
        made = Lab(bench, scale, tools, only, side, publisher, OurHost(bench))
        stack.callback(made.close)
        yield made
