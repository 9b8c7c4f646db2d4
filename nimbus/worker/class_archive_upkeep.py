"""Creates the class-data archive while a worker is idle, after its first Spark task. Worker thread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from nimbus.worker.class_archive import FOLDER, NoSparkError, archive_key, check_folder, find_archive
from nimbus.worker.files import read_if_there
from nimbus.worker.loop import Loop

_MAKER = (sys.executable, "-I", "-m", "nimbus.worker.class_archive_maker")
_END_S = 5.0

_log = structlog.get_logger(__name__)


class ClassArchiveUpkeep:
    """The archive of one worker; at most one process creates it."""

    def __init__(self, home: Path, loop: Loop, *, enabled: bool, maker: tuple[str, ...] = _MAKER) -> None:
        self._home, self._loop, self._maker = home, loop, maker
        self._wanted_for: Mapping[str, str] | None = None
        self._tried: set[str] = set()
        self.enabled = enabled
        self.process: subprocess.Popen[bytes] | None = None
        """The process that creates the archive, while it runs."""
        self.state = "none yet: made after the first Spark task" if enabled else "off"
        """The state as text, for `nimbus doctor` and the worker's registration."""

    def want(self, environment: Mapping[str, str]) -> None:
        """Request an archive for drivers with this environment."""
        if not self.enabled or self.process is not None:
            return
        if find_archive(self._home, environment) is not None:
            self.state = "ready"
        elif self._wanted_for is None:
            self._wanted_for = dict(environment)

    def make_if(self, *, idle: bool) -> None:
        """Start creating a requested archive, if no attempt runs."""
        environment = self._wanted_for
        if environment is None or self.process is not None:
            return
        try:
            key = archive_key(environment)
        except NoSparkError as exc:
            self._wanted_for, self.state = None, f"could not be made: {exc}"
            return
        if key in self._tried:
            self._wanted_for = None
        elif idle:
            self._wanted_for = None
            self._tried.add(key)
            try:
                self._make(key, environment)
            except OSError as exc:
                self.state = f"could not be made: {exc}"
        else:
            self.state = "none yet: made when no attempt runs"

    def _make(self, key: str, environment: Mapping[str, str]) -> None:
        self.process = _start(self._maker, self._home, key, environment)
        self.state = "being made"
        _log.info("class_archive_begun", pid=self.process.pid)
        self._loop.when_ended(os.pidfd_open(self.process.pid), partial(self._ended, environment))

    def _ended(self, environment: Mapping[str, str]) -> None:
        self.close()
        if find_archive(self._home, environment) is not None:
            self.state = "ready"
            _log.info("class_archive_made")
            return
        lines = (read_if_there(self._home / FOLDER / "maker.log") or b"").decode(errors="replace").split("\n")
        self.state = (
            f"could not be made: {next((line for line in reversed(lines) if line), 'no reason given')}"
        )
        _log.warning("class_archive_not_made", why=self.state)

    def close(self) -> None:
        """End the process that creates the archive, if it runs."""
        process, self.process = self.process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)


def make_archive(home: Path, environment: Mapping[str, str], patience_s: float) -> bool:
    """Create the archive for drivers with this environment now; return True if it exists.

    Args:
        home: The workers' `class_archive_dir`.
        environment: The drivers' environment.
        patience_s: Time limit.

    Raises:
        NoSparkError: there is no Java, or no Spark.
        OSError: the folder cannot be written, or the program not be started.
    """
    process = _start(_MAKER, home, archive_key(environment), environment)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    finally:
        assert process.stdin is not None  # noqa: S101 - see `_start`
        process.stdin.close()  # the program ends when its input closes
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    return find_archive(home, environment) is not None


def _start(
    maker: tuple[str, ...], home: Path, key: str, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    folder = home / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_folder(folder)
    with (folder / "maker.log").open("ab") as log:  # another worker's maker may write to it
        return subprocess.Popen(
            [*maker, str(folder), key],
            stdin=subprocess.PIPE,  # closes when we end
            stdout=log,
            stderr=log,
            cwd="/",
            env=dict(environment),
            start_new_session=True,
        )
