"""The rules that names and digests obey, so that no name leaves its place on any file system. Pure."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

MAX_PATH_BYTES = 1024
MAX_SEGMENT_BYTES = 255
MAX_SEGMENTS = 64
MAX_KEY_BYTES = 900  # S3 allows 1024; the rest is for a prefix

_DIGEST = re.compile(r"[0-9a-f]{64}")
_RELEASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHORT = 2 * MAX_SEGMENTS  # characters; no path so short has too many segments, or too long ones
_FOLDERS = 20_000
"""So many are kept in memory, at most."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SEPARATOR = "\0"  # sorts before whatever a path may have
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)
"""What Unicode calls default-ignorable: file systems that fold case leave it out when they compare."""


def is_digest(text: str) -> bool:
    """Whether `text` is a digest of 256 bits: 64 lower-case hexadecimal characters."""
    return _DIGEST.fullmatch(text) is not None


def are_digests(texts: Sequence[str]) -> bool:
    """Whether `is_digest` is true of each, in a tenth of the time."""
    joined = "".join(texts).encode(errors="replace")
    return set(map(len, texts)) <= {64} and not joined.translate(None, b"0123456789abcdef")


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
    """Find a path that `path_fault` refuses, and why; None: all are fine. Made for many."""
    common = [path for path in paths if _is_common(path)]
    suspects = [path for path in paths if not _is_common(path)] if _are_plain(common) else paths
    faults = ((path, path_fault(path)) for path in suspects)
    return next(((path, fault) for path, fault in faults if fault is not None), None)


def _is_common(path: str) -> bool:
    return len(path) <= _SHORT and path.isascii()


def _are_plain(paths: Sequence[str]) -> bool:
    """Whether common paths are without fault, all looked at in one go; False: one may have a fault."""
    text = f"/{'/'.join(paths)}/"
    return text.isprintable() and not any(part in text for part in ("\\", "//", "/./", "/../"))


def collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Find two paths that cannot stand side by side everywhere; None: all can.

    Two names that differ only in case, normalisation or invisible characters are one file on some file
    systems; so are folders. And no name is a file and a folder at once. Takes no memory for folders, of
    which hostile paths may have many.

    Args:
        paths: Without faults in the sense of `path_fault`.
    """
    # In this order, all that lies in one folder stands together, and a folder behind a file of its name. So
    # of two names that collide, some neighbours do.
    before_folded, before, folder_before = "", "", ""
    for folded, path in _by_folded(paths):
        folder = path.rpartition("/")[0]
        if before and (
            folded == before_folded
            or (folder != folder_before and _collide(before_folded, before, folded, path))
        ):
            return before, path
        before_folded, before, folder_before = folded, path, folder
    return None


class PathSurvey:
    """Whether many paths are fine and can stand side by side, looked at some at a time and with little room.

    It may doubt what `first_path_fault` and `collision` find fine, never the other way round.
    """

    def __init__(self) -> None:
        self._files = array("q")
        self._folders = {"": ""}
        self._folder = ""
        self._is_fine = True

    def take(self, paths: Sequence[str]) -> None:
        """The next paths."""
        if self._is_fine:
            self._is_fine = first_path_fault(paths) is None and all(map(self._take_one, paths))

    @property
    def is_fine(self) -> bool:
        """Whether there is no doubt about what was taken."""
        folders = map(hash, self._folders)
        known = sorted(array("q", chain(self._files, folders)))  # takes a third of the room of a set
        return self._is_fine and all(one != other for one, other in pairwise(known))

    def _take_one(self, path: str) -> bool:
        folder = path.rpartition("/")[0]
        if folder != self._folder:
            if not self._take_folder(folder):
                return False
            self._folder = folder
        self._files.append(hash(_folded(path)))
        return True

    def _take_folder(self, folder: str) -> bool:
        """It and those it is in, up to one that is known; False: one is known by another spelling."""
        while (known := self._folders.get(folded := _folded(folder))) is None:
            if len(self._folders) == _FOLDERS:
                return False
            self._folders[folded] = folder
            folder = folder.rpartition("/")[0]
        return known == folder


def _by_folded(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Paths with what they fold to, sorted by that; with little room beside them."""
    known = paths if isinstance(paths, Sequence) else list(paths)
    folded = [_folded(path) for path in known]
    for index in sorted(range(len(known)), key=folded.__getitem__):
        yield folded[index], known[index]


def _collide(one_folded: str, one: str, other_folded: str, other: str) -> bool:
    """Whether one is a folder of the other, or a folder of both is written in two ways."""
    folded = zip(one_folded.split(_SEPARATOR), other_folded.split(_SEPARATOR), strict=False)
    for depth, (one_segment, other_segment) in enumerate(folded):
        if one_segment != other_segment:
            return one.split("/", depth)[:depth] != other.split("/", depth)[:depth]
    return True


def _folded(path: str) -> str:
    """A key that is equal for paths which are one somewhere; it sorts folder by folder."""
    if path.isascii():
        return path.lower().replace("/", _SEPARATOR)
    seen = _INVISIBLE.sub("", unicodedata.normalize("NFD", path))
    folded = unicodedata.normalize("NFD", seen.casefold())
    return folded.replace("/", _SEPARATOR)


def key_fault(key: str) -> str | None:
    """Say why `key` may not name an object; None: it may.

    Stricter than S3: keys with `..`, `//` or a leading slash are refused by some servers, and some write
    them outside of their folder.
    """
    if len(key.encode(errors="replace")) > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    return path_fault(key)
