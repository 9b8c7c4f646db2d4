"""Replaces secrets in a driver's output before it is written to the log."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

SHORTEST = 4
"""In bytes. Masking shorter values would hide half of the log."""
STARS = b"***"
_PIECE_BYTES = 64 << 10


class Mask:
    """Masks values in a stream of bytes, also values that arrive in several pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        """Each line of a value with several lines is masked, too: a shell may write single lines."""
        texts = {text.encode() for value in values for text in (value, *value.splitlines())}
        self._texts = sorted((text for text in texts if len(text) >= SHORTEST), key=len, reverse=True)
        self._held = b""
        """Bytes that may be the beginning of a value."""

    def feed(self, data: bytes) -> bytes:
        """Add data; return the masked bytes that are certain by now."""
        return self._mask(self._held + data, is_all=False)

    def rest(self) -> bytes:
        """Return the bytes that were held back, at the end of the stream."""
        return self._mask(self._held, is_all=True)

    def _mask(self, data: bytes, *, is_all: bool) -> bytes:
        masked, place, starts = bytearray(), 0, dict.fromkeys(self._texts, -1)
        cut = len(data) if is_all else self._cut(data, place)
        while (text := _first(data, starts, place)) is not None and starts[text] < cut:
            masked += data[place : starts[text]] + STARS
            place = starts[text] + len(text)
            if place > cut:
                cut = self._cut(data, place)
        masked += data[place:cut]
        self._held = data[cut:]
        return bytes(masked)

    def _cut(self, data: bytes, place: int) -> int:
        """The start of the longest suffix of the data that may be the beginning of a value."""
        cut = len(data)
        for text in self._texts:
            start = max(place, len(data) - len(text) + 1)
            while (start := data.find(text[:1], start, cut)) >= 0 and not text.startswith(data[start:]):
                start += 1
            cut = start if start >= 0 else cut
        return cut


def _first(data: bytes, starts: dict[bytes, int], place: int) -> bytes | None:
    """The first text at or after a place, and the longest if several begin there.

    `starts` has the longest text first, each with the place where it was last found. Texts that do not occur
    any more are removed.
    """
    for text, start in tuple(starts.items()):
        if start < place:
            starts[text] = data.find(text, place)
            if starts[text] < 0:
                del starts[text]
    return min(starts, key=starts.__getitem__, default=None)


class MaskedLog:
    """Thread `runner-mask`: copies a pipe into a log, masked, until all writers have closed the pipe."""

    def __init__(self, source: int, log: Path, values: Iterable[str]) -> None:
        """`source`: the read end of the pipe; the thread closes it."""
        self._source, self._log, self._mask = source, log, Mask(values)
        self._thread = threading.Thread(target=self._run, name="runner-mask", daemon=True)
        self._thread.start()

    def finish(self, deadline_s: float) -> None:
        """Wait until the rest is written, after all writers have ended."""
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
    """Write everything. On a full disk the rest is lost, because the driver must not wait for space."""
    try:
        while data:
            data = data[os.write(log, data) :]
    except OSError:
        return
