"""Replaces secrets in what a driver writes, before it is in the log."""

from __future__ import annotations

import os
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
        self._held = b""
        """What may be the beginning of a value."""

    def feed(self, data: bytes) -> bytes:
        """What can be told now."""
        return self._told(self._held + data, is_all=False)

    def rest(self) -> bytes:
        """What was held back: nothing follows."""
        return self._told(self._held, is_all=True)

    def _told(self, data: bytes, *, is_all: bool) -> bytes:
        told, place, starts = bytearray(), 0, dict.fromkeys(self._texts, -1)
        cut = len(data) if is_all else self._cut(data, place)
        while (found := _first(data, starts, place)) is not None and starts[found] < cut:
            told += data[place : starts[found]] + STARS
            place = starts[found] + len(found)
            if place > cut:
                cut = self._cut(data, place)
        told += data[place:cut]
        self._held = data[cut:]
        return bytes(told)

    def _cut(self, data: bytes, place: int) -> int:
        """Where the longest end of the data begins that a value can begin with."""
        cut = len(data)
        for text in self._texts:
            start = max(place, len(data) - len(text) + 1)
            while (start := data.find(text[:1], start, cut)) >= 0 and not text.startswith(data[start:]):
                start += 1
            cut = start if start >= 0 else cut
        return cut


def _first(data: bytes, starts: dict[bytes, int], place: int) -> bytes | None:
    """The text that comes first from a place on, the longest of those that begin there.

    `starts`: the longest text first, each with where it was found last. What comes no more is removed.
    """
    for text, start in tuple(starts.items()):
        if start < place:
            starts[text] = data.find(text, place)
            if starts[text] < 0:
                del starts[text]
    return min(starts, key=starts.__getitem__, default=None)


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
