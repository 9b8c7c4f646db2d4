"""Controls a host process: sends commands, and reads answers on its own thread."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmark.leader.clock import now_ns

_END_LIMIT_S = 20.0
_PROJECT = Path(__file__).parents[3]


class HostFailedError(Exception):
    """A host process gave an unexpected answer, or none."""


class HostProcess:
    """See the module.

    Args:
        answers: Queue for its answers, shared by the hosts of one contender.
    """

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, answers: queue.SimpleQueue[list[str]]
    ) -> None:
        self.name, self._answers = name, answers
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                list(command),
                cwd=_PROJECT,  # so that it can import `tests`
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Ask it to end, and kill it if it does not."""
        with contextlib.suppress(OSError, ValueError):
            self.send("quit")
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_LIMIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.split(" ", 1) if line.startswith("json ") else line.split())
        self._answers.put(["ended", self.name])


class HostGroup:
    """The host processes of one contender. Participant i is in the process i modulo their number."""

    def __init__(self, name: str, commands: Sequence[Sequence[str]], folder: Path) -> None:
        self.name = name
        self._answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self.hosts: list[HostProcess] = []
        try:
            for number, command in enumerate(commands):
                self.hosts.append(HostProcess(f"{name}-{number}", command, folder, self._answers))
            for _ in commands:
                self.expect({"ready"}, 60)
            for host in self.hosts:
                self._check_clock(host)
        except BaseException:
            self.close()
            raise

    def host_of(self, participant: int) -> HostProcess:
        return self.hosts[participant % len(self.hosts)]

    def expect(self, wanted: set[str], within_s: float = 30.0) -> list[str]:
        """The next answer. HostFailedError if none comes, or if its first word is not in `wanted`."""
        until = time.monotonic() + within_s
        try:
            answer = self._answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise HostFailedError(f"{self.name}: no {wanted} within {within_s} s{self._tails()}") from None
        if not answer or answer[0] not in wanted:
            raise HostFailedError(f"{self.name}: got {answer}, wanted {wanted}{self._tails()}")
        return answer

    def close(self) -> None:
        for host in self.hosts:
            host.close()

    def _check_clock(self, host: HostProcess) -> None:
        """Check that its times can be compared with those of other processes."""
        before = now_ns()
        host.send("clock")
        said = int(self.expect({"clock"})[1])
        if not before <= said <= now_ns():
            raise HostFailedError(f"{host.name} has another clock: {said} is not between {before} and now")

    def _tails(self) -> str:
        return "".join(f"\n--- {host.name}\n{host.log_tail()}" for host in self.hosts)
