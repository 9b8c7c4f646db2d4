"""Patterns of file names, as a shell understands them with `**`. Pure."""

from __future__ import annotations

import re

from blobsync.errors import BlobSyncConfigError


def compiled(pattern: str) -> re.Pattern[str]:
    """Turn a pattern into a regular expression for whole relative paths.

    `*` and `?` stay within a segment, `[abc]` is one of these, `**` is any number of folders. Names that
    begin with a dot are matched only by segments that do.

    Raises:
        BlobSyncConfigError: a pattern that is empty, absolute, or leaves the root.
    """
    segments = pattern.split("/")
    if pattern == "" or pattern.startswith("/") or ".." in segments or "" in segments:
        raise BlobSyncConfigError(
            f"pattern {pattern!r} must be relative, without '..', empty segments or a slash at its end"
        )
    parts: list[str] = []
    for position, segment in enumerate(segments):
        last = position == len(segments) - 1
        if segment == "**":
            parts.append(r"(?!\.)[^/]+(?:/(?!\.)[^/]+)*" if last else r"(?:(?!\.)[^/]+/)*")
        elif segment != ".":
            parts.append(_segment(segment) + ("" if last else "/"))
    return re.compile("".join(parts), re.DOTALL)


def wants_hidden(pattern: str) -> bool:
    """Whether the pattern names something that begins with a dot."""
    return any(segment.startswith(".") and segment != "." for segment in pattern.split("/"))


def _segment(segment: str) -> str:
    out = [] if segment.startswith(".") else [r"(?!\.)"]
    at = 0
    while at < len(segment):
        char = segment[at]
        end = segment.find("]", at + 2) if char == "[" else -1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif end != -1:
            inside = segment[at + 1 : end]
            negated = inside.startswith("!")
            body = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if negated else inside)
            out.append(f"[{'^/' if negated else ''}{body}]")
            at = end
        else:
            out.append(re.escape(char))
        at += 1
    return "".join(out)
