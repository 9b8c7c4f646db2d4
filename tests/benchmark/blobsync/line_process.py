"""A child process that gets requests and returns responses as lines of JSON."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[3]
_END_LIMIT_S = 20.0


class BenchFailedError(Exception):
    """A contender failed."""


class LineProcess:
    """See the module. It ends when its standard input ends, so it cannot outlive this process.

    Args:
        log: File for its standard error.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._name, self._log = name, log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                list(command),
                cwd=PROJECT,  # so that it can import `tests`
                env=None if environment is None else dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, wait for the answer. BenchFailedError if the process dies or reports a failure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise BenchFailedError(f"{self._name} died at {question}\n{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchFailedError(f"{self._name}: {answer['error']}\n{self._tail()}")
        return answer

    def close(self) -> None:
        """End it. Safe to repeat."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
