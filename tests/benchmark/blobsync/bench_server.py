"""The one real S3 server of a run, with the files to fetch."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nimbus.localstack.s3 import S3Server
from tests.benchmark.blobsync.line_process import BenchFailedError

PLAIN, RELEASES = "plain", "releases"
"""Buckets: plain files for the other tools, and our releases."""


@dataclass(frozen=True)
class BenchServer:
    """A running server.

    Args:
        server: `rclone serve s3` with the flags of `nimbus.localstack.s3`, which help all contenders.
        folder: New, on the disk that is measured; removed at the end.
    """

    server: S3Server
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment of every contender: endpoint and keys, without the user's own settings."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(self.folder),
            "AWS_ACCESS_KEY_ID": self.server.access_key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.server.endpoint_url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "S3_ENDPOINT_URL": self.server.endpoint_url,
            "BENCH_ENDPOINT": self.server.endpoint_url,
            "BLOBSYNC_ENDPOINT": self.server.endpoint_url,
            "BLOBSYNC_BUCKET": RELEASES,
            "RCLONE_CONFIG": "/dev/null",
            "RCLONE_CONFIG_S3_TYPE": "s3",
            "RCLONE_CONFIG_S3_PROVIDER": "Other",
            "RCLONE_CONFIG_S3_ENDPOINT": self.server.endpoint_url,
            "RCLONE_CONFIG_S3_ACCESS_KEY_ID": self.server.access_key,
            "RCLONE_CONFIG_S3_SECRET_ACCESS_KEY": self.server.secret_key,
            "RCLONE_CONFIG_S3_REGION": "us-east-1",
            "RCLONE_CONFIG_S3_FORCE_PATH_STYLE": "true",
        }

    def upload(self, source: Path, place: str) -> float:
        """Upload a folder, or one file, to `bucket/key`, and fill the server's cache for it.

        The first listing of a prefix makes the server hash its files. That must not count for any contender.

        Returns:
            How long the upload took, in seconds, without the listing.
        """
        began_s = time.monotonic()
        word = "copyto" if source.is_file() else "copy"
        self._rclone(word, str(source), f"s3:{place}", "--transfers=16", "--s3-no-check-bucket")
        took_s = time.monotonic() - began_s
        self._rclone("lsf", "-R", "--format=ps", f"s3:{place.split('/', 1)[0]}")
        return took_s

    def _rclone(self, *words: str) -> None:
        command = [str(Path(sys.executable).parent / "rclone"), *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchFailedError(f"{' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def bench_server(place: Path) -> Iterator[BenchServer]:
    """Start a server with its data in a new folder below `place`, and remove them afterwards."""
    place.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-blobsync-", dir=place.absolute()))
    server = S3Server(folder / "server")
    try:
        server.start()
        for bucket in (PLAIN, RELEASES):
            server.create_bucket(bucket)
        yield BenchServer(server, folder)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
