"""Replaces secrets in what a driver writes, before it is in the log."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path

SHORTEST = 4
"""Bytes. What is shorter would hide half of the log, and hardly be a secret."""
STARS = b"***"
_PIECE_BYTES = 64 << 10


class Mask:
    """A stream of bytes without some values, also where one comes in several pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        """Of a value of several lines each line is masked, too: JSON, or a shell, may write it so."""
        texts = {text.encode() for value in values for text in (value, *value.splitlines())}
        self._texts = sorted((text for text in texts if len(text) >= SHORTEST), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._texts)) or rb"(?!)")
        self._held = b""
        """What may be the beginning of a value."""

    def feed(self, data: bytes) -> bytes:
        """What can be told now."""
        data, told, place = self._held + data, bytearray(), 0
        cut = self._cut(data, place)
        while (found := self._pattern.search(data, place)) is not None and found.start() < cut:
            told += data[place : found.start()] + STARS
            place = found.end()
            cut = self._cut(data, place)
        told += data[place:cut]
        self._held = data[cut:]
        return bytes(told)

    def rest(self) -> bytes:
        """What was held back: nothing follows."""
        held, self._held = self._held, b""
        return self._pattern.sub(STARS, held)

    def _cut(self, data: bytes, place: int) -> int:
        """Where the longest end of the data begins that a value can begin with."""
        longest = len(self._texts[0]) - 1 if self._texts else 0
        for start in range(max(place, len(data) - longest), len(data)):
            end = data[start:]
            if any(len(text) > len(end) and text.startswith(end) for text in self._texts):
                return start
        return len(data)


class MaskedLog:
    """Thread `runner-mask`: writes what comes from a pipe into a log, masked, until all writers are gone."""

    def __init__(self, source: int, log: Path, values: Iterable[str]) -> None:
        """`source`: the end of the pipe to read from; it becomes the thread's."""
        self._source, self._log, self._mask = source, log, Mask(values)
        self._thread = threading.Thread(target=self._run, name="runner-mask", daemon=True)
        self._thread.start()

    def finish(self, deadline_s: float) -> None:
        """Wait until all is written that was, after all that writes has been ended."""
        self._thread.join(deadline_s)

    def _run(self) -> None:
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            while piece := os.read(self._source, _PIECE_BYTES):
                _write(log, self._mask.feed(piece))
            _write(log, self._mask.rest())
        finally:
            os.close(log)
            os.close(self._source)


def _write(log: int, data: bytes) -> None:
    """Write all of it. What a full disk does not take is lost: the driver must not wait for room."""
    try:
        while data:
            data = data[os.write(log, data) :]
    except OSError:
        return
