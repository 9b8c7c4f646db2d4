"""Small files on their way into the store that come one by one: gathered in a pack, which is then installed.

The pack is written to `partial/<name of the bundle>`, locked by whoever gathers it, so that a host fetches it
once. What a dead process left there is begun anew: it is a few MiB at most.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from types import TracebackType

from blobsync.errors import CorruptBlobError
from blobsync.local.disk import READ_ONLY, fsync_folder, identity, start_writing
from blobsync.local.loose import LooseQuestions
from blobsync.local.objects import ObjectFiles
from blobsync.release.layout import Pack
from blobsync.release.loose import Bundle, LooseFile
from blobsync.release.pack import PackWriter

_FRAME_BYTES = 256 << 10
_TABLE_BYTES = 64 << 10


def gather(objects: ObjectFiles, loose: LooseQuestions, bundle: Bundle) -> Gathering | None:
    """See `blobsync.LocalStore.gather`. OSError passes through."""
    base = objects.base
    base.step("gather-open")
    claim = objects.partials.claim(bundle.name)
    if claim is None:
        return None
    path, fd = claim
    try:
        os.ftruncate(fd, 0)
        left = bundle.only(loose.missing_of(bundle))
        if left.files:
            base.disk.need_room(left.size_bytes + _TABLE_BYTES, f"receiving {bundle.name}")
        return Gathering(objects, left, path, fd)
    except BaseException:
        objects.partials.release(fd)
        with contextlib.suppress(OSError):
            os.close(fd)
        raise


class Gathering:
    """A pack that is being made of what comes. Use it in a `with`; without `install`, nothing stays.

    Attributes:
        bundle: What is to come: what of the bundle is not here yet.
    """

    def __init__(self, objects: ObjectFiles, bundle: Bundle, path: Path, fd: int) -> None:
        self.bundle = bundle
        self._objects, self._path, self._fd = objects, path, fd
        self._file = os.fdopen(fd, "r+b", buffering=0)
        self._writer: PackWriter | None = None
        self._named = False

    def __enter__(self) -> Gathering:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def count(self) -> int:
        """How many files have come."""
        return 0 if self._writer is None else self._writer.member_count

    def add(self, file: LooseFile, data: bytes) -> None:
        """Take the bytes of a file, if they are its own.

        Raises:
            CorruptBlobError: they are others; nothing of them is taken.
            LocalStoreError: the disk failed.
        """
        if len(data) != file.size_bytes or hashlib.sha256(data).hexdigest() != file.sha256:
            raise CorruptBlobError(
                f"{self.bundle.key(file)} has other bytes than {file.path} of release "
                f"{self.bundle.release[:12]}; nothing of it was used. If they are wanted, adopt "
                f"{self.bundle.prefix} again"
            )
        with self._objects.base.disk.errors(f"receiving {file.path}", writes=True):
            if self._writer is None:
                self._objects.base.step("gather-write")
                self._writer = PackWriter(self._file, compress=False, frame_bytes=_FRAME_BYTES)
            self._writer.add(file.sha256, data)

    def install(self) -> Pack:
        """Put what came on the disk, and give it its name. It was verified when it came.

        Raises:
            LocalStoreError: the disk failed.
        """
        assert self._writer is not None  # noqa: S101 - something came
        base = self._objects.base
        with base.disk.errors(f"installing {self.bundle.name}", writes=True):
            pack = Pack(self._writer.finish(), self._writer.size_bytes)
            start_writing(self._fd, 0, pack.size_bytes)
            base.step("fsync")
            os.fchmod(self._fd, READ_ONLY)
            os.fsync(self._fd)  # never tried again: the pages may be marked clean, and are not on the disk
            self._name(pack)
        return pack

    def close(self) -> None:
        """Let go of the file. Safe to repeat."""
        if not self._file.closed:
            self._objects.partials.release(self._fd)
            if not self._named:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
            self._file.close()

    def _name(self, pack: Pack) -> None:
        base, path = self._objects.base, self._objects.path(pack)
        base.folders.make(path.parent)
        self._objects.partials.release(self._fd)
        base.step("rename")
        self._path.replace(path)
        self._named = True
        try:
            base.step("fsync-folder")
            fsync_folder(path.parent)
        except OSError:
            path.unlink(missing_ok=True)  # its name is not on the disk, and never may be
            raise
        base.step("index")
        self._objects.note_verified(pack, identity(os.fstat(self._fd)), None)
