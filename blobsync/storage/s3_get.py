"""Reads objects over connections of our own, signed by us: the fast way for `read` and `copy`.

Answers that ask for more (a redirect, a proxy, an encoding) are left to the client of boto3, which knows how.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from blobsync.errors import BlobSyncError, LocalStoreError, StoreUnavailableError
from blobsync.storage.http import Connection
from blobsync.storage.http_head import Head, HttpError, StaleConnectionError
from blobsync.storage.http_pool import HttpPool
from blobsync.storage.ports import CHUNK_BYTES, GoingOn, go_on
from blobsync.storage.s3_config import S3Config
from blobsync.storage.s3_errors import answered, unreachable, without_credentials
from blobsync.storage.s3_range import NO_SUCH_RANGE, Given, Wanted, given
from blobsync.storage.s3_signer import Credentials, GetSigner, encoded
from blobsync.storage.splice import FileWriteError

_OK, _PARTIAL, _REDIRECTS = 200, 206, range(300, 400)
_ERROR_BYTES = 64 << 10
_CODE = re.compile(rb"<Code>([A-Za-z0-9._-]{1,100})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{0,1000})</Message>")
_FIRST_NAME = "list-type=2&max-keys=1"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 1.0

Result = TypeVar("Result")


class LeftToClientError(Exception):
    """This answer is beyond us; ask again through boto3."""


class Place(NamedTuple):
    """Where a getter sends its requests: the header Host, and what paths begin with."""

    host: str
    path: str


class S3Getter:
    """Gets objects. Thread-safe.

    Args:
        config: Where, and how patiently.
        pool: Connections to there.
        path: What paths begin with, up to the key: `/bucket/`, or `/` where the host names the bucket.
        host: For the header.
        credentials: Gives those of this moment; None: there are none. What it raises passes through.
    """

    def __init__(
        self,
        config: S3Config,
        pool: HttpPool,
        path: str,
        host: str,
        credentials: Callable[[], Credentials | None],
    ) -> None:
        self._config, self._pool, self._credentials = config, pool, credentials
        self.place = Place(host, path)
        self._path = path
        self._signer = GetSigner(host, config.region)

    def read(self, wanted: Wanted) -> Iterator[bytes]:
        """The bytes of a range, as they come. Beyond the end of the object: none.

        Raises:
            LeftToClientError: before the first byte.
            BlobSyncError: as of `ObjectStore.read`.
        """
        with self._asked(wanted, go_on) as (connection, found):
            left = found.size_bytes
            while left:
                piece = connection.take(min(left, CHUNK_BYTES), go_on)
                left -= len(piece)
                yield piece

    def copy(self, wanted: Wanted, fd: int, going_on: GoingOn) -> int:
        """Write a range into a file, as far as the object has it; say how many bytes.

        Raises:
            LeftToClientError: before the first byte.
            BlobSyncError: as of `ObjectStore.copy`.
        """
        with self._asked(wanted, going_on) as (connection, found):
            if wanted.size_bytes is not None and found.size_bytes < wanted.size_bytes:
                return found.size_bytes
            offset, end = wanted.start, wanted.start + found.size_bytes
            while offset < end:
                size = connection.fill(fd, offset, min(end - offset, CHUNK_BYTES), going_on)
                offset += size
                going_on(size)
            return found.size_bytes

    def check(self) -> None:
        """Ask for the first name in the bucket.

        Raises:
            LeftToClientError: it answers in a way that is beyond us.
            BlobSyncError: it is not there, does not let us, or does not answer.
        """
        self._trying(self._check_once)

    def request(self, wanted: Wanted) -> bytes:
        """The bytes of a signed request for it.

        Raises:
            BlobSyncError: there are no credentials.
        """
        return self._request(self._path + encoded(wanted.full), wanted.full, wanted.header)

    def connection(self) -> Connection:
        """One that is idle, or a new one; `give_back` it, or close it.

        Raises:
            HttpError: it cannot be opened.
        """
        return self._pool.idle() or self._pool.open()

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for later, if it is of use."""
        self._pool.give_back(connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    @contextmanager
    def _asked(self, wanted: Wanted, going_on: GoingOn) -> Iterator[tuple[Connection, Given]]:
        """A connection that stands at the first byte wanted. Given back, or closed, at the end."""
        connection, found = self._answer(wanted, going_on)
        try:
            skip = found.skip_bytes
            while skip:
                skip -= len(connection.take(skip, going_on))
            yield connection, found
        except HttpError as exc:
            connection.close()
            raise unreachable(exc, self._config, wanted.full) from exc
        except FileWriteError as exc:
            connection.close()
            raise LocalStoreError(f"{wanted.full} cannot be written to its file: {exc}") from exc
        except BaseException:
            connection.close()  # in the middle of a body
            raise
        self._pool.give_back(connection)

    def _answer(self, wanted: Wanted, going_on: GoingOn) -> tuple[Connection, Given]:
        return self._trying(lambda: self._answer_once(wanted, going_on))

    def _trying(self, ask: Callable[[], Result]) -> Result:
        """Ask, and again when that may help, as often as configured."""
        for attempt in range(1, self._config.max_attempts + 1):
            try:
                return ask()
            except BlobSyncError as exc:
                if not exc.retryable or attempt == self._config.max_attempts:
                    raise
            bound_s = min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S)
            time.sleep(bound_s * (0.5 + random.random() / 2))  # noqa: S311 - not for secrecy
        raise AssertionError("max_attempts is at least 1")

    def _check_once(self) -> None:
        request = self._request(self._path.rstrip("/") or "/", None, None, _FIRST_NAME)
        connection, whole = self._once(request, None, self._let_in, go_on)
        if whole:
            self._pool.give_back(connection)
        else:
            connection.close()

    def _let_in(self, connection: Connection, head: Head) -> bool:
        """Whether the answer, which is good, was taken to its end."""
        if head.status in _REDIRECTS:
            raise LeftToClientError
        if head.status != _OK:
            raise self._refusal(head, _told(connection, go_on), None)
        if head.size_bytes is None or head.size_bytes > _ERROR_BYTES:
            return False
        while connection.left:
            connection.take(connection.left, go_on)
        return True

    def _answer_once(self, wanted: Wanted, going_on: GoingOn) -> tuple[Connection, Given]:
        request = self._request(self._path + encoded(wanted.full), wanted.full, wanted.header)
        return self._once(
            request,
            wanted.full,
            lambda connection, head: self.understood(connection, head, wanted, going_on),
            going_on,
        )

    def _once(
        self,
        request: bytes,
        key: str | None,
        understand: Callable[[Connection, Head], Result],
        going_on: GoingOn,
    ) -> tuple[Connection, Result]:
        """Ask once. A connection whose answer is an error is given back, or closed."""
        connection: Connection | None = None
        try:
            connection, head = self._ask(request, going_on)
            return connection, understand(connection, head)
        except HttpError as exc:
            if connection is not None:
                connection.close()
            raise unreachable(exc, self._config, key) from exc
        except BlobSyncError:
            if connection is not None:
                self._pool.give_back(connection)
            raise
        except BaseException:
            if connection is not None:
                connection.close()
            raise

    def _ask(self, request: bytes, going_on: GoingOn) -> tuple[Connection, Head]:
        connection = self._pool.idle()
        if connection is not None:
            try:
                return connection, connection.ask(request, going_on)
            except StaleConnectionError:
                connection.close()
            except BaseException:
                connection.close()
                raise
        connection = self._pool.open()
        try:
            return connection, connection.ask(request, going_on)
        except BaseException:
            connection.close()
            raise

    def _request(self, path: str, key: str | None, ranged: str | None, query: str = "") -> bytes:
        who = self._credentials()
        if who is None:
            raise without_credentials("none were found", self._config, key)
        return self._signer.request(path, ranged, who, time.time(), query)

    def understood(self, connection: Connection, head: Head, wanted: Wanted, going_on: GoingOn) -> Given:
        """What the answer gives of what was asked; the connection stands at its body.

        Raises:
            HttpError: it broke off.
            LeftToClientError: ask through boto3.
            BlobSyncError: as of `ObjectStore.read`.
        """
        if head.status in {_OK, _PARTIAL}:
            if head.size_bytes is None:
                raise LeftToClientError
            found = given(head.headers.get("content-range"), head.size_bytes, wanted)
            if found is None or (head.status == _PARTIAL and "content-range" not in head.headers):
                raise StoreUnavailableError(
                    f"s3://{self._config.bucket}/{wanted.full}: {self._config.where} gave another range than "
                    f"it was asked for ({head.headers.get('content-range')!r}, not "
                    f"{wanted.header!r}); nothing of it was used"
                )
            return found
        if head.status in _REDIRECTS or "transfer-encoding" in head.headers:
            raise LeftToClientError
        told = _told(connection, going_on)
        if head.status == NO_SUCH_RANGE and wanted.header is not None:
            return Given(0, 0)
        raise self._refusal(head, told, wanted.full)

    def _refusal(self, head: Head, told: bytes, key: str | None) -> BlobSyncError:
        code, message = _CODE.search(told), _MESSAGE.search(told)
        return answered(
            head.status,
            code[1].decode() if code else "",
            message[1].decode(errors="replace") if message else "",
            self._config,
            key,
        )


def _told(connection: Connection, going_on: GoingOn) -> bytes:
    """What an error says of itself; no more than it takes to say that."""
    told = b""
    while connection.left and len(told) < _ERROR_BYTES:
        told += connection.take(_ERROR_BYTES, going_on)
    return told
