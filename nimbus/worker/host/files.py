"""Files and folders: atomic and create-once writes, flushes to the disk, safe reads, short paths.

Drivers import it before a task's own modules, so it imports late what they do not need. Any thread.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Callable

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_CHUNK_BYTES = 1 << 20
_REMOVE_DEADLINE_S = 60.0
Fsync = Callable[[int], None]
_AT_ONCE = 8
"""Files in parallel, which a journal commits together. 400 files took 0.1 s, and 1.2 s one by one."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 100
"""Deepest nesting of folders: each level needs a descriptor, and a task may nest any number."""
_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""Errors of file systems that cannot flush this kind of file: some network file systems, for folders."""
_SHORT_PATHS = Path("/tmp")  # noqa: S108 - see `short_path_of`
_SHORT_PREFIX = "nimbus-"
_BYTES = 4


def digested(file: IO[bytes], digest: Any) -> Any:
    """Add the rest of a file to a hash, and return that: like `file_digest`, which Python 3.11 has."""
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file: its old content or the new one, never a mix. Not synced to disk."""
    part = _part(path, data, sync=False)
    try:
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Create a file that has no reader yet. Needs a third of the system calls of `Path.write_bytes`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def reserve(path: Path, size_bytes: int) -> None:
    """Create a file that occupies disk space, to be removed when the space is needed. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    finally:
        os.close(fd)


def write_once(path: Path, data: bytes) -> bool:
    """Create a file with its content, durably, unless it exists; return False if another writer was faster.

    link(2) refuses an existing name, and links a complete file: so exactly one of many writers wins, and no
    reader sees a partial record.
    """
    part = _part(path, data, sync=True)
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_if_there(path: Path) -> bytes | None:
    """A file's content; None when there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def make_passage(folder: Path) -> None:
    """Create a folder, unless it exists, that other users can traverse but not list."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)


def read_untrusted(path: Path, limit_bytes: int) -> bytes | None:
    """Read a file that user code may have written; None: no regular file of at most that size can be read.

    A link is not followed, and a pipe does not block. The parent folders must be our own.
    """
    try:
        with open_untrusted(path) as file:
            data = file.read(limit_bytes + 1)
    except (OSError, ValueError):  # ValueError: an invalid name, such as one with a zero byte
        return None
    return data if len(data) <= limit_bytes else None


def open_untrusted(path: Path) -> BinaryIO:
    """Open a file for `read_untrusted`, or to read it in parts. OSError: missing, or not a regular file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return os.fdopen(fd, "rb")


def remove_tree(top: Path) -> None:
    """Remove a folder at any depth. Links are not followed; what cannot be removed within a minute stays."""
    with suppress(RecursionError):
        shutil.rmtree(top, ignore_errors=True)
    if os.path.lexists(top):  # too deep for Python's recursion or the limit of descriptors
        import subprocess

        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["rm", "-rf", "--", str(top)],  # noqa: S607 - its path differs between systems
                env={"PATH": os.environ.get("PATH", os.defpath)},  # ours may hold credentials
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_REMOVE_DEADLINE_S,
                check=False,
            )


def _part(path: Path, data: bytes, *, sync: bool) -> Path:
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(fd, "wb") as part:
            part.write(data)
            part.flush()
            if sync:
                os.fsync(part.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def flush_above(
    top: Path, root: Path, *, fsync: Fsync = os.fsync, flushed: Container[Path] = frozenset()
) -> None:
    """Flush the folders from the last but one above `top` up to `root`. Raises OSError with `filename`.

    It ends with the first one that is in `flushed`: those above it do not change.
    """
    for above in top.parents[1 : len(top.relative_to(root).parts)]:
        _flush(fsync, above, os.O_DIRECTORY, str(above))
        if above in flushed:
            return


def flush_tree(top: Path, *, fsync: Fsync = os.fsync) -> None:
    """Flush all regular files and folders of a tree, and its parent folder, because a task may replace `top`.

    Symbolic links are not followed. OSError: missing, cannot be flushed, or nested too deep; `filename` names
    it.
    """
    if not top.is_symlink():
        with ExitStack() as closing:
            _Flush(fsync, closing).folder(str(top), str(top), None, _DEEPEST)
    _flush(fsync, top.parent, os.O_DIRECTORY, str(top.parent))


class _Flush:
    """Walks a tree by descriptors of its folders, so that a renamed or replaced folder is not followed."""

    def __init__(self, fsync: Fsync, closing: ExitStack) -> None:
        self._fsync, self._closing = fsync, closing

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # late: it loads logging

        return self._closing.enter_context(ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="runner-flush"))

    def folder(self, name: str, path: str, above: int | None, levels: int) -> None:
        if levels == 0:
            raise OSError(errno.ELOOP, f"folders are nested deeper than {_DEEPEST}", path)
        with _naming(path, but=frozenset()):
            fd = os.open(name, _READ | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        try:
            with _naming(path, but=frozenset()), os.scandir(fd) as scanned:
                entries = list(scanned)
            files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
            flush = map if len(files) < 2 else self._pool.map
            for _ in flush(partial(self._file, fd, path), files):
                pass  # the first error is raised here
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.folder(entry.name, f"{path}/{entry.name}", fd, levels - 1)
            with _naming(path):
                self._fsync(fd)
        finally:
            os.close(fd)

    def _file(self, folder: int, place: str, name: str) -> None:
        _flush(self._fsync, name, os.O_NOFOLLOW, f"{place}/{name}", folder)


def _flush(fsync: Fsync, name: str | Path, flags: int, path: str, folder: int | None = None) -> None:
    with _naming(path):
        fd = os.open(name, _READ | flags, dir_fd=folder)
        try:
            fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _naming(path: str, but: frozenset[int] = _NOT_OFFERED) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno not in but:
            raise OSError(exc.errno, exc.strerror, path) from exc


def short_path_of(folder: Path) -> Path:
    """The name of a link to an attempt's folder, because a Unix socket's path has at most 107 bytes.

    It follows from the folder's path, so it needs no record. A link is used only if it is our own or the
    attempt's user's, and in a sticky folder nobody else can replace it. It points to a folder that only the
    attempt's user can enter. Files stay in that folder, where they are measured, and removed.
    """
    import hashlib

    return _SHORT_PATHS / f"{_SHORT_PREFIX}{hashlib.blake2b(bytes(folder), digest_size=_BYTES).hexdigest()}"


def drop_short_path(folder: Path) -> None:
    """Remove a folder's link, if it has one."""
    with suppress(OSError):
        link = short_path_of(folder)
        if os.readlink(link) == str(folder):  # noqa: PTH115 - no other kind of path
            link.unlink()


def drop_dangling_short_paths() -> None:
    """Remove links to folders that are gone: those of this user, or of all users if it is root."""
    for link in _SHORT_PATHS.glob(_SHORT_PREFIX + "[0-9a-f]" * 2 * _BYTES):
        with suppress(OSError):
            is_ours = link.readlink().name == "work" and os.getuid() in (0, link.lstat().st_uid)
            if is_ours and not link.exists():
                link.unlink()
