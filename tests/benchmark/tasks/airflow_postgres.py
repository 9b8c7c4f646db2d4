"""Starts Postgres for Airflow's state: Debian's package with its defaults. Standard library only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"
_START_S, _STOP_S = 30.0, 5.0


def postgres_bin() -> Path | None:
    """The folder of the newest installed server; None if there is none."""
    found = sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda server: int(server.parts[-3]))
    return found[-1].parent if found else None


class Postgres:
    """A server on loopback without authentication."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self._server: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql+psycopg2://{_USER}@127.0.0.1:{port}/{_USER}"

    def start(self) -> None:
        """Create its data, and start it.

        Raises:
            RuntimeError: it is not installed, or does not start.
        """
        programs = postgres_bin()
        if programs is None:
            raise RuntimeError("Postgres is not installed: apt-get install postgresql")
        self._folder.mkdir()
        user = None
        if os.geteuid() == 0:
            user = _USER
            shutil.chown(self._folder, user)
        make: list[Path | str] = [programs / "initdb", "-D", self._folder, "-U", _USER, "-A", "trust"]
        subprocess.run(make, user=user, cwd="/", stdout=2, check=True)
        listen = ["-h", "127.0.0.1", "-p", str(self._port), "-k", ""]
        self._server = subprocess.Popen(
            [programs / "postgres", "-D", self._folder, *listen], user=user, cwd="/", stdout=2
        )
        deadline = time.monotonic() + _START_S
        while subprocess.run([programs / "pg_isready", "-q", *listen[:4]], check=False).returncode != 0:
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("Postgres does not start")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it if it runs, with Postgres's fast shutdown."""
        if self._server is None:
            return
        self._server.send_signal(signal.SIGINT)
        try:
            self._server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
