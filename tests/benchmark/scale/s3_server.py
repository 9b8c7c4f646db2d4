"""An S3 server over one SQLite table, which lists a page of a million keys in milliseconds, as S3 does.

`rclone serve s3` and moto read a whole folder, or all keys, for each page of a list: with 365,000 objects
below one prefix, rclone does not answer within 15 s.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any, cast
from urllib.parse import parse_qs, quote, unquote, urlsplit
from urllib.request import urlopen

from blobsync import ObjectStore, S3Config, S3ObjectStore, Secret

BUCKET, _COUNT = "bench", "/-/requests"


class Objects:
    """The objects, in a file. `write` is that of a store, so that history's own writer can fill it."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._lock = Lock()
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID")

    def write(self, key: str, data: bytes) -> None:
        """Add or replace an object."""
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO objects VALUES (?, ?)", (key, data))

    def read(self, key: str) -> bytes | None:
        """An object's bytes."""
        with self._lock:
            found = self._db.execute("SELECT data FROM objects WHERE key = ?", (key,)).fetchone()
        return None if found is None else bytes(found[0])

    def listed(self, prefix: str, after: str, limit: int) -> list[tuple[str, int]]:
        """Keys and sizes, in byte order."""
        begin, compared = (after, ">") if after >= prefix else (prefix, ">=")
        query = f"SELECT key, length(data) FROM objects WHERE key {compared} ? AND key < ? LIMIT ?"
        with self._lock:
            return self._db.execute(query, (begin, prefix + "\U0010ffff", limit)).fetchall()

    @contextmanager
    def one_transaction(self) -> Iterator[ObjectStore]:
        """Everything that is written within it is one transaction of the file."""
        self._db.execute("BEGIN")
        yield cast("ObjectStore", self)
        self._db.execute("COMMIT")


class Server:
    """Serves objects on loopback, from a process of its own. Signatures are not checked.

    Args:
        file: That of `Objects`.
        latency_s: Every answer waits that long, as over a network to S3.
    """

    def __init__(self, file: Path, latency_s: float) -> None:
        ours, theirs = Pipe()
        self._process = get_context("spawn").Process(
            target=_serve, args=(file, latency_s, theirs), daemon=True
        )
        self._process.start()
        self._port: int = ours.recv()
        config = S3Config(
            endpoint_url=f"http://127.0.0.1:{self._port}",
            bucket=BUCKET,
            access_key_id="bench-key",
            secret_access_key=Secret("bench-secret"),
        )
        self.store = S3ObjectStore(config)

    @property
    def requests(self) -> int:
        """How many requests were answered."""
        with urlopen(f"http://127.0.0.1:{self._port}{_COUNT}") as answer:
            return int(answer.read())

    def stop(self) -> None:
        """End it."""
        self.store.close()
        self._process.kill()
        self._process.join()


def _serve(file: Path, latency_s: float, ready: Connection) -> None:
    of = {"objects": Objects(file), "latency_s": latency_s, "counted": count()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), of))
    ready.send(server.server_port)
    server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    objects: Objects
    latency_s: float
    counted: count[int]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Be silent."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if self.path == _COUNT:
            self.wfile.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{next(self.counted)}".encode())
            self.close_connection = True
        elif not key:
            self._answer(200, self._list({name: values[0] for name, values in parse_qs(url.query).items()}))
        elif (data := self.objects.read(key)) is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")
        else:
            self._answer(200, data)

    def do_PUT(self) -> None:
        key = unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")
        self.objects.write(key, self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(200, b"")

    def _list(self, asked: dict[str, str]) -> bytes:
        prefix, limit = asked.get("prefix", ""), min(1000, int(asked.get("max-keys", "1000")))
        after = asked.get("continuation-token") or asked.get("start-after", "")
        found = self.objects.listed(prefix, after, limit + 1)
        rows = "".join(
            f"<Contents><Key>{quote(key)}</Key><LastModified>2026-03-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;e&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for key, size in found[:limit]
        )
        is_cut = len(found) > limit
        more = f"<NextContinuationToken>{found[limit - 1][0]}</NextContinuationToken>" if is_cut else ""
        return (
            f'<?xml version="1.0"?><ListBucketResult><Name>{BUCKET}</Name><EncodingType>url</EncodingType>'
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{more}{rows}</ListBucketResult>"
        ).encode()

    def _answer(self, status: int, body: bytes) -> None:
        next(self.counted)
        time.sleep(self.latency_s)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Sun, 01 Mar 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)
