"""Runs contenders that are commands, through the launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmark.blobsync.bench_server import BenchServer
from tests.benchmark.blobsync.line_process import BenchFailedError, LineProcess
from tests.benchmark.blobsync.sample import Work

Command = Sequence[str]


class CommandSide:
    """See the module. One launcher for the whole benchmark."""

    def __init__(self, bench: BenchServer) -> None:
        self._bench = bench
        self._output = bench.folder / "command.out"
        script = str(Path(__file__).with_name("launcher.py"))
        log = bench.folder / "launcher.log"
        self._launcher = LineProcess("launcher", [sys.executable, "-I", "-S", script], log)

    @property
    def pid(self) -> int:
        return self._launcher.pid

    def run(self, *commands: Command) -> Work:
        """Run commands one after the other. Returns their total cost; BenchFailedError if one fails."""
        question = {
            "commands": [[str(word) for word in command] for command in commands],
            "environment": self._bench.environment,
            "log": str(self._output),
        }
        answer = self._launcher.ask(question)
        if "failed" in answer:
            tail = "\n".join(self._output.read_text(errors="replace").splitlines()[-10:])
            raise BenchFailedError(f"exit status {answer['exit']} of {' '.join(answer['failed'])}\n{tail}")
        return Work(answer["wall_s"], answer["cpu_s"], answer["peak_bytes"])

    def bare_interpreter(self) -> Work:
        """The cost of a Python process that does nothing."""
        return min((self.run([sys.executable, "-c", "pass"]) for _ in range(5)), key=lambda work: work.wall_s)

    def close(self) -> None:
        self._launcher.close()
