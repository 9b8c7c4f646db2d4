"""Our running processes: the one that is measured, and the one that publishes. See `our_host`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync.bench_server import BenchServer
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
        endpoint: The S3 endpoint that it uses, such as a proxy; None: the server's own.
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
        """Run one operation, and return its cost."""
        return self._ask(what, ref, more)[0]

    def tree(self, ref: Ref) -> Path:
        """The release as a folder, made from the open store."""
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
