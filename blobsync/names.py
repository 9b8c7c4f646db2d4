"""The rules that names and digests obey, so that no name leaves its place on any file system. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

MAX_PATH_BYTES = 1024
MAX_SEGMENT_BYTES = 255
MAX_KEY_BYTES = 900  # S3 allows 1024; the rest is for a prefix

_DIGEST = re.compile(r"[0-9a-f]{64}")
_RELEASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_digest(text: str) -> bool:
    """Whether `text` is a SHA-256 digest: 64 lower-case hexadecimal characters."""
    return _DIGEST.fullmatch(text) is not None


def is_release_name(text: str) -> bool:
    """Whether `text` may name releases: one segment of ASCII letters, digits, dots, dashes, underscores."""
    return _RELEASE_NAME.fullmatch(text) is not None


def path_fault(path: str) -> str | None:
    """Say why `path` may not name a file of a release; None: it may.

    Such a path is relative, written with `/`, in Unicode form NFC, and means one and the same file on
    every file system.
    """
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if not path:
        return "is empty"
    if len(encoded) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if "\\" in path:
        return "has a backslash"
    if any(unicodedata.category(char) == "Cc" for char in path):
        return "has a control character"
    if not unicodedata.is_normalized("NFC", path):
        return "is not in Unicode form NFC"
    if path.startswith("/"):
        return "is absolute"
    return _segments_fault(path.split("/"))


def _segments_fault(segments: Iterable[str]) -> str | None:
    for segment in segments:
        if segment == "":
            return "has an empty segment"
        if segment in {".", ".."}:
            return f"has the segment {segment!r}"
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"has a segment longer than {MAX_SEGMENT_BYTES} bytes"
    return None


def collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Find two paths that cannot stand side by side everywhere; None: all can.

    Two names that differ only in case or normalisation are one file on some file systems; so are folders. And
    no name is a file and a folder at once.

    Args:
        paths: Without faults in the sense of `path_fault`.
    """
    seen: dict[str, str] = {}  # folded -> as written, with a "/" at the end for folders
    for path in paths:
        segments = path.split("/")
        for depth in range(1, len(segments) + 1):
            is_folder = depth < len(segments)
            written = "/".join(segments[:depth]) + ("/" if is_folder else "")
            folded = _folded(written.rstrip("/"))
            if folded not in seen:
                seen[folded] = written
            elif not is_folder or seen[folded] != written:  # a folder may be met again, a file may not
                return seen[folded].rstrip("/"), path
    return None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def key_fault(key: str) -> str | None:
    """Say why `key` may not name an object; None: it may.

    Stricter than S3: keys with `..`, `//` or a leading slash are refused by some servers, and some write
    them outside of their folder.
    """
    if len(key.encode(errors="replace")) > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    return path_fault(key)
