"""Rules for names, paths and digests. A valid path stays in its folder on every file system. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

MAX_PATH_BYTES = 1024
MAX_SEGMENT_BYTES = 255
MAX_SEGMENTS = 64
MAX_KEY_BYTES = 900  # S3 allows 1024; the rest is for a prefix

_DIGEST = re.compile(r"[0-9a-f]{64}")
_RELEASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHORT = 2 * MAX_SEGMENTS  # characters; a path of this length cannot exceed the limits for segments
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SEPARATOR = "\0"  # sorts before every character that a path may have
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)
"""Default-ignorable characters of Unicode. File systems that fold case ignore them in comparisons."""


def is_digest(text: str) -> bool:
    """True if `text` is a digest of 256 bits: 64 lower-case hexadecimal characters."""
    return _DIGEST.fullmatch(text) is not None


def are_digests(texts: Sequence[str]) -> bool:
    """True if each text is a digest. Takes a tenth of the time of `is_digest` for each."""
    joined = "".join(texts).encode(errors="replace")
    return set(map(len, texts)) <= {64} and not joined.translate(None, b"0123456789abcdef")


def is_release_name(text: str) -> bool:
    """True if `text` can name releases: ASCII letters, digits, dots, dashes, underscores; at most 128."""
    return _RELEASE_NAME.fullmatch(text) is not None


def path_fault(path: str) -> str | None:
    """Return why a file of a release must not have this path; None: the path is valid.

    A valid path is relative, is written with `/` and in Unicode form NFC, and names the same file on every
    file system.
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
    if _CONTROL.search(path) is not None:
        return "has a control character"
    if not unicodedata.is_normalized("NFC", path):
        return "is not in Unicode form NFC"
    if path.startswith("/"):
        return "is absolute"
    return _segments_fault(path.split("/"))


def _segments_fault(segments: Sequence[str]) -> str | None:
    if len(segments) > MAX_SEGMENTS:
        return f"has more than {MAX_SEGMENTS} segments"
    for segment in segments:
        if segment == "":
            return "has an empty segment"
        if segment in {".", ".."}:
            return f"has the segment {segment!r}"
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"has a segment longer than {MAX_SEGMENT_BYTES} bytes"
    return None


def first_path_fault(paths: Sequence[str]) -> tuple[str, str] | None:
    """Find a path that `path_fault` refuses, and why; None: all are valid. Fast for many paths."""
    common = [path for path in paths if _is_common(path)]
    suspects = [path for path in paths if not _is_common(path)] if _are_plain(common) else paths
    faults = ((path, path_fault(path)) for path in suspects)
    return next(((path, fault) for path, fault in faults if fault is not None), None)


def _is_common(path: str) -> bool:
    return len(path) <= _SHORT and path.isascii()


def _are_plain(paths: Sequence[str]) -> bool:
    """True if all of these common paths are valid; False: check each. Checks all in one text."""
    text = f"/{'/'.join(paths)}/"
    return text.isprintable() and not any(part in text for part in ("\\", "//", "/./", "/../"))


def collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Find two paths that some file system cannot hold at the same time; None: there are none.

    Two names of files or folders that differ only in case, normalisation or invisible characters are the same
    name on some file systems. And a name cannot be a file and a folder. Stores no folders, since hostile
    paths may have very many. The paths must be valid according to `path_fault`.
    """
    # Sorted like this, the paths of one folder follow each other, and the paths in a folder follow a file of
    # the same name. So if any two paths collide, two neighbours collide.
    before_folded, before, folder_before = "", "", ""
    for folded, path in sorted((_folded(path), path) for path in paths):
        folder = path.rpartition("/")[0]
        if before and (
            folded == before_folded
            or (folder != folder_before and _collide(before_folded, before, folded, path))
        ):
            return before, path
        before_folded, before, folder_before = folded, path, folder
    return None


def _collide(one_folded: str, name: str, other_folded: str, other: str) -> bool:
    """True if one path is a folder of the other, or both have a folder that is written in two ways."""
    folded = zip(one_folded.split(_SEPARATOR), other_folded.split(_SEPARATOR))
    for depth, (one_segment, other_segment) in enumerate(folded):
        if one_segment != other_segment:
            return name.split("/", depth)[:depth] != other.split("/", depth)[:depth]
    return True


def _folded(path: str) -> str:
    """A sort key, equal for paths that are the same on some file system. It sorts folder by folder."""
    if path.isascii():
        return path.lower().replace("/", _SEPARATOR)
    seen = _INVISIBLE.sub("", unicodedata.normalize("NFD", path))
    folded = unicodedata.normalize("NFD", seen.casefold())
    return folded.replace("/", _SEPARATOR)


def key_fault(key: str) -> str | None:
    """Return why an object must not have this key; None: the key is valid.

    Stricter than S3: some servers refuse keys with `..`, `//` or a leading slash, and some servers write
    such objects outside their folder.
    """
    if len(key.encode(errors="replace")) > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    return path_fault(key)
