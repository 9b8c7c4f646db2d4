"""Workers that tests kill. They are forked from a process that has imported their module.

Forking spares each worker the start of an interpreter.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from nimbus.localstack.s3 import S3Server

ROOT = Path(__file__).parents[3]


class Forks:
    """A process that forks workers, one at a time.

    Args:
        module: Name of the module that calls `fork_workers` when it is run.
        arguments: Its arguments.
        folder: Folder for its errors.
        server: Workers have the keys of this server in their environment.
    """

    def __init__(self, module: str, *arguments: object, folder: Path, server: S3Server | None = None) -> None:
        self._errors = folder / f"errors-{secrets.token_hex(4)}"
        keys = {}
        if server is not None:
            keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                cwd=ROOT,
                env={**os.environ, **keys},
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=1,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def start(self, *words: object) -> int:
        """Fork a worker for these words. Returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        return self._said()

    def kill(self, pid: int) -> None:
        """Kill the worker, which must not have ended by itself."""
        os.kill(pid, signal.SIGKILL)
        assert self._said() == -signal.SIGKILL, f"a worker ended by itself: {self._told()}"

    def _said(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _told(self) -> str:
        return "\n".join(self._errors.read_text().splitlines()[-40:])


def fork_workers(work: Callable[[list[str]], None]) -> None:
    """Fork a worker for each line on stdin; print process ids and exit codes, until stdin ends.

    Args:
        work: Works on the words of the line until it is killed.
    """
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)  # stdout is the parent's connection to the test
                work(line.split())
            except BaseException:  # noqa: BLE001 - the test sees the exit code; it never ends by itself
                traceback.print_exc()
            finally:
                os._exit(3)
        _say(pid)
        _say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()
