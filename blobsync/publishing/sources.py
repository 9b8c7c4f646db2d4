"""Chooses the files of a release on the publisher's disk. Reads names and metadata, not content."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from blobsync.errors import BlobSyncConfigError, LocalStoreError, UnmatchedPatternError, UnsafeSourceError
from blobsync.names import collision, path_fault
from blobsync.release.manifest import Role

_EXCLUDED_NAMES = {"__pycache__", ".git"}
_EXCLUDED_SUFFIXES = (".pyc",)
_SECRET_NAMES = re.compile(
    r"\.env(\..*)?|id_(rsa|dsa|ecdsa|ed25519)|\.netrc|\.pgpass|\.git-credentials|.*\.(pem|p12|pfx|jks|keystore|key)",
    re.IGNORECASE,
)
_SECRET_FOLDERS = {".aws", ".ssh", ".gnupg"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to publish.

    Attributes:
        path: Its name in the release.
        executable: True if its owner may execute it.
    """

    path: str
    file: Path
    role: Role
    executable: bool


def collect(
    root: Path,
    *,
    include: Sequence[str],
    dependencies: Sequence[str] = (),
    configuration: Sequence[str] = (),
    allow_secrets: Sequence[str] = (),
) -> tuple[SourceFile, ...]:
    """Find the files that match patterns.

    `__pycache__`, `.git` and `*.pyc` are left out, and hidden files and folders too, unless a pattern names
    them.

    Args:
        root: The folder of the release. Patterns, and the paths in the release, are relative to it.
        include: Patterns of code, as in a shell with `**`; see `_compiled`.
        dependencies: Patterns of wheels, jars, archives. Where several match, this role wins.
        configuration: Patterns of configuration. This role wins over code.
        allow_secrets: Patterns of files that are included although they are named like secrets.

    Returns:
        Sorted by path.

    Raises:
        UnmatchedPatternError: a pattern matches nothing.
        UnsafeSourceError: a link out of the tree, a device, colliding names, or a file named like a secret.
        BlobSyncConfigError: a pattern is not valid.
        LocalStoreError: the disk could not be read.
    """
    by_role = ((Role.CODE, include), (Role.CONFIGURATION, configuration), (Role.DEPENDENCY, dependencies))
    hidden = any(_wants_hidden(pattern) for _, patterns in by_role for pattern in patterns)
    allowed = [_compiled(pattern) for pattern in allow_secrets]
    try:
        if not root.is_dir():
            raise LocalStoreError(f"{root} is not a folder; there is nothing to publish from")
        candidates = _candidates(root, hidden)
        roles: dict[str, Role] = {}
        for role, patterns in by_role:
            for pattern in patterns:
                roles.update(dict.fromkeys(_matching(pattern, candidates, root), role))
        real_root = root.resolve()
        files = tuple(
            _source(path, candidates[path], roles[path], real_root, allowed) for path in sorted(roles)
        )
    except OSError as exc:
        raise LocalStoreError(f"the files below {root} cannot be read: {exc}") from exc
    if (pair := collision(item.path for item in files)) is not None:
        raise UnsafeSourceError(
            f"{pair[0]!r} and {pair[1]!r} are one name on some file systems; rename or leave out one of them"
        )
    return files


def matching(pattern: str, paths: Iterable[str]) -> list[str]:
    """The paths of a release that a pattern of `collect` names, in their order.

    BlobSyncConfigError if it is not valid.
    """
    expression = _compiled(pattern)
    return [path for path in paths if expression.fullmatch(path)]


def _candidates(root: Path, hidden: bool) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for entry in _walk(root, hidden):
        path = unicodedata.normalize("NFC", entry.relative_to(root).as_posix())
        if path in paths:
            raise UnsafeSourceError(
                f"{entry} and {paths[path]} differ only in Unicode normalisation; rename one"
            )
        paths[path] = entry
    return paths


def _walk(root: Path, hidden: bool) -> Iterator[Path]:
    """All entries but folders. Links to folders are yielded, not followed."""
    folders = [root]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            name = entry.name
            if name in _EXCLUDED_NAMES or name.endswith(_EXCLUDED_SUFFIXES):
                continue
            if name.startswith(".") and not hidden:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(folder / name)
            else:
                yield folder / name


def _matching(pattern: str, candidates: dict[str, Path], root: Path) -> list[str]:
    expression = _compiled(pattern)
    paths = matching(pattern, candidates)
    # A linked folder is not followed: files below it that match would be left out silently.
    above = list(_above(pattern))
    paths += [
        path
        for path, file in candidates.items()
        if (expression.fullmatch(f"{path}/_") or any(folder.fullmatch(path) for folder in above))
        and (file.is_symlink() and file.is_dir() and path not in paths)
    ]
    if not paths:
        is_folder = (root / pattern).is_dir()
        raise UnmatchedPatternError(
            pattern, root, f" (it is a folder: write {pattern}/**)" if is_folder else ""
        )
    return paths


def _source(
    path: str, file: Path, role: Role, real_root: Path, allowed: Sequence[re.Pattern[str]]
) -> SourceFile:
    if (fault := path_fault(path)) is not None:
        raise UnsafeSourceError(f"{path!r} {fault}, so it cannot be in a release; rename it or leave it out")
    is_link = file.is_symlink()
    target = file.resolve() if is_link else file  # folders of links were not entered
    if is_link and not target.is_relative_to(real_root):
        raise UnsafeSourceError(
            f"{path} is a link to {target}, out of {real_root}; copy the file into the folder"
        )
    try:
        mode = target.stat().st_mode
    except FileNotFoundError as exc:
        raise UnsafeSourceError(f"{path} is a link to nothing ({target}); remove it or leave it out") from exc
    if stat.S_ISDIR(mode):
        raise UnsafeSourceError(
            f"{path} is a link to a folder, which is not followed; put the folder in its place"
        )
    if not stat.S_ISREG(mode):
        raise UnsafeSourceError(f"{path} is no regular file (a device, pipe or socket); leave it out")
    secret = _looks_secret(path) or (is_link and _looks_secret(target.relative_to(real_root).as_posix()))
    if secret and not any(pattern.fullmatch(path) for pattern in allowed):
        raise UnsafeSourceError(
            f"{path} is named like a secret, and all readers of the bucket could read it; leave it out, "
            f"or name it in allow_secrets"
        )
    return SourceFile(path, file, role, bool(mode & stat.S_IXUSR))


def _looks_secret(path: str) -> bool:
    *folders, name = path.split("/")
    return _SECRET_NAMES.fullmatch(name) is not None or not _SECRET_FOLDERS.isdisjoint(folders)


def _compiled(pattern: str) -> re.Pattern[str]:
    """Turn a pattern into a regular expression for whole relative paths.

    `*` and `?` match within a segment, `[abc]` matches one of these, `**` any number of folders. Names that
    begin with a dot are matched only by segments that begin with a dot. BlobSyncConfigError if the pattern is
    empty, absolute, or leaves the root.
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


def _above(pattern: str) -> Iterator[re.Pattern[str]]:
    """The folders that a pattern names, from the top to its first `**`."""
    segments = pattern.split("/")
    for count in range(1, len(segments)):
        if segments[count - 1] == "**":
            return
        yield _compiled("/".join(segments[:count]))


def _wants_hidden(pattern: str) -> bool:
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
