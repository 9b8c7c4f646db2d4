"""Many small objects over a few kept-open connections, each with a request under way. One thread.

While one answer is read, the server works on the others. So neither the way to the server nor a thread for
each request is waited for; a Python thread that is woken for each answer would cost more than the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from blobsync.errors import BlobSyncError, StoreUnavailableError
from blobsync.storage.http import Connection
from blobsync.storage.http_head import HttpError
from blobsync.storage.many import Whole, other_size, read_whole
from blobsync.storage.ports import GoingOn
from blobsync.storage.s3_get import LeftToClientError, S3Getter
from blobsync.storage.s3_range import Wanted

UNDER_WAY = 16
"""Requests under way at a time, each over a connection of its own."""


class _Asked(NamedTuple):
    """A request under way; without a connection it could not be sent."""

    item: Whole
    connection: Connection | None


class S3ManyReader:
    """Reads one series of objects.

    Args:
        getter: Has connections, and signs.
        prefix: Of all keys.
        read: Reads an object in the patient way, for those that a request did not get.
        going_on: See `GoingOn`.
    """

    def __init__(
        self,
        getter: S3Getter,
        prefix: str,
        read: Callable[[str], Iterable[bytes]],
        going_on: GoingOn,
    ) -> None:
        self._getter, self._prefix, self._read, self._going_on = getter, prefix, read, going_on
        self._idle: list[Connection] = []
        self._asked: deque[_Asked] = deque()

    def read(self, wanted: Sequence[Whole]) -> Iterator[bytes | BlobSyncError]:
        """See `blobsync.storage.many.read_many`."""
        left = iter(wanted)
        try:
            for item in left:
                self._asked.append(self._ask(item))
                if len(self._asked) == UNDER_WAY:
                    break
            while self._asked:
                asked = self._asked.popleft()
                found = self._take(asked)
                following = next(left, None)
                if following is not None:  # before what came is used: the server has work meanwhile
                    self._asked.append(self._ask(following))
                yield found
        finally:
            self._end()

    def _ask(self, item: Whole) -> _Asked:
        connection: Connection | None = None
        try:
            request = self._getter.request(self._wanted(item))
            connection = self._idle.pop() if self._idle else self._getter.connection()
            connection.send(request)
        except (HttpError, BlobSyncError):  # it is asked for again, patiently, when its turn comes
            if connection is not None:
                connection.close()
            return _Asked(item, None)
        return _Asked(item, connection)

    def _take(self, asked: _Asked) -> bytes | BlobSyncError:
        item, connection = asked
        try:
            if connection is not None:
                try:
                    return self._answer(item, connection)
                except (HttpError, LeftToClientError, StoreUnavailableError):
                    pass
            return read_whole(self._read(item.key), item, self._going_on)
        except BlobSyncError as exc:
            return exc

    def _answer(self, item: Whole, connection: Connection) -> bytes:
        try:
            head = connection.answer(self._going_on)
            given = self._getter.understood(connection, head, self._wanted(item), self._going_on)
            if given.size_bytes != item.size_bytes:
                raise other_size(item, str(given.size_bytes))
            pieces = []
            while connection.left:
                pieces.append(connection.take(connection.left, self._going_on))
        finally:
            if connection.reusable:
                self._idle.append(connection)
            else:
                connection.close()
        self._going_on(item.size_bytes)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _wanted(self, item: Whole) -> Wanted:
        return Wanted(self._prefix + item.key, 0, None)

    def _end(self) -> None:
        for asked in self._asked:
            if asked.connection is not None:
                asked.connection.close()  # in the middle of an answer
        for connection in self._idle:
            self._getter.give_back(connection)
