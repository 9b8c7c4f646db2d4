"""A real PostgreSQL server for tests: Debian's package `postgresql`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nimbus.localstack.ports import free_port
from tests.nimbus.worker_bench import eventually

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/absent"))
PASSWORD = "hush-hush"

HAS_POSTGRES = (PROGRAMS / "initdb").exists()
needs_postgres = pytest.mark.skipif(not HAS_POSTGRES, reason="there is no PostgreSQL")


@dataclass(frozen=True)
class Database:
    port: int

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def address(self) -> str:
        """The address for `psycopg.connect`."""
        return f"postgresql://etl:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def ask(self, query: str) -> str:
        """The answer, a line for each row; empty while the server does not answer."""
        done = subprocess.run(
            [
                *(PROGRAMS / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "etl"),
                *("-At", "-c", query, "postgres"),
            ],
            env={"PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout.strip()


@contextmanager
def running_postgres() -> Iterator[Database]:
    """A server on loopback, whose user needs a password. PostgreSQL refuses to run as root."""
    user: Any = "postgres" if os.geteuid() == 0 else None
    place = Path(tempfile.mkdtemp(prefix="nimbus-pg-"))
    (place / "password").write_text(PASSWORD)
    if user is not None:
        for path in (place, place / "password"):
            shutil.chown(path, user)
    made = ["-D", f"{place}/data", "-U", "etl", "-A", "scram-sha-256", f"--pwfile={place}/password", "-N"]
    subprocess.run([PROGRAMS / "initdb", *made], user=user, cwd=place, check=True, capture_output=True)
    found = Database(free_port())
    options = ["-p", str(found.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
    options += ["-c", "autovacuum=off"]  # its processes would come and go
    server = subprocess.Popen(
        [PROGRAMS / "postgres", "-D", place / "data", *options],
        user=user,
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: found.ask("SELECT 1") == "1", "the database")
        yield found
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(place)
