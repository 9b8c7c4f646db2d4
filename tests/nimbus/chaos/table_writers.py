"""Processes that write one batch each, and can be killed and stopped.

This module as a program is their parent: it has the libraries in memory, and forks a writer for each line of
its input. It answers `PID started`; a writer says `PID near` before its commit, and `PID written`, `PID
refused` or `PID failed WHY`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from nimbus.tables import NewerWriteError
from tests.nimbus.table_stores import Batch, Store, store_at, write
from tests.nimbus.worker_bench import eventually


class Writers:
    """The parent process."""

    def __init__(self, kind: str, address: str, folder: Path) -> None:
        command = [sys.executable, "-m", __name__, kind, address, str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._said: list[tuple[int, str]] = []

    def start(self, batch: Batch, linger_s: float = 0.0) -> int:
        """Start a writer, which lives for `linger_s` after its commit. Returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([batch, linger_s]) + "\n")
        while not (started := [one for one in self._said if one[1] == "started"]):
            self._hear()
        self._said.remove(started[0])
        return started[0][0]

    def wait(self, pid: int, *words: str) -> str:
        """Wait until a writer says one of the words."""
        while True:
            for one in self._said:
                if one[0] == pid and one[1].startswith(words):
                    self._said.remove(one)
                    return one[1]
            self._hear()

    def kill(self, pid: int) -> None:
        """End a writer at once."""
        os.kill(pid, signal.SIGKILL)
        await_gone(pid)

    def _hear(self) -> None:
        assert self._process.stdout is not None
        pid, _, said = self._process.stdout.readline().strip().partition(" ")
        self._said.append((int(pid), said))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@contextmanager
def writers_of(kind: str, address: str, folder: Path) -> Iterator[Writers]:
    """The parent of writers to a table."""
    found = Writers(kind, address, folder)
    try:
        yield found
    finally:
        found.close()


def await_gone(pid: int) -> None:
    """Wait until a process has ended and is collected."""
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the end of a writer")


def main() -> None:
    """The parent's program."""
    kind, address, folder = sys.argv[1:]
    store = store_at(kind, address)
    for library in (store.library, store.commit[0].removesuffix(".Table"), "pandas", "pyarrow.parquet"):
        importlib.import_module(library)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects the writers
    for line in sys.stdin:
        batch, linger_s = json.loads(line)
        if not (pid := os.fork()):
            _write(store, Batch(*batch), Path(folder), linger_s)
        _say(pid, "started")


def _write(store: Store, batch: Batch, folder: Path, linger_s: float) -> NoReturn:
    said = "written"
    try:
        write(store, batch, folder, lambda: _say(os.getpid(), "near"))
    except NewerWriteError:
        said = "refused"
    except Exception as exc:  # noqa: BLE001 - for the test
        said = f"failed {exc!r}"
    _say(os.getpid(), said)
    time.sleep(linger_s)
    os._exit(0)


def _say(pid: int, word: str) -> None:
    os.write(1, f"{pid} {word}".replace("\n", " ")[:1000].encode() + b"\n")


if __name__ == "__main__":
    main()
