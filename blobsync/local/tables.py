"""Tables of packs that are here, read when they are asked for, kept within a bound. Thread-safe."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from blobsync.local.disk import FileIdentity, identity, opened
from blobsync.local.verification import read_table
from blobsync.release.pack import PackTable

_MAX_MEMBERS = 1 << 16
"""In memory, of all tables together but the last: each member takes some 200 bytes."""


class PackTables:
    """Parsed tables by the identity of their pack."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, FileIdentity], PackTable] = OrderedDict()
        self._members = 0

    def of(self, path: Path) -> PackTable:
        """The tables of a pack that was verified.

        Raises:
            OSError: it is not there any more, or cannot be read.
            InvalidPackError: it changed just now.
        """
        with opened(path) as fd:
            return self.of_open(path.name, fd)

    def of_open(self, name: str, fd: int) -> PackTable:
        """Likewise, of an open file."""
        found = identity(os.fstat(fd))
        with self._lock:
            table = self._tables.get((name, found))
            if table is not None:
                self._tables.move_to_end((name, found))
                return table
        table = read_table(fd, found.size_bytes)
        with self._lock:
            if (name, found) not in self._tables:
                self._tables[name, found] = table
                self._members += len(table.sizes)
            while self._members > _MAX_MEMBERS and len(self._tables) > 1:
                self._members -= len(self._tables.popitem(last=False)[1].sizes)
        return table
