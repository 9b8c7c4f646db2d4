"""Our part in the cases: as a command, and inside a process that runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync.bench_server import RELEASES, BenchServer
from tests.benchmark.blobsync.command_side import Command, CommandSide
from tests.benchmark.blobsync.entry import Entry
from tests.benchmark.blobsync.line_process import LineProcess
from tests.benchmark.blobsync.sample import Work


@dataclass(frozen=True)
class Ref:
    """A release of ours."""

    name: str
    digest: str


class OurHost:
    """Our running process. See `our_host`.

    Args:
        endpoint: Where it thinks that the server is; None: where it is.
    """

    def __init__(self, bench: BenchServer, endpoint: str | None = None) -> None:
        environment: Mapping[str, str] = bench.environment
        if endpoint is not None:
            environment = {**environment, "BENCH_ENDPOINT": endpoint}
        command = [sys.executable, "-m", "tests.benchmark.blobsync.our_host"]
        log = bench.folder / f"our-host-{os.urandom(4).hex()}.log"
        self._process = LineProcess("our host", command, log, environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, what: str, ref: Ref | None = None, **more: object) -> Work:
        """One thing, and what it cost."""
        return self._ask(what, ref, more)[0]

    def tree(self, ref: Ref) -> Path:
        """The release as a folder, of the store that is open."""
        return Path(self._ask("tree", ref, {})[1])

    def publish(self, name: str, folder: Path) -> tuple[Ref, Work]:
        """Publish a folder."""
        work, digest = self._ask("publish", Ref(name, ""), {"path": str(folder)})
        return Ref(name, digest), work

    def close(self) -> None:
        self._process.close()

    def _ask(self, what: str, ref: Ref | None, more: Mapping[str, object]) -> tuple[Work, str]:
        named = {} if ref is None else {"name": ref.name, "digest": ref.digest}
        answer = self._process.ask({"do": what, **named, **more})
        result = answer.pop("result")
        return Work(**answer), result


def host_entry(
    host: OurHost, name: str, label: str, before: Callable[[Path], object], run: Callable[[], Work], ref: Ref
) -> Entry:
    """An entry of the running process, which closes its store after each run."""

    def prepare(place: Path) -> None:
        before(place)

    def finish(_place: Path) -> None:
        host.do("close")

    return Entry(
        name, label, lambda _place: run(), False, prepare, finish, tree=lambda _place: host.tree(ref)
    )


def cold_entries(host: OurHost, side: CommandSide, ref: Ref) -> list[Entry]:
    """Ours in a cold case: verified and durable; and as a folder of files on top of that."""

    def opened(place: Path) -> None:
        host.do("open", path=str(place))

    return [
        command_entry(host, side, "ours-command", "ours, a command", "store", ref),
        host_entry(host, "ours-host", "ours, in a process", opened, lambda: host.do("want", ref), ref),
        command_entry(host, side, "ours-command-tree", "ours, a command, and a tree", "tree", ref),
        host_entry(
            host,
            "ours-host-tree",
            "ours, in a process, and a tree",
            opened,
            lambda: host.do("tree", ref),
            ref,
        ),
    ]


def floor_entry(host: OurHost, objects: Mapping[str, int], digest: str) -> Entry:
    """The floor of a cold case. See `floor`. Not in the host that is measured, whose memory it would use."""

    def prepare(_place: Path) -> None:
        host.do("prepare_floor", bucket=RELEASES, objects=dict(objects), digest_by=digest)

    return Entry(
        "floor",
        f"floor: our objects, hashed ({digest}), flushed",
        lambda place: host.do("floor", path=str(place)),
        False,
        prepare,
    )


def command(until: str, place: Path, ref: Ref) -> Command:
    """Ours as a command that syncs `ref` into the store at `place`."""
    module = "tests.benchmark.blobsync.our_script"
    return [sys.executable, "-m", module, until, str(place), ref.name, ref.digest]


def command_entry(
    host: OurHost,
    side: CommandSide,
    name: str,
    label: str,
    until: str,
    ref: Ref,
    before: Callable[[Path], None] = lambda _place: None,
) -> Entry:
    """An entry of the command. Its store is opened by our host only to compare what is in it."""

    def tree(place: Path) -> Path:
        host.do("open", path=str(place))
        try:
            return host.tree(ref)
        finally:
            host.do("close")

    return Entry(name, label, lambda place: side.run(command(until, place, ref)), True, before, tree=tree)
