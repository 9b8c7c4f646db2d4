"""Short paths of attempts' folders: links in /tmp, because a Unix socket's path has at most 107 bytes.

A link's name follows from the folder's path, so it needs no record. It is used only if it is our own or the
attempt's user's, and in a sticky folder nobody else can replace it. It points to a folder that only the
attempt's user can enter. Files stay in that folder, where they are measured, and removed. Any thread may
call it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

PLACE = Path("/tmp")  # noqa: S108 - see above
PREFIX = "nimbus-"
_BYTES = 4


def name_of(folder: Path) -> Path:
    """The name of a folder's link."""
    return PLACE / f"{PREFIX}{hashlib.blake2b(bytes(folder), digest_size=_BYTES).hexdigest()}"


def drop(folder: Path) -> None:
    """Remove a folder's link, if it has one."""
    with suppress(OSError):
        link = name_of(folder)
        if os.readlink(link) == str(folder):  # noqa: PTH115 - no other kind of path
            link.unlink()


def drop_dangling() -> None:
    """Remove links to folders that are gone: those of this user, or of all users if it is root."""
    for link in PLACE.glob(PREFIX + "[0-9a-f]" * 2 * _BYTES):
        with suppress(OSError):
            is_ours = link.readlink().name == "work" and os.getuid() in (0, link.lstat().st_uid)
            if is_ours and not link.exists():
                link.unlink()
