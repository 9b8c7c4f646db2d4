"""Finds the lines of a release's code that an error names. Pure, but for what it reads from the release.

Names and numbers in a log are those of a task: they are looked up among the files of the release, not opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nimbus.api.routes.releases import MOST_TEXT_BYTES
from nimbus.api.services import Releases
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.errors import NimbusError
from nimbus.domain.wording import harmless
from nimbus.worker.attempt.verdict import last_error

_FRAME = re.compile(r'^[ |+]*File "([^"\n]{1,4096})", line (\d{1,7})(?:, in ([^\n]{1,200}))?$', re.M)
"""A frame of a traceback, of an exception group too; a syntax error has no function."""
_MOST_FRAMES = 100
_AROUND = 4
_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Lines of a file of a release."""

    path: str
    line: int
    """The line that failed."""
    function: str
    """Empty: it is not known."""
    lines: tuple[tuple[int, str], ...]
    """Numbers and texts of the lines around it."""


def failed_code(releases: Releases, release: ReleaseOf, log_tail: str) -> Code | None:
    """The innermost line of the release's code in the last error of a log.

    None: there is none, it is no text in UTF-8 of 256 KiB at most, or the release is not on this disk.
    """
    frames = list(_FRAME.finditer(last_error(log_tail)))[-_MOST_FRAMES:]
    try:
        if not frames or not releases.is_here(release):
            return None
        files = {file.path: file.size_bytes for file in releases.files(release) or ()}
        for frame in reversed(frames):
            # Errors of Spark's Python workers name files by their place on the worker's disk.
            path = frame[1].rpartition(f"/{release.digest}/")[2]
            if files.get(path, MOST_TEXT_BYTES + 1) <= MOST_TEXT_BYTES:
                data = releases.content(release, path)
                return None if data is None else _around(path, frame, data)
    except (NimbusError, UnicodeDecodeError):
        pass  # the page is about more than this
    return None


def _around(path: str, frame: re.Match[str], data: bytes) -> Code | None:
    line = int(frame[2])
    lines = re.split(r"\r\n|\r|\n", data.decode())  # as Python counts them
    if not 1 <= line <= len(lines):
        return None
    first = max(1, line - _AROUND)
    shown = (harmless(text[:_LONGEST_LINE].expandtabs(4)) for text in lines[first - 1 : line + _AROUND])
    return Code(path=path, line=line, function=frame[3] or "", lines=tuple(enumerate(shown, first)))
